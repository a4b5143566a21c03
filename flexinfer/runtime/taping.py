"""Tapes of executables that decide nothing by themselves: what they were told, and what they said."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar

from flexinfer.config.common import RecordSettings
from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import EventData
from flexinfer.ports import Bus, BusFact, KubeFact, Subscription
from flexinfer.runtime.journal import Journal
from flexinfer.runtime.parts import journal_with

Told = TypeVar("Told", BusFact, KubeFact)


class Tape:
    """Where one process writes, or nowhere."""

    def __init__(self, journal: Journal | None, now: Callable[[], float]) -> None:
        self._journal = journal
        self._now = now

    @classmethod
    def open(
        cls, settings: RecordSettings, component: str, instance: str, now: Callable[[], float], stack: AsyncExitStack
    ) -> "Tape":
        """As ``--record`` says; closed with ``stack``. Raises OSError."""
        return cls(journal_with(stack, settings, component, instance, now()), now)

    def write(self, fact: BusFact | KubeFact) -> None:
        """One fact; never raises."""
        if self._journal is not None:
            self._journal.write(self._now(), fact)

    def sink(self, sink: Callable[[Told], None]) -> Callable[[Told], None]:
        """A sink that writes down what it is given, then hands it on."""
        if self._journal is None:
            return sink

        def write_first(fact: Told) -> None:
            self.write(fact)
            sink(fact)

        return write_first

    def bus(self, bus: Bus) -> Bus:
        """The bus with everything said and heard on it written down."""
        return bus if self._journal is None else TapedBus(bus, self)


class TapedBus:
    """ports.Bus over another one."""

    def __init__(self, bus: Bus, tape: Tape) -> None:
        self._bus = bus
        self._tape = tape

    async def publish(self, event: Event, *, durable: bool = False) -> None:
        """See Bus; written before it is sent."""
        self._tape.write(event)
        await self._bus.publish(event, durable=durable)

    async def follow(
        self, types: Sequence[type[EventData]], sink: Callable[[BusFact], None], names: Sequence[str] = ()
    ) -> Subscription:
        """See Bus."""
        return await self._bus.follow(types, self._tape.sink(sink), names)

    async def state(self, types: Sequence[type[EventData]], names: Sequence[str] = ()) -> tuple[Event, ...]:
        """See Bus."""
        found = await self._bus.state(types, names)
        for event in found:
            self._tape.write(event)
        return found

    async def history(self, since: float | None = None, *, follow: bool = False) -> AsyncIterator[Event]:
        """See Bus. The past is in the log of the bus already and not written again."""
        return await self._bus.history(since, follow=follow)

    async def ensure(self) -> None:
        """See Bus."""
        await self._bus.ensure()

    @property
    def connected(self) -> bool:
        """See Bus."""
        return self._bus.connected

    def on_connect(self, tell: Callable[[], None]) -> None:
        """See Bus."""
        self._bus.on_connect(tell)

    async def close(self) -> None:
        """See Bus."""
        await self._bus.close()
