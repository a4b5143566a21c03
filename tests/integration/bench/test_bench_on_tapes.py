"""``flexinfer bench list|show|compare`` on tapes as they are found: torn, of many parts, foreign; and as YAML."""

import gzip
import json
from pathlib import Path

import pytest
import yaml

from flexinfer.cli import run_command
from flexinfer.runtime.parts import Limits, PartedJournal
from flexinfer.testing.replay import load

LAB = Path(__file__).parents[2] / "tapes" / "recorded" / "home-lab-manager.jsonl.gz"


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = run_command(["bench", *argv])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_yaml_is_what_json_is(capsys: pytest.CaptureFixture[str]) -> None:
    found = [json.loads(line) for line in said(capsys, "list", "--tape", str(LAB), "-o", "json")[1].splitlines()]
    code, out, _ = said(capsys, "list", "--tape", str(LAB), "-o", "yaml")

    assert code == 0
    assert len(found) >= 2
    assert list(yaml.safe_load_all(out)) == found
    keys = [row["key"] for row in found[:2]]
    as_json = json.loads(said(capsys, "compare", *keys, "--tape", str(LAB), "-o", "json")[1])
    assert yaml.safe_load(said(capsys, "compare", *keys, "--tape", str(LAB), "-o", "yaml")[1]) == as_json


def test_lines_that_cannot_be_read_are_named_and_the_rest_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = said(capsys, "list", "--tape", str(LAB))[1]
    lines = gzip.decompress(LAB.read_bytes()).splitlines()
    lines[2] = b'{"at": 1, "kind": "event", "body": {"specversion": "9"}}'
    lines[5] = b"\xff\xfe"
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(b"\n".join(lines)[:-20])

    code, out, err = said(capsys, "list", "--tape", str(torn))
    assert (code, out) == (0, whole)
    assert [line.split(": ")[2] for line in err.splitlines()] == ["line 3", "line 6", f"line {len(lines)}"]


def test_a_cut_archive_is_read_as_far_as_it_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(LAB.read_bytes()[:-200])

    code, out, err = said(capsys, "list", "--tape", str(cut), "-o", "json")
    assert code == 0
    assert out
    assert "the compressed file is damaged from here on" in err


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n" * 9, b'{"kind": "List"}\n', b"\x1f\x8b torn from the start"])
def test_what_is_no_tape_is_one_sentence(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(content)

    code, out, err = said(capsys, "list", "--tape", str(path))
    assert (code, out) == (1, "")
    assert err == f"flexinfer bench: {path}: this is no FlexInfer tape and holds no event\n"


def test_the_parts_of_a_run_are_one_tape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tape = load(LAB)
    journal = PartedJournal(tmp_path, tape.header, Limits(size=50_000), compress=True)
    for at, fact in tape.facts:
        journal.write(at, fact)
    journal.close()
    first = tmp_path / f"{tape.header.file}.gz"

    assert said(capsys, "list", "--tape", str(first)) == said(capsys, "list", "--tape", str(LAB))
