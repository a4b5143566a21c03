"""The manager's loop: one view, one pump, fed by informers and the bus; acts only while it leads."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from flexinfer.contracts.events import (
    BenchCompleted,
    BenchDrifted,
    BenchFailed,
    EventData,
    ModelDemand,
    ModelEndpoint,
    ModelLoad,
    ModelPhase,
    NodeHardware,
    NodeStatus,
    NodeTelemetry,
    PlacementDecided,
)
from flexinfer.core.effects import Decision
from flexinfer.core.lifecycle.description import ModelKey
from flexinfer.core.lifecycle.plan import plan
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.lifecycle.view import RECORDS, LifecycleView
from flexinfer.ports import Bus, BusFact, BusRefused, BusUnavailable, Clock
from flexinfer.runtime.effect_lines import key_text
from flexinfer.runtime.figures import Figures
from flexinfer.runtime.interpreter import Interpreter
from flexinfer.runtime.journal import Journal, Tick
from flexinfer.runtime.lifecycle import Fact, evolve
from flexinfer.runtime.pump import Pump, Reducers

log = logging.getLogger(__name__)

FLEET: tuple[type[EventData], ...] = (NodeHardware, NodeStatus, NodeTelemetry, PlacementDecided)
RESULTS: tuple[type[EventData], ...] = (BenchCompleted, BenchFailed, BenchDrifted)
USE: tuple[type[EventData], ...] = (ModelDemand, ModelLoad)
OWN: tuple[type[EventData], ...] = (ModelPhase, ModelEndpoint)

PROVISION_AGAIN = 2.0
PROVISION_SECONDS = 10.0  # somebody may have deleted a stream by hand, and nobody is told of that
FLEET_SECONDS = 5.0  # how long a fresh process waits for the bus to tell of the fleet before it decides without


class Manager:
    """View, pump and what connects them. Followers fold everything and plan nothing."""

    def __init__(
        self,
        policy: Policy,
        interpreter: Interpreter,
        bus: Bus,
        clock: Clock,
        *,
        workers: int = 16,
        journal: Journal | None = None,
    ) -> None:
        self.view = LifecycleView(policy)
        self._patient_until = clock.now() + FLEET_SECONDS
        self._interpreter = interpreter
        self._bus = bus
        self._figures = Figures()
        self._journal = journal
        self._connected = asyncio.Event()
        self.pump: Pump[Fact, ModelKey] = Pump(
            Reducers(self._evolve, self._plan),
            interpreter.perform,
            clock,
            workers=workers,
            record=journal.write if journal else None,
        )

    def _evolve(self, fact: Fact, at: float) -> set[ModelKey]:
        keys = evolve(self.view, fact, at)
        self._figures.note(self.view, fact)
        return keys

    def _plan(self, key: ModelKey, at: float) -> Decision:
        if not self.view.fleet_seen and at < self._patient_until:
            return Decision(wake_at=self._patient_until)
        self.view.bus_up = self._bus.connected
        if self._journal is not None:
            self._journal.write(at, Tick(key=key_text(key), bus_up=self.view.bus_up, boot=self.view.boot))
        return plan(self.view, key, at)

    async def act(self) -> None:
        """Plan and perform until cancelled, beginning with every key: whatever was left undone is done."""
        self.view.boot = self._interpreter.begin()
        self.pump.mark({RECORDS, *self.view.models})
        await self.pump.run()

    async def follow(self, *others: tuple[Sequence[type[EventData]], Callable[[BusFact], None]]) -> None:
        """Provision the bus, again after each reconnect and now and then, and follow it, until cancelled.

        ``others``: more sinks.
        """
        self._bus.on_connect(self._connected.set)
        await self._connected.wait()
        await self._ensure()
        mine = [(types, self.pump.offer) for types in (FLEET, RESULTS, USE, OWN)]
        for types, sink in (*mine, *others):
            await self._bus.follow(types, sink)
        while True:
            self._connected.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(PROVISION_SECONDS):
                    await self._connected.wait()
            if self._bus.connected:
                await self._ensure()

    async def _ensure(self) -> None:
        """Buckets and stream exist with our limits; others wait for them."""
        while True:
            try:
                await self._bus.ensure()
            except (BusUnavailable, BusRefused) as err:
                log.warning("the bus is not provisioned yet: %s", err)
                await asyncio.sleep(PROVISION_AGAIN)
            else:
                return
