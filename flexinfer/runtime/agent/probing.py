"""One loop per vendor: probe each interval, sample in between, and never wait for another vendor."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from flexinfer.contracts.events import Vendor
from flexinfer.core.hardware.findings import Attempt, Findings, tidied, with_live
from flexinfer.core.hardware.steady import Steady
from flexinfer.ports import Clock, HardwareSource
from flexinfer.runtime.agent.board import Board
from flexinfer.runtime.tasks import Supervisor
from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

SMALLEST_TICK = 0.25
TICKS_PER_PERIOD = 4
STALE_PERIODS = 3

_SECONDS = metrics.histogram(
    "flexinfer_agent_probe_duration_seconds",
    "Time one source took to answer a probe.",
    ("source",),
    (0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 20),
)
_ERRORS = metrics.counter(
    "flexinfer_agent_probe_errors_total", "Sources that failed in a probe, by short reason.", ("source", "reason")
)


def count_attempts(attempts: Sequence[Attempt]) -> None:
    """Metrics of one probe; a tool that is not installed is no error."""
    for attempt in attempts:
        if attempt.outcome in {"ok", "nothing", "failed", "timeout"}:
            _SECONDS.labels(source=attempt.source).observe(attempt.seconds)
        if attempt.outcome in {"failed", "timeout"}:
            _ERRORS.labels(source=attempt.source, reason=attempt.reason or attempt.outcome).inc()


class Prober:
    """Runs every source. The board hears of the first probes together, or of those that are back after ``interval``."""

    def __init__(self, board: Board, sources: Sequence[HardwareSource], clock: Clock) -> None:
        self._board = board
        self._sources = sources
        self._clock = clock
        self._steady: dict[Vendor, Steady] = {source.vendor: Steady() for source in sources}
        self._early: dict[Vendor, Findings] = {}
        self._attempts: dict[Vendor, tuple[Attempt, ...]] = {}
        self._begun = False
        self._all_back = asyncio.Event()

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """What was tried last, in the order of the sources."""
        return tuple(attempt for source in self._sources for attempt in self._attempts.get(source.vendor, ()))

    async def once(self, tasks: Supervisor) -> None:
        """Probe every source side by side and settle the board."""
        work = [tasks.once(f"probe {source.vendor}", self._probe(source)) for source in self._sources]
        if work:
            await asyncio.wait(work)
        self._begin()

    def start(self, tasks: Supervisor) -> None:
        """One loop per source until ``tasks`` is closed."""
        for source in self._sources:
            tasks.forever(f"probe {source.vendor}", partial(self._loop, source))
        tasks.once("first probes", self._first())

    async def _first(self) -> None:
        if self._sources:
            try:
                async with asyncio.timeout(max(self._board.station.interval, SMALLEST_TICK)):
                    await self._all_back.wait()
            except TimeoutError:
                missing = [source.vendor for source in self._sources if source.vendor not in self._early]
                log.warning("the first probe of %s is not back yet, going on without", ", ".join(missing))
        self._begin()

    def _begin(self) -> None:
        self._begun = True
        self._board.settle(self._early.values())

    async def _probe(self, source: HardwareSource) -> None:
        found = tidied(await source.find())
        count_attempts(found.attempts)
        self._attempts[source.vendor] = found.attempts
        steady = self._steady[source.vendor].take(found)
        self._note(source.vendor, steady)
        if self._begun:
            self._board.settle([steady])
            return
        self._early[source.vendor] = steady
        if len(self._early) == len(self._sources):
            self._all_back.set()

    def _note(self, vendor: Vendor, found: Findings) -> None:
        if found.fault is None:
            self._board.errors.pop(vendor, None)
        else:
            self._board.errors[vendor] = f"{vendor}: {found.fault.reason}"

    async def _loop(self, source: HardwareSource) -> None:
        station = self._board.station
        sampled_at = self._clock.monotonic()
        probe_at = sampled_at
        while True:
            now = self._clock.monotonic()
            if now >= probe_at:
                await self._probe(source)
                sampled_at = self._clock.monotonic()
                probe_at = max(probe_at + station.interval, sampled_at + SMALLEST_TICK)
            elif await self._sample(source, now - sampled_at):
                sampled_at = self._clock.monotonic()
            await asyncio.sleep(self._pause(source, probe_at - self._clock.monotonic()))

    def _pause(self, source: HardwareSource, until_probe: float) -> float:
        """Seconds to the next look: the next probe, or the next sample if the source has something to sample."""
        if source.period is None:
            return max(0.01, until_probe)
        tick = max(SMALLEST_TICK, self._board.station.telemetry_interval / TICKS_PER_PERIOD)
        return max(0.01, min(until_probe, max(tick, source.period)))

    async def _sample(self, source: HardwareSource, age: float) -> bool:
        """Newer figures on the board; figures that could not be renewed for three periods become unknown."""
        known = self._board.findings.get(source.vendor)
        live = await source.sample()
        if known is None:
            return False
        if live is not None:
            self._board.findings[source.vendor] = with_live(known, live)
            return True
        if age > STALE_PERIODS * max(self._board.station.telemetry_interval, source.period or 0.0):
            self._board.findings[source.vendor] = with_live(known, {})
        return False
