"""Lines on pods wait while kube-scheduler asks, but not for ever."""

import asyncio

import pytest

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import PlacementDecided
from flexinfer.runtime.placement import outbox
from flexinfer.runtime.placement.outbox import DecisionOutbox
from flexinfer.runtime.tasks import Supervisor


class Desk:
    coalesced = 0

    def __init__(self) -> None:
        self.decisions = [
            PlacementDecided(namespace="default", pod=f"p{number}", pod_uid="u", outcome="rejected", demand={})
            for number in range(3)
        ]

    def overdue(self, now: float) -> bool:
        return False

    def take(self) -> PlacementDecided | None:
        return self.decisions.pop(0) if self.decisions else None


class Bus:
    async def publish(self, event: object) -> None:
        pass


class Lines(list[str]):
    def emit(self, regarding, *_told) -> None:
        self.append(regarding["metadata"]["name"])


class Clock:
    at = 1_800_000_000.0

    def now(self) -> float:
        return self.at


@pytest.fixture
async def story(monkeypatch):
    monkeypatch.setattr(outbox, "LINE_SECONDS", 0)
    monkeypatch.setattr(outbox, "SEND_SECONDS", 0)
    clock, lines, desk = Clock(), Lines(), Desk()
    found = DecisionOutbox(desk, Bus(), EventMint.start("scheduler", "s", "b", clock.now), lines, clock.now)
    tasks = Supervisor("test")
    tasks.forever("decisions", found.run)
    tasks.forever("lines", found.tell_pods)
    yield found, clock, lines, desk
    await tasks.close()


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the state under test raises no event
            await asyncio.sleep(0.01)


async def test_no_line_while_requests_come_and_all_once_they_do_not(story, monkeypatch):
    monkeypatch.setattr(outbox, "PATIENCE", 1_000_000)
    found, clock, lines, desk = story
    found.wake()
    await until(lambda: not desk.decisions)
    for _ in range(20):
        await asyncio.sleep(0)
    assert lines == []

    clock.at += 1.0
    await until(lambda: len(lines) == 3)
    assert lines == ["p0", "p1", "p2"]


async def test_a_burst_without_end_holds_no_line_back_for_ever(story, monkeypatch):
    monkeypatch.setattr(outbox, "PATIENCE", 2)
    found, _, lines, _ = story
    found.wake()

    await until(lambda: len(lines) == 3)
