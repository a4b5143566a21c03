"""Watching a bus in tests: a consumer that folds as the product's consumers do, and waiting with a deadline."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from flexinfer.contracts.envelope import Event, EventMint
from flexinfer.contracts.topics import order_key
from flexinfer.core.fleet.view import OrderBook
from flexinfer.ports import BusFact, Snapshot

DEADLINE = 60.0


class ManualClock:
    """ports.Clock moved by hand."""

    def __init__(self, at: float = 1_700_000_000.0) -> None:
        self.at = at

    def now(self) -> float:
        """Unix seconds."""
        return self.at

    def monotonic(self) -> float:
        """The same number."""
        return self.at


class Reader:
    """A sink for ``Bus.follow``: a snapshot replaces, repeats are dropped, retractions remove."""

    def __init__(self) -> None:
        self.facts: list[BusFact] = []
        self._held: dict[str, Event] = {}
        self._order = OrderBook()

    def __call__(self, fact: BusFact) -> None:
        """One fact."""
        self.facts.append(fact)
        if isinstance(fact, Snapshot):
            self._held.clear()
            self._order = OrderBook()
            for event in fact.events:
                self._fold(event)
        else:
            self._fold(fact)

    def _fold(self, event: Event) -> None:
        key = order_key(event.data)
        if not self._order.accept(key, event):
            return
        if getattr(event.data, "gone", False):
            self._held.pop(key, None)
        else:
            self._held[key] = event

    @property
    def snapshots(self) -> list[Snapshot]:
        """Snapshots seen, in order."""
        return [fact for fact in self.facts if isinstance(fact, Snapshot)]

    @property
    def events(self) -> list[Event]:
        """Events seen outside snapshots, repeats included."""
        return [fact for fact in self.facts if isinstance(fact, Event)]

    def state(self) -> list[Any]:
        """Payloads as they stand now, in no particular order."""
        return [event.data for event in self._held.values()]


async def until(condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
    """Return once the condition holds; looks every few milliseconds. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition is any state, nothing announces it
            await asyncio.sleep(0.005)


def stepping_mint(instance: str = "n1", boot: str = "b1", component: str = "agent") -> EventMint:
    """A mint whose clock grows by one second per event."""
    return EventMint.start(component, instance, boot, _seconds().__next__)


def _seconds() -> Iterator[float]:
    at = 1_700_000_000.0
    while True:
        at += 1.0
        yield at
