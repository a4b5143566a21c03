"""``flexinfer replay``: readable lines, the same bytes as JSON, and what is said of tapes that are damaged."""

import gzip
from pathlib import Path

import pytest

from flexinfer.cli import run_command

TAPES = Path(__file__).parents[2] / "tapes"
NIGHT = TAPES / "by-hand" / "bad-night-scheduler.jsonl"


def test_decisions_are_printed_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command(["replay", str(NIGHT)])

    title, *lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert title == "scheduler by-hand, recorded by release 0 from 2027-01-15 08:00:00 UTC, 38 facts"
    assert (
        "08:00:30.000 placement  default/rejected  rejected: no node of 2 fits: 2 installed VRAM is too small" in lines
    )


def test_json_is_the_golden_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["replay", str(NIGHT), "--output", "json"]) == 0

    assert capsys.readouterr().out == (TAPES / "by-hand" / "bad-night-scheduler.trace.jsonl").read_text()


@pytest.mark.parametrize("name", ["demo-manager", "home-lab-manager", "demo-proxy", "home-lab-scheduler"])
def test_every_kind_of_decision_has_words(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = TAPES / "recorded" / f"{name}.jsonl.gz"

    assert run_command(["replay", str(path)]) == 0
    trace = path.with_name(f"{name}.trace.jsonl").read_text().splitlines()
    assert len(capsys.readouterr().out.splitlines()) == len(trace) + 1


def test_bad_lines_are_named_and_the_rest_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "torn.jsonl"
    lines = NIGHT.read_bytes().splitlines()
    lines[4] = b'{"at": 1, "kind": "dream", "body": {}}'
    path.write_bytes(b"\n".join(lines)[:-9])

    code = run_command(["replay", str(path)])

    told = capsys.readouterr()
    assert code == 3
    assert "default/after-silence" in told.out
    first, second = told.err.splitlines()
    assert first.startswith(f"flexinfer replay: {path}: line 5: Invalid enum value 'dream'")
    assert second.startswith(f"flexinfer replay: {path}: line {len(lines)}: ")


def test_a_cut_gzip_file_is_read_as_far_as_it_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cut.jsonl.gz"
    packed = gzip.compress(NIGHT.read_bytes(), mtime=0)
    path.write_bytes(packed[: len(packed) // 2])

    assert run_command(["replay", str(path)]) == 3
    assert "the compressed file is damaged from here on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("first", "sentence"),
    [
        (b'{"hello":1}', "this is no FlexInfer tape"),
        (
            b'{"tape":"flexinfer","version":9,"component":"x","instance":"y","release":"9","started":0}',
            "tape version 9 is newer than this release reads (1); upgrade first",
        ),
        (
            b'{"tape":"flexinfer","version":1,"component":"toaster","instance":"y","release":"0","started":0}',
            "a tape of 'toaster' cannot be replayed, only of manager, proxy, scheduler",
        ),
        (
            b'{"tape":"flexinfer","version":1,"component":"manager","instance":"y","release":"0","started":0,%b'
            % b'"settings":{"gate_timeout":"soon"}}',
            "the settings in the tape of 'manager' make no sense",
        ),
    ],
)
def test_what_is_no_tape_of_ours_is_one_sentence(
    first: bytes, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_bytes(first + b"\n")

    assert run_command(["replay", str(path)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"flexinfer replay: {path}: {sentence}")
    assert told.err.count("\n") == 1


def test_a_directory_with_several_tapes_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["replay", str(TAPES / "recorded")]) == 1
    assert "is a directory; name one of its tapes: demo-manager.jsonl.gz, " in capsys.readouterr().err


def test_no_tape_is_an_error_of_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["replay"]) == 2
    assert "name a tape" in capsys.readouterr().err
