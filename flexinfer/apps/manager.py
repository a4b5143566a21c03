"""``flexinfer-manager``: Model and ModelDeployment objects become benchmarked, placed, running engines."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from flexinfer.adapters.bus.nats import Limits, NatsBus
from flexinfer.adapters.bus.nats.callout import Callout
from flexinfer.adapters.bus.nats.signing import Signer
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.adapters.kube.credentials import KubeconfigError
from flexinfer.adapters.kube.informer import Informer
from flexinfer.adapters.kube.lease import Elector
from flexinfer.adapters.kube.recorder import EventRecorder
from flexinfer.adapters.web.ops import ops_app
from flexinfer.adapters.web.serve import WebServer, listen
from flexinfer.config.engines import load_engines
from flexinfer.config.manager import ManagerSettings, policy_of
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import PlacementDecided
from flexinfer.contracts.kubernetes import (
    CONFIGMAPS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    MODELDEPLOYMENTS,
    MODELS,
    NODES,
    PODS,
    SERVICES,
    Resource,
)
from flexinfer.contracts.labels import BENCHMARK_APP_LABEL, FIELD_MANAGER
from flexinfer.core.fleet.fold import STATE_TYPES
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.lifecycle.callers import House
from flexinfer.core.lifecycle.fold_results import CLAIM_APP_LABEL
from flexinfer.core.lifecycle.manifests import CLAIMS
from flexinfer.core.lifecycle.mounting import FIELDS
from flexinfer.ports import Bus, KubeApi, KubeFact
from flexinfer.runtime.admitting import Door
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.drifting import DRIFT, FOLLOWED, DriftWatcher
from flexinfer.runtime.interpreter import Interpreter
from flexinfer.runtime.manager import Manager
from flexinfer.runtime.nudging import Nudger
from flexinfer.runtime.parts import journal_with
from flexinfer.runtime.placement.intake import FleetIntake
from flexinfer.runtime.process import boot_id, fail, host_name, stop_signals
from flexinfer.runtime.readiness import Readiness
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

LEASE = "flexinfer-manager"
_OURS = f"app.kubernetes.io/managed-by={FIELD_MANAGER}"
_CONFIGMAPS = f"app in ({BENCHMARK_APP_LABEL},{CLAIM_APP_LABEL})"


async def run(settings: ManagerSettings) -> int:
    """Until SIGTERM; the exit code."""
    if settings.callout_issuer is not None:
        return _write_issuer(settings.callout_key, settings.callout_issuer)
    if not settings.nats_url:
        return fail("flexinfer-manager: no bus address; give --nats-url or NATS_URL", 2)
    if settings.default_backend_image:
        log.warning("DEFAULT_BACKEND_IMAGE is deprecated; set DEFAULT_BACKEND_IMAGE_NVIDIA")
    for name in load_engines():
        log.info("backend %s comes from another package", name)
    settings = _with_ca(settings)
    stop = stop_signals()
    clock = SystemClock()
    instance, boot = host_name(), boot_id()
    async with AsyncExitStack() as stack:
        try:
            signer = Signer.read(settings.callout_key) if settings.callout_key else None
            api = await KubeClient.connect(settings.kubeconfig)
        except (KubeconfigError, ValueError) as err:
            return fail(f"flexinfer-manager: {err}")
        stack.push_async_callback(api.aclose)
        bus = await NatsBus.of(settings, f"flexinfer-manager {instance}", clock, limits=limits_of(settings))
        stack.push_async_callback(bus.close)
        _serve_callout(settings, signer, api, clock, stack)
        recorder = EventRecorder(api, "manager", clock, instance)

        def mint() -> EventMint:
            return EventMint.start("manager", instance, boot_id(), clock.now, settings.cluster)

        journal = journal_with(stack, settings, "manager", instance, clock.now())
        interpreter = Interpreter(api, bus, recorder, mint)
        manager = Manager(policy_of(settings), interpreter, bus, clock, journal=journal)
        drifting = DriftWatcher(lambda effect: interpreter.perform(DRIFT, effect))
        fleet = FleetView()
        intake, nudger = FleetIntake(fleet, clock.now), Nudger(fleet, api, clock)
        tasks = Supervisor("manager")
        stack.push_async_callback(recorder.flush)
        stack.push_async_callback(tasks.close)
        sinks: dict[str, tuple[Callable[[KubeFact], None], ...]] = {
            PODS.plural: (intake.kube, nudger.kube, drifting.kube),
            NODES.plural: (intake.kube,),
        }
        informers = [
            Informer(api, resource, _all(manager.pump.offer, *sinks.get(resource.plural, ())), namespace, labels)
            for resource, namespace, labels in watched(settings)
        ]
        for informer, (resource, _, _) in zip(informers, watched(settings), strict=True):
            tasks.forever(f"watch {resource.plural}", informer.run)
        events, where, fields = watched_mounts(settings)
        tasks.forever("watch events", Informer(api, events, manager.pump.offer, where, fields=fields).run)
        others = ((STATE_TYPES, intake.bus), ((PlacementDecided,), nudger.bus), (FOLLOWED, drifting.bus))
        tasks.forever("bus", lambda: manager.follow(*others))
        tasks.forever("events", recorder.run)

        async def lead(_fencing: int = 0) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(manager.act(), name="act")
                group.create_task(nudger.run(), name="nudge")
                group.create_task(drifting.run(), name="drift")

        elector = Elector(api, settings.namespace, LEASE, f"{instance}_{boot}", clock)
        tasks.forever("lead", (lambda: elector.run(lead)) if settings.leader_elect else lead)
        server = await WebServer(
            ops_app(_readiness(informers, bus).report), listen(settings.metrics_host, settings.metrics_port), drain=1.0
        ).start()
        stack.push_async_callback(server.stop)
        log.info("manager %s_%s listens on port %d", instance, boot, server.port)
        await stop.wait()
    return 0


def _write_issuer(key: Path | None, to: Path) -> int:
    """Raises OSError."""
    if key is None:
        return fail("flexinfer-manager: --callout-issuer needs --callout-key", 2)
    try:
        to.write_text(f"issuer: {Signer.read(key).issuer}\n")
    except ValueError as err:
        return fail(f"flexinfer-manager: {err}", 2)
    return 0


def _with_ca(settings: ManagerSettings) -> ManagerSettings:
    """With the CA of the bus as text, because benchmark Jobs cannot mount it. Raises OSError."""
    if settings.nats_ca is None:
        return settings
    return settings.model_copy(update={"nats_ca_data": settings.nats_ca.read_text()})


def _serve_callout(
    settings: ManagerSettings, signer: Signer | None, api: KubeApi, clock: SystemClock, stack: AsyncExitStack
) -> None:
    """By every replica that has the key: who leads does not matter."""
    if signer is None:
        return
    house = House(settings.namespace, settings.cluster, settings.callout_agents, settings.callout_audience)
    callout = Callout(signer, Door(api, house).admit, clock)
    callout.start(settings, f"flexinfer-manager {host_name()} callout")
    stack.push_async_callback(callout.close)


def limits_of(settings: ManagerSettings) -> Limits:
    """Of the streams this manager makes."""
    return Limits(replicas=settings.bus_replicas, log=settings.bus_log_mib << 20)


def watched(settings: ManagerSettings) -> Sequence[tuple[Resource, str | None, str]]:
    """What is watched: resource, namespace, label selector. The keys of plan.NEEDED are all here."""
    where = settings.watch_namespace or None
    return (
        (MODELS, where, ""),
        (MODELDEPLOYMENTS, where, ""),
        (DEPLOYMENTS, where, _OURS),
        (SERVICES, where, _OURS),
        (CLAIMS, where, _OURS),
        (JOBS, where, _OURS),
        (PODS, where, ""),  # all of them: foreign pods take devices, and may be rejected too
        (CONFIGMAPS, settings.namespace, _CONFIGMAPS),
        (NODES, None, ""),
    )


def watched_mounts(settings: ManagerSettings) -> tuple[Resource, str | None, str]:
    """Events of kubelets that cannot mount: resource, namespace, field selector. Nothing waits for their list."""
    return EVENTS, settings.watch_namespace or None, FIELDS


def _all(*sinks: Callable[[KubeFact], None]) -> Callable[[KubeFact], None]:
    def sink(fact: KubeFact) -> None:
        for one in sinks:
            one(fact)

    return sink


def _readiness(informers: Sequence[Informer], bus: Bus) -> Readiness:
    """A follower is ready too: its view is warm, and it takes over within the lease time."""
    readiness = Readiness()
    readiness.require(
        "kubernetes", lambda: None if all(i.synced for i in informers) else "the first lists are not complete"
    )
    readiness.degraded = lambda: None if bus.connected else "the bus cannot be reached; events are kept for later"
    return readiness
