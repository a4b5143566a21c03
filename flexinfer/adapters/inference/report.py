"""Where a benchmark's events go: the bus, and the termination log of its container."""

import asyncio
import logging
from pathlib import Path

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import BenchFailed, BenchSample, EventData
from flexinfer.contracts.termination import Outcome, encode_outcome
from flexinfer.core.benchmark.failures import EXIT_DONE, EXIT_UNDELIVERED, kind_of
from flexinfer.ports import Bus, BusRefused, BusUnavailable

log = logging.getLogger(__name__)

_DELIVERY_SECONDS = 15.0


class Report:
    """Tells the bus, if there is one, and the termination log."""

    def __init__(self, mint: EventMint, bus: Bus | None, path: Path) -> None:
        self._mint = mint
        self._bus = bus
        self._path = path

    async def sample(self, sample: BenchSample) -> None:
        """One finished request."""
        log.info(
            "%s %d at concurrency %d: %.2f tokens/s",
            "warm-up" if sample.warmup else "iteration",
            sample.iteration + 1,
            sample.concurrency,
            sample.tokens_per_second,
        )
        await self.send(sample)

    async def send(self, data: EventData, *, durable: bool = False) -> bool:
        """Publish; tells whether the bus took it, which is certain only when ``durable``."""
        if self._bus is None:
            return False
        try:
            async with asyncio.timeout(_DELIVERY_SECONDS):
                await self._bus.publish(self._mint.mint(data), durable=durable)
        except (BusUnavailable, BusRefused, TimeoutError) as err:
            log.warning("the bus did not take %s: %s", type(data).__name__, str(err) or "no answer in time")
            return False
        return True

    async def deliver(self, outcome: Outcome) -> int:
        """Both ways out, the one that needs nobody else first; the exit code."""
        noted = self._note(outcome)
        sent = await self.send(outcome, durable=True)
        if isinstance(outcome, BenchFailed):
            log.error("%s: %s. %s", outcome.reason, outcome.message, outcome.remedy)
            return kind_of(outcome.reason).exit_code
        log.info("%.2f tokens/s over %d iterations", outcome.tokens_per_second, outcome.iterations)
        return EXIT_DONE if noted or sent else EXIT_UNDELIVERED

    def _note(self, outcome: Outcome) -> bool:
        try:
            # One write of less than a page: a kill leaves all of it or nothing. The file is a mount in a
            # container, so it cannot be replaced by a rename.
            self._path.write_bytes(encode_outcome(outcome))
        except OSError as err:
            log.warning("cannot write %s: %s", self._path, err.strerror)
            return False
        return True
