"""Rules of the house that no linter knows."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted((ROOT / "flexinfer").rglob("*.py"))
PROSE = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_source_file_stays_readable(path: Path) -> None:
    lines = path.read_text().splitlines()

    assert len(lines) <= 400, "split it by what changes together"
    assert not lines or lines[0].startswith('"""'), "the first line says why the module exists"


def test_no_module_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "common_utils", "misc"}

    assert [p for p in SOURCES if p.stem in drawers] == []


def test_links_between_documents_lead_somewhere() -> None:
    links = [(page, target) for page in PROSE for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())]

    broken = [(page.name, to) for page, to in links if "://" not in to and not (page.parent / to).exists()]

    assert broken == []
