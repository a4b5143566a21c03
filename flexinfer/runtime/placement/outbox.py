"""Decisions on their way out: an event on the bus for each attempt and one line on the pod itself."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Literal, Protocol

from msgspec import UnsetType

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import PlacementDecided
from flexinfer.contracts.kubernetes import PODS, Object
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.explanation import sentence
from flexinfer.ports import Bus
from flexinfer.runtime.journal import Journal, Tick
from flexinfer.telemetry import metrics

BEAT_SECONDS = 0.5
SEND_SECONDS = 0.004
LINE_SECONDS = 0.1
QUIET_SECONDS = 0.1
PATIENCE = 20  # times as long, and a line goes out in the middle of a burst
MAX_LINES = 2000

_DECISIONS = metrics.counter("flexinfer_scheduler_decisions_total", "Placement decisions published.", ("outcome",))
_COALESCED = metrics.counter(
    "flexinfer_scheduler_decisions_coalesced_total",
    "Decisions not published because the pod was decided again first, or too many waited.",
)

_SHADOW = metrics.counter(
    "flexinfer_scheduler_shadow_decisions_total",
    "Decisions that other weights were tried on, by whether these led to the same node.",
    ("same",),
)


class Recorder(Protocol):
    """Kubernetes Events."""

    def emit(self, regarding: Object, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:  # noqa: A002 - the API's own name
        """Queue one; never raises."""
        ...


class DecisionOutbox:
    """Publishes what the desk decided, after the answer has left."""

    def __init__(
        self,
        desk: Desk,
        bus: Bus,
        mint: EventMint,
        recorder: Recorder,
        now: Callable[[], float],
        journal: Journal | None = None,
    ) -> None:
        self._desk = desk
        self._journal = journal
        self._bus = bus
        self._mint = mint
        self._recorder = recorder
        self._now = now
        self._wake = asyncio.Event()
        self._lines: deque[PlacementDecided] = deque(maxlen=MAX_LINES)
        self._line = asyncio.Event()
        self._asked_at = -inf

    def wake(self) -> None:
        """A request was answered; something may have been decided."""
        self._asked_at = self._now()
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled; attempts whose ranking was never asked for are decided on the way."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            self._flush()
            while (decided := self._desk.take()) is not None:
                await self._send(decided)
                # Requests come first: one decision per round of the event loop, and a bounded number per second.
                await asyncio.sleep(SEND_SECONDS)

    def _flush(self) -> None:
        now = self._now()
        if self._desk.overdue(now):
            if self._journal is not None:
                self._journal.write(now, Tick())
            self._desk.flush(now)
        if self._journal is not None:
            self._journal.flush()
        if self._desk.coalesced:
            _COALESCED.inc(self._desk.coalesced)
            self._desk.coalesced = 0

    async def _send(self, decided: PlacementDecided) -> None:
        _DECISIONS.labels(decided.outcome).inc()
        if not isinstance(decided.shadow, UnsetType):
            _SHADOW.labels("yes" if decided.shadow.node == decided.candidates[0].node else "no").inc()
        await self._bus.publish(self._mint.mint(decided))
        self._lines.append(decided)
        self._line.set()

    async def tell_pods(self) -> None:
        """Until cancelled: one line on each pod, paced and rather between bursts than in them, because each is a write
        that the API server does not spend on bindings."""
        while True:
            await self._line.wait()
            while self._lines:
                await self._quiet()
                self._tell(self._lines.popleft())
                await asyncio.sleep(LINE_SECONDS)
            self._line.clear()

    async def _quiet(self) -> None:
        for _ in range(PATIENCE):
            if not 0 <= self._now() - self._asked_at < QUIET_SECONDS:
                return
            await asyncio.sleep(QUIET_SECONDS)

    def _tell(self, decided: PlacementDecided) -> None:
        reference: Object = {
            "apiVersion": PODS.api_version,
            "kind": PODS.kind,
            "metadata": {"namespace": decided.namespace, "name": decided.pod, "uid": decided.pod_uid},
        }
        kind: Literal["Normal", "Warning"] = "Warning" if decided.outcome == "rejected" else "Normal"
        reason = "PlacementRejected" if decided.outcome == "rejected" else "PlacementRanked"
        self._recorder.emit(reference, kind, reason, sentence(decided))
