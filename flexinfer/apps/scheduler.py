"""``flexinfer-sched``: the extender over a view folded from the bus and the API server."""

import gc
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.adapters.kube.informer import Informer
from flexinfer.adapters.kube.recorder import EventRecorder
from flexinfer.adapters.web.extender import ExtenderApp, Process
from flexinfer.adapters.web.ops import ops_app
from flexinfer.adapters.web.serve import TlsFiles, WebServer, listen
from flexinfer.config.scheduler import SchedulerSettings
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.kubernetes import NODES, PODS
from flexinfer.core.fleet.fold import STATE_TYPES
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.explanation import parse_weights
from flexinfer.core.placement.scoring import TERMS, Weights
from flexinfer.core.placement.shadow import overridden
from flexinfer.ports import Clock
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.heap import collect_rarely, keep_freed_memory
from flexinfer.runtime.journal import Webhook
from flexinfer.runtime.parts import journal_with
from flexinfer.runtime.placement.fallback import Fallback
from flexinfer.runtime.placement.intake import FleetIntake
from flexinfer.runtime.placement.outbox import DecisionOutbox
from flexinfer.runtime.process import boot_id, fail, host_name, stop_signals
from flexinfer.runtime.readiness import Readiness
from flexinfer.runtime.tasks import Supervisor

# Ended pods hold nothing; leaving them out keeps the list small, and a pod that ends arrives as deleted.
LIVING_PODS = "status.phase!=Succeeded,status.phase!=Failed"
_DEGRADED = "the bus cannot be reached: placing by node labels, annotations and recorded results"


def weights_of(settings: SchedulerSettings) -> Weights:
    """The weights of the terms."""
    return Weights(**{field: getattr(settings, f"weight_{field}") for field in TERMS.values()})


def shadow_of(settings: SchedulerSettings) -> Weights | None:
    """The weights to record beside them, if any. Raises ValueError."""
    changes = parse_weights([settings.shadow_weights])
    return overridden(weights_of(settings), changes) if changes else None


async def run(settings: SchedulerSettings) -> int:
    """Serve until a signal; the exit code."""
    if not settings.nats_url:
        return fail("flexinfer-sched: no bus address; give --nats-url or NATS_URL", 2)
    try:
        shadow = shadow_of(settings)
    except ValueError as err:
        return fail(f"flexinfer-sched: --shadow-weights: {err}", 2)
    return await _serve(settings, shadow)


async def _serve(settings: SchedulerSettings, shadow: Weights | None) -> int:
    keep_freed_memory()
    collect_rarely()
    stop = stop_signals()
    clock = SystemClock()
    instance = settings.advertise or host_name()
    async with AsyncExitStack() as stack:
        supervisor = Supervisor("scheduler")
        view = FleetView(prefix=settings.label_prefix)
        journal = journal_with(stack, settings, "scheduler", instance, clock.now())
        desk = Desk(view, weights_of(settings), settings.reservation_ttl, shadow)
        intake = FleetIntake(view, clock.now, journal, desk.keep_up)
        api = await KubeClient.connect(settings.kubeconfig)
        stack.push_async_callback(api.aclose)
        bus = await NatsBus.of(settings, "scheduler", clock)
        stack.push_async_callback(bus.close)
        stack.push_async_callback(supervisor.close)
        nodes = Informer(api, NODES, intake.kube)
        pods = Informer(api, PODS, intake.kube, fields=LIVING_PODS)
        recorder = EventRecorder(api, "scheduler", clock, instance)
        mint = EventMint.start("scheduler", instance, boot_id(), clock.now, settings.cluster)
        outbox = DecisionOutbox(desk, bus, mint, recorder, clock.now, journal)

        ready = Readiness()
        ready.require("bus", lambda: None if intake.snapshots or view.degraded else "no snapshot of the bus state yet")
        ready.degraded = lambda: _DEGRADED if view.degraded else None
        ready.require("nodes", lambda: None if nodes.synced else "the list of Nodes is not complete yet")
        ready.require("pods", lambda: None if pods.synced else "the list of Pods is not complete yet")

        def record(now: float, phase: str, body: bytes) -> None:
            if journal is not None:
                journal.write(now, Webhook(path=phase, body=body.decode(errors="replace")))

        process = Process(_cold(ready), ready.report, clock.now, outbox.wake, record if journal else None)
        app = ExtenderApp(desk, process, settings.max_body)
        supervisor.forever("nodes", nodes.run)
        supervisor.forever("pods", pods.run)
        supervisor.forever("recorder", recorder.run)
        fallback = Fallback(intake, api, settings.namespace, settings.degraded_after, lambda: nodes.synced)
        supervisor.once("fallback", fallback.run())
        supervisor.once("follow", bus.follow(STATE_TYPES, intake.bus))
        supervisor.forever("outbox", outbox.run)
        supervisor.forever("lines on pods", outbox.tell_pods)
        supervisor.once("settle", _settle(desk, intake, (nodes, pods), clock))
        server = await WebServer(app, listen(settings.host, settings.port), drain=5.0, tls=_tls(settings)).start()
        stack.push_async_callback(server.stop)
        if settings.metrics_port:
            plain = await WebServer(ops_app(ready.report), listen(settings.host, settings.metrics_port)).start()
            stack.push_async_callback(plain.stop)
        await stop.wait()
        ready.draining = True
        await recorder.flush()
    return 0


async def _settle(desk: Desk, intake: FleetIntake, informers: Sequence[Informer], clock: Clock) -> None:
    """Once warm, prepare for the first requests, and take the view out of the garbage collector's sight: walking it
    in the middle of an answer costs more than the answer."""
    for informer in informers:
        await informer.wait_synced()
    await intake.warm.wait()
    desk.warm(clock.now())
    gc.collect()
    gc.freeze()


def _cold(ready: Readiness) -> Callable[[], str | None]:
    """Why the view must not answer yet: the first check that fails."""

    def why() -> str | None:
        for check in ready.checks.values():
            reason = check()
            if reason is not None:
                return reason
        return None

    return why


def _tls(settings: SchedulerSettings) -> TlsFiles | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    client_ca = str(settings.tls_client_ca) if settings.tls_client_ca else None
    return TlsFiles(str(settings.tls_cert), str(settings.tls_key), client_ca)
