"""The view model: what the page is told about facts, repeats, retractions, silence and floods."""

import json
from typing import Any

import pytest

from flexinfer.adapters.web.dashboard import state
from flexinfer.adapters.web.dashboard.state import Board
from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import (
    BenchFailed,
    ModelLoad,
    ModelPhase,
    NodeHardware,
    NodeStatus,
    NodeTelemetry,
    PodMismatch,
)
from flexinfer.ports import Snapshot
from tests.contract.dashboard.mixed_day import EVERY, START, Day, hardware, mixed_day, phase, placed, result


def seen(board: Board, now: float = START) -> dict[str, Any]:
    return dict(json.loads(board.snapshot(now, [])))


def news(board: Board, now: float = START) -> dict[str, Any]:
    return dict(json.loads(board.drain(now, [])))


def folded(*events: Event) -> Board:
    board = Board()
    for event in events:
        board.take(event, event.at)
    return board


def test_a_whole_day_is_shown() -> None:
    board = folded(*(event for _, event in mixed_day()))

    page = seen(board)
    assert sorted(r["data"]["node"] for r in page["hardware"].values()) == ["a100", "arc", "l4", "mi300x"]
    assert [step["phase"] for step in page["phases"]["default/llama3-8b"]] == [
        "Pending", "Benchmarking", "Deploying", "Running",
    ]  # fmt: skip
    assert sorted(r["data"]["deviceClass"] for r in page["result"].values()) == ["a100-x1", "l4-x1", "mi300x-x1"]
    assert [r["data"]["pod"] for r in page["decisions"]] == ["llama3-8b-1", "llama3-8b-2"]
    assert page["decisions"][0]["why"].startswith("mi300x leads 3 of 4 nodes")
    runs = page["runs"]
    assert len(runs["llama3-8b-mi300x-0123456789ab"]["samples"]) == 6
    assert runs["llama3-8b-arc-0123456789ab"]["ended"]["data"]["remedy"] == "Look at the pod's log."
    assert len(page["events"]) == state.RECENT_EVENTS
    assert page["total"] == len(mixed_day())


def test_repeats_change_nothing() -> None:
    day = Day()
    event = day.figures("l4", 1)
    board = folded(event, event)

    assert seen(board)["total"] == 1


def test_batches_add_up_to_the_snapshot() -> None:
    board, kept = Board(), {name: dict[str, Any]() for name in seen(Board()) if name in Board().kept}
    for position, (at, event) in enumerate(mixed_day()):
        board.take(event, at)
        if position % 7 == 0:
            for name, changes in news(board).items():
                for key, record in changes.items() if name in kept else ():
                    kept[name][key] = record
    for name, changes in news(board).items():
        if name in kept:
            kept[name].update(changes)

    assert kept == {name: seen(board)[name] for name in kept}


def test_an_event_that_is_also_the_newest_value_is_sent_once() -> None:
    day = Day()
    board = folded(day.figures("l4", 1), day.figures("l4", 2))

    batch = news(board)
    [older, newer] = batch["events"]
    assert older["data"]["node"] == "l4"
    kind, key = newer["ref"]
    assert batch[kind][key]["id"] != older["id"]


def test_a_flood_is_bounded_and_counted() -> None:
    day = Day()
    board = folded(*(day.figures("l4", step) for step in range(1000)))

    batch = news(board)
    assert len(batch["events"]) == state.BATCH_EVENTS
    assert batch["leftOut"] == 1000 - state.BATCH_EVENTS
    assert not board.has_news


def test_invented_names_cost_the_oldest_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "KEYS_KEPT", 3)
    day = Day()
    board = folded(*(day.say("agent/x", NodeStatus(node=f"n{i}", state="online")) for i in range(5)))

    assert sorted(r["data"]["node"] for r in seen(board)["status"].values()) == ["n2", "n3", "n4"]


def test_a_huge_payload_is_named_in_the_list_and_whole_in_its_view() -> None:
    day = Day()
    reasons = tuple(f"reason {i} " + "x" * 200 for i in range(500))
    board = folded(day.say("manager/m", PodMismatch(node="l4", namespace="default", pod="p", reasons=reasons)))

    [event] = seen(board)["events"]
    assert event["data"]["notShown"].startswith("a payload of 1")


def test_a_model_that_is_gone_leaves_with_its_history() -> None:
    day = Day()
    board = folded(day.say("manager/m", phase("p", None)))
    news(board)
    board.take(day.say("manager/m", phase("p", None, gone=True)), START)

    assert news(board)["phase"] == {"model.default.llama3-8b.phase": None} or None in news(board).values()
    assert seen(board)["phases"] == {}
    assert seen(board)["phase"] == {}


def test_a_snapshot_takes_models_away_but_only_suspects_nodes() -> None:
    day = Day()
    board = folded(hardware(day, "l4"), day.say("manager/m", phase("r", None)))
    board.take(Snapshot((NodeHardware, ModelPhase), (hardware(day, "a100"),), 2))

    page = seen(board)
    assert page["phase"] == {}
    assert len(page["hardware"]) == 2

    board.forget(START + 90_000)
    assert [r["data"]["node"] for r in seen(board)["hardware"].values()] == ["a100"]


def test_load_of_a_dead_proxy_does_not_count_for_ever() -> None:
    day = Day()
    board = folded(day.say("proxy/p", ModelLoad(namespace="default", model="m", proxy="p", outstanding=3)))
    board.forget(START + 9)
    assert len(seen(board)["load"]) == 1

    board.forget(START + 11)
    assert seen(board)["load"] == {}


def test_a_clock_that_is_off_does_not_make_a_node_stale() -> None:
    day = Day()
    event = day.figures("l4", 1)
    board = Board()
    board.take(event, event.at + 600)

    [record] = seen(board)["telemetry"].values()
    assert (record["at"], record["heard"]) == (event.at, event.at + 600)
    assert board.health.sentences(event.at + 601) == []


def test_the_banner_names_silent_nodes_but_not_those_that_said_goodbye() -> None:
    day = Day()
    board = folded(day.figures("l4", 1), day.figures("arc", 1))
    board.take(day.say("agent/arc", NodeStatus(node="arc", state="offline")), START)

    assert board.health.sentences(START + EVERY) == []
    assert board.health.sentences(START + 4 * EVERY) == [
        "1 of 2 nodes are silent, their figures are stale: l4."
    ]  # fmt: skip


def test_the_banner_forgets_a_node_that_is_gone_for_a_day() -> None:
    day = Day()
    board = folded(day.figures("l4", 1), day.figures("arc", 1))
    board.forget(START + 2 * 86_400)

    assert board.health.sentences(START + 2 * 86_400) == []
    assert board.health.due == {}


def test_the_banner_says_degraded_until_a_decision_is_not() -> None:
    day = Day()
    board = folded(day.say("scheduler/s", placed("a", degraded=True)))
    assert board.health.sentences(START + 1) == [
        "Placement is degraded: the scheduler decides from labels, without live figures."
    ]

    board.take(day.say("scheduler/s", placed("b")), START + 2)
    assert board.health.sentences(START + 3) == []


def test_failures_without_a_start_are_only_events() -> None:
    day = Day()
    failed = BenchFailed(key="k", namespace="default", model="m", reason="Gone", message="no")
    board = folded(day.say("bench/b", failed), day.say("bench/b", result("l4")))

    assert seen(board)["runs"] == {}
    assert len(seen(board)["result"]) == 1


def test_a_copy_stands_alone() -> None:
    day = Day()
    board = folded(hardware(day, "l4"))
    other = board.copy()
    other.take(day.figures("l4", 1), START)
    other.take(day.figures("a100", 1), START)

    assert seen(board)["telemetry"] == {}
    assert len(seen(other)["telemetry"]) == 2
    assert isinstance(day.figures("l4", 2).data, NodeTelemetry)
