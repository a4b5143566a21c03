"""The pump: sequential per key, parallel across keys, coalesced, paced by time and by failures."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from flexinfer.core.effects import Decision, Effect, Note
from flexinfer.runtime.pump import ERROR_SECONDS, Pump, Reducers
from flexinfer.runtime.tasks import Supervisor
from flexinfer.telemetry import metrics
from flexinfer.testing.bus import ManualClock, until


def note(text: str) -> Effect:
    return Note({}, "Normal", "R", text)


class Bench:
    """A pump over strings: each fact ``key:text`` marks its key, and is performed as one note."""

    def __init__(self, workers: int = 4) -> None:
        self.clock = ManualClock()
        self.pending: dict[str, list[str]] = {}
        self.planned: list[str] = []
        self.performed: list[tuple[str, str]] = []
        self.gate: dict[str, asyncio.Event] = {}
        self.wake: dict[str, float] = {}
        self.broken: set[str] = set()
        self.recorded: list[tuple[float, str]] = []
        self.outcome: Callable[[str], tuple[str | None, bool]] = lambda _text: (None, True)
        self.running = 0
        self.most = 0
        self.pump: Pump[str, str] = Pump(
            Reducers(self.evolve, self.plan), self.perform, self.clock, workers=workers,
            record=lambda at, fact: self.recorded.append((at, fact)),
        )  # fmt: skip

    def evolve(self, fact: str, _at: float) -> set[str]:
        key, _, text = fact.partition(":")
        if text:
            self.pending.setdefault(key, []).append(text)
        return {key}

    def plan(self, key: str, _at: float) -> Decision:
        self.planned.append(key)
        if key in self.broken:
            raise RuntimeError(key)
        return Decision(tuple(note(t) for t in self.pending.pop(key, [])), self.wake.pop(key, None))

    async def perform(self, key: str, effect: Effect) -> tuple[str | None, bool]:
        self.running += 1
        self.most = max(self.most, self.running)
        if key in self.gate:
            await self.gate[key].wait()
        assert isinstance(effect, Note)
        self.performed.append((key, effect.message))
        self.running -= 1
        return self.outcome(effect.message)


@pytest.fixture
async def bench() -> Any:
    tasks = Supervisor("test")
    found = Bench()
    tasks.once("pump", found.pump.run())
    yield found
    await tasks.close()


async def test_facts_are_folded_at_once_and_recorded(bench: Bench) -> None:
    bench.pump.offer("a:1")

    assert bench.pending == {"a": ["1"]}
    assert bench.recorded == [(bench.clock.at, "a:1")]


async def test_many_facts_of_one_key_are_one_round(bench: Bench) -> None:
    for number in range(100):
        bench.pump.offer(f"a:{number}")
    await until(lambda: bench.pump.idle)

    assert bench.planned == ["a"]
    assert len(bench.performed) == 100


async def test_one_key_is_never_worked_on_twice_at_once(bench: Bench) -> None:
    bench.gate["a"] = asyncio.Event()
    bench.pump.offer("a:1")
    await until(lambda: bench.running == 1)
    bench.pump.offer("a:2")
    bench.pump.offer("a:3")
    await asyncio.sleep(0)
    assert bench.planned == ["a"]

    bench.gate["a"].set()
    await until(lambda: bench.pump.idle)
    assert bench.planned == ["a", "a"]
    assert [text for _, text in bench.performed] == ["1", "2", "3"]


async def test_other_keys_go_on_meanwhile(bench: Bench) -> None:
    bench.gate["a"] = asyncio.Event()
    bench.pump.offer("a:1")
    for key in "bcdef":
        bench.pump.offer(f"{key}:x")
    await until(lambda: len(bench.performed) == 5)

    assert {key for key, _ in bench.performed} == set("bcdef")
    bench.gate["a"].set()


async def test_no_more_at_once_than_there_are_workers(bench: Bench) -> None:
    for key in "abcdefgh":
        bench.gate[key] = asyncio.Event()
        bench.pump.offer(f"{key}:x")
    await until(lambda: bench.running == 4)
    for gate in bench.gate.values():
        gate.set()
    await until(lambda: bench.pump.idle)

    assert bench.most == 4
    assert len(bench.performed) == 8


async def test_a_refusal_ends_the_round_and_its_outcome_is_a_fact(bench: Bench) -> None:
    bench.outcome = lambda text: ("a:after", False) if text == "1" else (None, True)
    bench.pump.offer("a:1")
    bench.pump.offer("a:2")
    await until(lambda: bench.pump.idle)

    assert [text for _, text in bench.performed] == ["1", "after"]


async def test_a_key_looks_again_when_it_asked_to(bench: Bench) -> None:
    bench.wake["a"] = bench.clock.at + 10
    bench.pump.offer("a")
    await until(lambda: bench.planned == ["a"])
    assert bench.pump.next_timer == bench.clock.at + 10

    bench.clock.at += 9
    bench.pump.fire()
    await until(lambda: bench.pump.idle)
    assert bench.planned == ["a"]

    bench.clock.at += 1
    bench.pump.fire()
    await until(lambda: bench.planned == ["a", "a"])
    assert bench.pump.next_timer is None


async def test_a_later_round_replaces_the_timer(bench: Bench) -> None:
    bench.wake["a"] = bench.clock.at + 10
    bench.pump.offer("a")
    await until(lambda: bench.planned == ["a"])
    bench.wake["a"] = bench.clock.at + 50
    bench.pump.offer("a")
    await until(lambda: bench.planned == ["a", "a"])

    bench.clock.at += 20
    bench.pump.fire()
    await until(lambda: bench.pump.idle)
    assert bench.planned == ["a", "a"]


async def test_a_plan_that_fails_is_counted_and_tried_again_later(bench: Bench) -> None:
    before = metrics.value_of("flexinfer_controller_reconciles_total", {"result": "error"})
    bench.broken.add("a")
    bench.pump.offer("a:1")
    bench.pump.offer("b:1")
    await until(lambda: bench.pump.idle)
    assert bench.performed == [("b", "1")]
    assert metrics.value_of("flexinfer_controller_reconciles_total", {"result": "error"}) == before + 1

    bench.broken.clear()
    bench.clock.at += ERROR_SECONDS
    bench.pump.fire()
    await until(lambda: ("a", "1") in bench.performed)


async def test_it_stops_with_what_it_was_doing_and_can_start_again() -> None:
    bench = Bench()
    bench.gate["a"] = asyncio.Event()
    first = Supervisor("first")
    first.once("pump", bench.pump.run())
    bench.pump.offer("a:1")
    await until(lambda: bench.running == 1)
    await first.close()
    assert bench.performed == []

    bench.gate.clear()
    second = Supervisor("second")
    second.once("pump", bench.pump.run())
    bench.pump.offer("a:2")
    await until(lambda: ("a", "2") in bench.performed)
    await second.close()


async def test_a_follower_folds_and_does_nothing() -> None:
    bench = Bench()
    bench.pump.offer("a:1")
    await asyncio.sleep(0)

    assert (bench.planned, bench.pending) == ([], {"a": ["1"]})
