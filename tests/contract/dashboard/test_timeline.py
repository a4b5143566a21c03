"""Time travel: any moment of a tape is what the facts up to it say, whatever was asked before."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexinfer.adapters.web.dashboard import timeline
from flexinfer.adapters.web.dashboard.state import Board
from flexinfer.adapters.web.dashboard.timeline import Timeline
from flexinfer.runtime.journal import BadLine
from flexinfer.runtime.tapes import bus_facts, tapes_of
from tests.contract.dashboard.mixed_day import START, mixed_day, write_tape

TAPES = Path(__file__).parents[2] / "tapes" / "recorded"
DAY = mixed_day()


def test_any_moment_is_the_fold_of_what_was_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "LEAST_BETWEEN", 50)
    travelled = Timeline("day", DAY)

    @settings(max_examples=25, deadline=None)
    @given(st.floats(0, DAY[-1][0] - START))
    def check(offset: float) -> None:
        at = START + offset
        plain = Board()
        for when, fact in DAY:
            if when <= at:
                plain.take(fact, when)
        plain.forget(at)
        assert travelled.snapshot(at) == plain.snapshot(at, plain.health.sentences(at))

    check()


def test_moments_outside_the_tape_are_its_ends() -> None:
    travelled = Timeline("day", DAY)

    assert travelled.snapshot(0) == travelled.snapshot(travelled.start)
    assert travelled.snapshot(9e12) == travelled.snapshot(travelled.end)


def test_marks_are_moments_and_bars_are_all_facts() -> None:
    about = json.loads(Timeline("day", DAY).about())

    assert sum(about["bars"]) == about["facts"] == len(DAY)
    assert "default/llama3-8b Running" in [mark["text"] for mark in about["marks"]]
    assert [mark["at"] for mark in about["marks"]] == sorted(mark["at"] for mark in about["marks"])


def test_tapes_of_several_processes_are_one_story() -> None:
    tapes = [tape for path, tape in tapes_of(TAPES) if path.name.startswith("home-lab")]
    found = [moment for tape in tapes for moment in (*bus_facts(tape), *bus_facts(tape))]
    page = json.loads(Timeline("all", found).snapshot(9e12))

    ids = [event["id"] for event in page["events"]]
    assert len(ids) == len(set(ids))
    assert len(page["hardware"]) == 4
    assert page["decisions"]


def test_an_empty_tape_is_an_empty_page() -> None:
    page = json.loads(Timeline("none", []).snapshot(5.0))

    assert page["hardware"] == {}
    assert json.loads(Timeline("none", []).about())["facts"] == 0


def test_foreign_files_beside_tapes_are_passed_over(tmp_path: Path) -> None:
    write_tape(tmp_path / "day.jsonl")
    (tmp_path / "other.jsonl").write_text('{"hello": 1}\n')
    (tmp_path / "day.trace.jsonl").write_text("{}\n")

    assert [path.name for path, _ in tapes_of(tmp_path)] == ["day.jsonl"]


def test_a_directory_without_a_tape_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadLine, match="there is no tape here"):
        list(tapes_of(tmp_path))
