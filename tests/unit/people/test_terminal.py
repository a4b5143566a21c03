"""What people see in a terminal: lines that say what was dropped, tables, names."""

import io
import json

import pytest
import yaml
from rich.console import Console

from flexinfer.apps.events import Backlog, line, write
from flexinfer.apps.logs import meant, names_of
from flexinfer.apps.top import Board
from flexinfer.ports import Snapshot
from flexinfer.runtime.sifting import wanted
from tests.contract.dashboard.mixed_day import START, Day, hardware, mixed_day, phase


def test_a_slow_terminal_is_told_what_it_missed() -> None:
    day = Day()
    backlog = Backlog(wanted("telemetry"), limit=3)
    for step in range(5):
        backlog.sink(day.figures("l4", step))
    backlog.sink(hardware(day, "l4"))
    backlog.sink(Snapshot((), (), 1))

    assert [event.seq for event in backlog.take()] == [1, 2, 3]
    assert backlog.complaint() == "flexinfer events: 2 events dropped, the terminal is slower than the bus\n"
    assert backlog.complaint() == ""
    assert backlog.take() == ()

    backlog.sink(Snapshot((), (), 2))
    assert backlog.complaint().endswith("the connection broke or was overrun, events in between are missing\n")


def test_a_line_says_when_what_whom() -> None:
    day = Day()
    text = line(day.say("manager/m", phase("p", None)))

    assert text.startswith("08:00:00.000 model.phase")
    assert '"phase":"Pending"' in text
    assert "null" not in text


def test_events_are_documents_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    day = Day()
    events = (day.say("manager/m", phase("p", None)), day.figures("l4", 1))
    write(events, "json")
    lines = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    write(events, "yaml")

    assert list(yaml.safe_load_all(capsys.readouterr().out)) == lines


def test_top_fits_the_terminal() -> None:
    board = Board()
    for _, event in mixed_day():
        board.sink(event)

    for height in (12, 40, 200):
        console = Console(width=140, height=height, record=True, file=io.StringIO())
        console.print(board.screen(START + 3600, "", height))
        text = console.export_text()
        assert len(text.splitlines()) <= height
        assert "688 events" in text
    assert "Instinct MI300X" in text
    assert "default/llama3-8b" in text
    assert "placement.decided" in text


def test_top_forgets_what_is_gone() -> None:
    board, day = Board(), Day()
    board.sink(day.say("manager/m", phase("r", None)))
    board.sink(day.say("manager/m", phase("r", None, gone=True)))

    assert board.kept == {}


def test_pods_by_the_names_people_use() -> None:
    ours = {
        "metadata": {
            "name": "llama-7d9f-x", "labels": {},
            "annotations": {"flexinfer.ai/model": "llama3"},
        }
    }  # fmt: skip
    part = {"metadata": {"name": "flexinfer-agent", "labels": {
        "app.kubernetes.io/name": "flexinfer-agent", "app.kubernetes.io/part-of": "flexinfer"}}}  # fmt: skip

    assert names_of(ours) == {"llama3"}
    assert names_of(part) == {"agent"}
    assert meant(ours, "model/llama3")
    assert meant(ours, "llama-7d9f")
    assert not meant(ours, "llama-7")
    assert not meant(ours, "")
