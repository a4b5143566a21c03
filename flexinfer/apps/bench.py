"""``flexinfer-bench``: measure one engine instance with real requests, publish a whole result or the reason for none.

The outcome goes to the termination log first, because that needs nobody else, then to the bus. Exit codes are
those of core.benchmark.failures.
"""

import asyncio
import logging
from contextlib import AsyncExitStack

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.inference.report import Report
from flexinfer.adapters.inference.session import Listener, measure_server
from flexinfer.config.bench import BenchSettings
from flexinfer.contracts import events
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import ModelEndpoint, NodeHardware, NodeTelemetry
from flexinfer.contracts.termination import Outcome
from flexinfer.core.benchmark.energy import demanded_count, joules_per_token
from flexinfer.core.benchmark.failures import (
    EXIT_SETTINGS,
    EXIT_STOPPED,
    failed,
)
from flexinfer.core.benchmark.findings import Unusable
from flexinfer.core.benchmark.summary import Subject, started, summarise
from flexinfer.core.benchmark.witness import Witness
from flexinfer.ports import Bus, BusFact, BusRefused, BusUnavailable, Snapshot
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.process import boot_id, fail, stop_signals
from flexinfer.runtime.taping import Tape
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

_LOOK_SECONDS = 10.0


async def run(settings: BenchSettings) -> int:
    """One measurement; the exit code."""
    async with AsyncExitStack() as stack:
        try:
            bus = await _bus(settings, stack)
        except ValueError as err:
            return fail(f"flexinfer-bench: {err}", EXIT_SETTINGS)
        return await measure(settings, bus, stop_signals())


async def _bus(settings: BenchSettings, stack: AsyncExitStack) -> Bus | None:
    """Raises ValueError for credentials that cannot be used, OSError if no tape can be written."""
    clock = SystemClock()
    tape = Tape.open(settings, "bench", settings.subject().key, clock.now, stack)
    if not settings.nats_url:
        return None
    bus = await NatsBus.of(settings, f"flexinfer-bench {settings.subject().key}", clock)
    stack.push_async_callback(bus.close)
    return tape.bus(bus)


async def measure(settings: BenchSettings, bus: Bus | None, stop: asyncio.Event) -> int:
    """Measure until done or ``stop``; a stopped run leaves nothing behind."""
    subject = settings.subject()
    # The boot is part of every event's identity: two attempts of one Job are two sources.
    mint = EventMint.start("bench", subject.key, boot_id(), SystemClock().now, settings.cluster)
    report = Report(mint, bus, settings.termination_log)
    tasks = Supervisor("bench")
    watch = _Watch(bus, Witness(subject.namespace, settings.model, subject.node), tasks)
    work = tasks.once("measure", _outcome(settings, subject, report, watch))
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


async def _outcome(settings: BenchSettings, subject: Subject, report: Report, watch: "_Watch") -> Outcome:
    try:
        return await _result(settings, subject, report, watch)
    except Unusable as err:
        return failed(watch.witness.located(subject), err.reason, str(err))


async def _result(settings: BenchSettings, subject: Subject, report: Report, watch: "_Watch") -> events.BenchCompleted:
    async def ready(plan: events.BenchSettings, waited: float) -> None:
        log.info("%s answers after %.1f s, measuring", settings.model, waited)
        await watch.look()
        watch.witness.check(subject.device_class)
        if demanded_count(subject.device_class):
            watch.power()
        await report.send(started(watch.witness.located(subject), plan))

    plan, found = await measure_server(
        settings, subject.backend, subject.key, SystemClock(), Listener(ready, report.sample)
    )
    if watch.witness.hardware is None:
        # A bus that was away or late before: the mark of a virtual node and the check of its class need it.
        await watch.look()
        watch.witness.check(subject.device_class)
    headline = next(r for r in found.results if r.stage.kind == "headline")
    return summarise(
        watch.witness.located(subject),
        plan,
        found.results,
        found.seconds,
        notes=[*filter(None, [settings.note]), *found.notes],
        joules_per_token=joules_per_token(
            watch.witness.samples,
            demanded_count(subject.device_class),
            (headline.began, headline.ended),
            sum(m.completion_tokens for m in headline.measured),
        ),
        cost_per_hour=settings.cost_per_hour,
    )


class _Watch:
    """Facts of the node that serves, as far as this credential may read them: a result does not need them."""

    def __init__(self, bus: Bus | None, witness: Witness, tasks: Supervisor) -> None:
        self.witness = witness
        self._bus = bus
        self._tasks = tasks

    async def look(self) -> None:
        """Which node it is and what it has; never during the measurement, which it would disturb."""
        if self._bus is None:
            return
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                for event in await self._bus.state((ModelEndpoint,), self.witness.name):
                    self.witness.fold(event)
                if self.witness.node:
                    for event in await self._bus.state((NodeHardware,), (self.witness.node,)):
                        self.witness.fold(event)
        except (BusUnavailable, BusRefused, TimeoutError) as err:
            log.info("no facts of the node: %s", str(err) or "no answer in time")

    def power(self) -> None:
        """Follow its telemetry in the background, and nobody else's: a fleet's would cost what is measured."""
        if self._bus is not None and self.witness.node:
            self._tasks.once("power", self._follow(self._bus, self.witness.node))

    async def _follow(self, bus: Bus, node: str) -> None:
        def sink(fact: BusFact) -> None:
            for event in fact.events if isinstance(fact, Snapshot) else (fact,):
                self.witness.fold(event)

        try:
            await bus.follow((NodeTelemetry,), sink, (node,))
        except (BusUnavailable, BusRefused) as err:
            log.info("no power readings: %s", err)
