"""The agent's events: hardware at start, on change and every ten minutes; telemetry each period and on a jump;
status at each transition."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import EventData, NodeState, NodeStatus, NodeTelemetry
from flexinfer.core.hardware.machine import Memory
from flexinfer.core.hardware.telling import jumped, telemetry_event
from flexinfer.ports import Clock, Publisher
from flexinfer.runtime.agent.board import Board
from flexinfer.runtime.agent.gauges import Gauges
from flexinfer.telemetry import metrics

HARDWARE_EVERY = 600.0
SMALLEST_TICK = 0.25
TICKS_PER_PERIOD = 4

_PUBLISHED = metrics.counter("flexinfer_agent_events_total", "Events handed to the bus.", ("type",))


class Teller:
    """Publishes one node's events. Without a bus (dry run) it only keeps the board current."""

    def __init__(self, board: Board, mint: EventMint, bus: Publisher | None, clock: Clock) -> None:
        self._board = board
        self._mint = mint
        self._bus = bus
        self._clock = clock
        self._state: tuple[NodeState, str] | None = None
        self._gauges = Gauges(board.station.node)
        self._due = 0.0

    async def tell(self, data: EventData) -> None:
        """One event; never blocks on a bus that is away."""
        _PUBLISHED.labels(type=type(data).__name__).inc()
        if self._bus is not None:
            await self._bus.publish(self._mint.mint(data))

    async def hardware(self) -> None:
        """Until cancelled."""
        changed = self._board.listen()
        if self._board.hardware is None:
            await changed.wait()
        while True:
            changed.clear()
            if self._board.hardware is not None:
                await self.tell(self._board.hardware)
            with suppress(TimeoutError):
                async with asyncio.timeout(HARDWARE_EVERY):
                    await changed.wait()

    async def telemetry(self, busy: Callable[[], float | None], memory: Callable[[], Memory]) -> None:
        """Until cancelled. ``busy`` gives the processors' utilisation since its last call."""
        tick = max(SMALLEST_TICK, self._board.station.telemetry_interval / TICKS_PER_PERIOD)
        busy()
        while True:
            await asyncio.sleep(tick)
            await self.offer(self.reading(busy(), memory()))

    def reading(self, cpu_util: float | None, memory: Memory) -> NodeTelemetry:
        """The figures of this moment."""
        station = self._board.station
        return telemetry_event(
            station.node,
            station.telemetry_interval,
            self._board.units,
            cpu_util=cpu_util,
            memory_free_mib=memory.available_mib,
            engines=self._board.engines,
            errors=tuple(self._board.errors.values()),
        )

    async def offer(self, now: NodeTelemetry) -> None:
        """Tell it if the period is over or a figure jumped."""
        at = self._clock.monotonic()
        if at < self._due and not jumped(self._board.telemetry, now):
            return
        self._board.telemetry = now
        self._gauges.show(self._board.units, self._board.counted)
        period = self._board.station.telemetry_interval
        self._due = at + period - min(period, SMALLEST_TICK) / 2  # ticks are late by a little, never early
        await self.tell(now)

    async def status(self, state: NodeState, reason: str = "") -> None:
        """Say it if it is new."""
        if self._state == (state, reason):
            return
        self._state = (state, reason)
        await self.tell(NodeStatus(node=self._board.station.node, state=state, reason=reason))
