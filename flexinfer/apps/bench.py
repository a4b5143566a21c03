"""``flexinfer-bench``: measure one engine instance with real requests, publish a whole result or the reason for none.

The outcome goes to the termination log first, because that needs nobody else, then to the bus. Exit codes are
those of core.benchmark.failures.
"""

import asyncio
import logging
import secrets
from pathlib import Path

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.inference.client import OpenAIClient
from flexinfer.adapters.inference.driver import Driver, Target
from flexinfer.config.bench import BenchSettings
from flexinfer.contracts import events
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.termination import Outcome, encode_outcome
from flexinfer.core.benchmark.failures import EXIT_DONE, EXIT_STOPPED, EXIT_UNDELIVERED, failed, kind_of
from flexinfer.core.benchmark.findings import Unusable
from flexinfer.core.benchmark.prompts import request_options
from flexinfer.core.benchmark.summary import Subject, started, summarise
from flexinfer.ports import Bus, BusRefused, BusUnavailable
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.process import boot_id, stop_signals
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

_DELIVERY_SECONDS = 15.0


async def run(settings: BenchSettings) -> int:
    """One measurement; the exit code."""
    clock = SystemClock()
    bus: Bus | None = None
    if settings.nats_url:
        bus = await NatsBus.start(
            settings.nats_url,
            name=f"flexinfer-bench {settings.key}",
            cluster=settings.cluster,
            credentials=settings.nats_credentials,
            ca=settings.nats_ca,
            clock=clock,
        )
    try:
        return await measure(settings, bus, stop_signals())
    finally:
        if bus is not None:
            await bus.close()


async def measure(settings: BenchSettings, bus: Bus | None, stop: asyncio.Event) -> int:
    """Measure until done or ``stop``; a stopped run leaves nothing behind."""
    subject = settings.subject()
    report = _Report(settings, subject, bus)
    tasks = Supervisor("bench")
    work = tasks.once("measure", _outcome(settings, subject, report))
    stopping = tasks.once("stop", stop.wait())
    try:
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            log.warning("stopped before the end: no result")
            return EXIT_STOPPED
        outcome: Outcome = work.result()
    finally:
        await tasks.close()
    return await report.deliver(outcome)


async def _outcome(settings: BenchSettings, subject: Subject, report: "_Report") -> Outcome:
    try:
        return await _result(settings, subject, report)
    except Unusable as err:
        return failed(subject, err.reason, str(err))


async def _result(settings: BenchSettings, subject: Subject, report: "_Report") -> events.BenchCompleted:
    try:
        plan = settings.plan()
    except ValueError as err:
        raise Unusable("BadSettings", str(err)) from err
    client = OpenAIClient(
        settings.url, api=settings.api, timeout=settings.request_timeout, api_key=settings.api_key, ca=settings.ca
    )
    seed = settings.seed or secrets.randbits(62)
    target = Target(
        client=client,
        model=settings.model,
        clock=SystemClock(),
        options=request_options(settings.backend, seed),
        seed=seed,
        ready_timeout=settings.ready_timeout,
        time_limit=settings.time_limit,
    )
    try:
        await client.open()
    except OSError as err:
        raise Unusable("BadSettings", f"the CA file {settings.ca} cannot be used: {err.strerror or err}") from err
    try:
        driver = Driver(target, plan, subject.key, report.sample)
        waited = await driver.ready()
        log.info("%s answers after %.1f s, measuring", settings.model, waited)
        await report.send(started(subject, plan))
        found = await driver.run()
    finally:
        await client.close()
    return summarise(
        subject, plan, found.results, found.seconds, notes=found.notes, cost_per_hour=settings.cost_per_hour
    )


class _Report:
    """Tells the bus and the termination log."""

    def __init__(self, settings: BenchSettings, subject: Subject, bus: Bus | None) -> None:
        self._path: Path = settings.termination_log
        self._bus = bus
        boot = boot_id()
        # The boot is part of the instance: two attempts of one Job are two sources.
        self._mint = EventMint.start("bench", subject.key, boot, SystemClock().now, settings.cluster)
        self._samples: set[asyncio.Task[None]] = set()
        self._tasks = Supervisor("samples")

    def sample(self, sample: events.BenchSample) -> None:
        log.info(
            "%s %d at concurrency %d: %.2f tokens/s",
            "warm-up" if sample.warmup else "iteration",
            sample.iteration + 1,
            sample.concurrency,
            sample.tokens_per_second,
            extra={"always": True},
        )
        if self._bus is not None:
            self._tasks.once("sample", self.send(sample))

    async def send(self, data: events.EventData, *, durable: bool = False) -> bool:
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
        """Both ways out; the exit code."""
        noted = self._note(outcome)
        sent = await self.send(outcome, durable=True)
        await self._tasks.close()
        if isinstance(outcome, events.BenchFailed):
            log.error("%s: %s. %s", outcome.reason, outcome.message, outcome.remedy)
            return kind_of(outcome.reason).exit_code
        log.info("%.2f tokens/s over %d iterations", outcome.tokens_per_second, outcome.iterations)
        return EXIT_DONE if noted or sent else EXIT_UNDELIVERED

    def _note(self, outcome: Outcome) -> bool:
        try:
            # One write of less than a page: a kill leaves all of it or nothing.
            self._path.write_bytes(encode_outcome(outcome))
        except OSError as err:
            log.warning("cannot write %s: %s", self._path, err.strerror)
            return False
        return True
