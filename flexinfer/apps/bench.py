"""``flexinfer-bench``: measure one engine instance with real requests, publish a whole result or the reason for none.

The outcome goes to the termination log first, because that needs nobody else, then to the bus. Exit codes are
those of core.benchmark.failures.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.inference.report import Report
from flexinfer.adapters.inference.session import Listener, measure_server
from flexinfer.config.bench import BenchSettings
from flexinfer.contracts import events
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import NodeHardware, NodeTelemetry
from flexinfer.contracts.termination import Outcome
from flexinfer.core.benchmark.energy import demanded_count, joules_per_token
from flexinfer.core.benchmark.failures import (
    EXIT_SETTINGS,
    EXIT_STOPPED,
    failed,
)
from flexinfer.core.benchmark.findings import StageResult, Unusable
from flexinfer.core.benchmark.summary import Subject, started, summarise
from flexinfer.core.benchmark.witness import Witness
from flexinfer.ports import Bus, BusFact, BusRefused, BusUnavailable, Snapshot
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.process import boot_id, fail, stop_signals
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)


async def run(settings: BenchSettings) -> int:
    """One measurement; the exit code."""
    bus: Bus | None = None
    if settings.nats_url:
        try:
            bus = await NatsBus.start(
                settings.nats_url,
                name="bench",
                cluster=settings.cluster,
                credentials=settings.nats_credentials,
                ca=settings.nats_ca,
                clock=SystemClock(),
            )
        except ValueError as err:
            return fail(f"flexinfer-bench: {err}", EXIT_SETTINGS)
    try:
        return await measure(settings, bus, stop_signals())
    finally:
        if bus is not None:
            await bus.close()


async def measure(settings: BenchSettings, bus: Bus | None, stop: asyncio.Event) -> int:
    """Measure until done or ``stop``; a stopped run leaves nothing behind."""
    subject = settings.subject()
    # The boot is part of every event's identity: two attempts of one Job are two sources.
    mint = EventMint.start("bench", subject.key, boot_id(), SystemClock().now, settings.cluster)
    report = Report(mint, bus, settings.termination_log)
    tasks = Supervisor("bench")
    witness = Witness(subject.node)
    if bus is not None and subject.node:
        tasks.once("witness", _watch(bus, witness))
    work = tasks.once("measure", _outcome(settings, subject, report, witness))
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


async def _watch(bus: Bus, witness: Witness) -> None:
    """Hardware and power of the node, as long as this credential may read them: a result does not need them."""

    def sink(fact: BusFact) -> None:
        for event in fact.events if isinstance(fact, Snapshot) else (fact,):
            witness.fold(event)

    try:
        await bus.follow((NodeHardware, NodeTelemetry), sink)
    except (BusUnavailable, BusRefused) as err:
        log.debug("no facts of the node: %s", err)


async def _outcome(settings: BenchSettings, subject: Subject, report: Report, witness: Witness) -> Outcome:
    try:
        return await _result(settings, subject, report, witness)
    except Unusable as err:
        return failed(subject, err.reason, str(err))


async def _result(settings: BenchSettings, subject: Subject, report: Report, witness: Witness) -> events.BenchCompleted:
    async def ready(plan: events.BenchSettings, waited: float) -> None:
        log.info("%s answers after %.1f s, measuring", settings.model, waited)
        await report.send(started(subject, plan))

    plan, found = await measure_server(
        settings, subject.backend, subject.key, SystemClock(), Listener(ready, report.sample)
    )
    witness.check(subject.device_class)
    if witness.hardware is not None:
        subject = replace(subject, virtual=witness.hardware.virtual)
    return summarise(
        subject,
        plan,
        found.results,
        found.seconds,
        notes=found.notes,
        joules_per_token=_energy(witness, subject, found.results),
        cost_per_hour=settings.cost_per_hour,
    )


def _energy(witness: Witness, subject: Subject, results: Sequence[StageResult]) -> float | None:
    headline = next(r for r in results if r.stage.kind == "headline")
    tokens = sum(m.completion_tokens for m in headline.measured)
    count = demanded_count(subject.device_class)
    return joules_per_token(witness.samples, count, (headline.began, headline.ended), tokens)
