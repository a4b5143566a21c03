"""A promise without a test that exists is only a sentence."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "promises.md"
REFERENCE = re.compile(r"`([\w./-]+?)(?:::(\w+))?`")


def rows() -> list[tuple[str, list[tuple[str, str]]]]:
    """Each promise with the paths that keep it, and the test in each path, empty for a benchmark."""
    found = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 2 and cells[0] not in {"Promise", "---"}:
            found.append((cells[0], REFERENCE.findall(cells[1])))
    return found


@cache
def defined_in(path: str) -> frozenset[str]:
    return frozenset(re.findall(r"^(?:async )?def (test_\w+)", (ROOT / path).read_text(), re.MULTILINE))


@pytest.mark.parametrize(("promise", "kept_by"), rows(), ids=[promise for promise, _ in rows()])
def test_it_is_kept_by_what_exists(promise: str, kept_by: list[tuple[str, str]]) -> None:
    assert kept_by, "nothing keeps it"
    for path, name in kept_by:
        assert (ROOT / path).is_file(), path
        assert path.startswith("benchmarks/") or name in defined_in(path), f"{path}::{name}"


def test_the_page_says_more_than_a_few() -> None:
    assert len(rows()) > 50
    assert len({promise for promise, _ in rows()}) == len(rows())


def test_every_test_of_faults_keeps_a_promise() -> None:
    kept = {path for _, references in rows() for path, _ in references}
    here = {f"tests/faults/{path.name}" for path in Path(__file__).parent.glob("test_*.py")}
    assert here - kept == {f"tests/faults/{Path(__file__).name}"}
