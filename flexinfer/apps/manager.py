"""``flexinfer-manager``: Model and ModelDeployment objects become benchmarked, placed, running engines."""

import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.adapters.kube.credentials import KubeconfigError
from flexinfer.adapters.kube.informer import Informer
from flexinfer.adapters.kube.lease import Elector
from flexinfer.adapters.kube.recorder import EventRecorder
from flexinfer.adapters.web.ops import ops_app
from flexinfer.adapters.web.serve import WebServer, listen
from flexinfer.config.manager import ManagerSettings
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.kubernetes import (
    CONFIGMAPS,
    DEPLOYMENTS,
    JOBS,
    MODELDEPLOYMENTS,
    MODELS,
    NODES,
    PODS,
    SERVICES,
    Resource,
)
from flexinfer.contracts.labels import BENCHMARK_APP_LABEL, FIELD_MANAGER
from flexinfer.core.lifecycle.fold_results import CLAIM_APP_LABEL
from flexinfer.core.lifecycle.manifests import CLAIMS
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.placement.quantization import meets, need_of
from flexinfer.ports import Bus, KubeApi
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.interpreter import Interpreter
from flexinfer.runtime.manager import Manager
from flexinfer.runtime.process import boot_id, fail, host_name, stop_signals
from flexinfer.runtime.readiness import Readiness
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

LEASE = "flexinfer-manager"
_OURS = f"app.kubernetes.io/managed-by={FIELD_MANAGER}"
_CONFIGMAPS = f"app in ({BENCHMARK_APP_LABEL},{CLAIM_APP_LABEL})"


async def run(settings: ManagerSettings) -> int:
    """Until SIGTERM; the exit code."""
    stop = stop_signals()
    clock = SystemClock()
    identity = f"{host_name()}_{boot_id()}"
    async with AsyncExitStack() as stack:
        try:
            api = await KubeClient.connect(settings.kubeconfig)
        except KubeconfigError as err:
            return fail(f"flexinfer-manager: {err}")
        stack.push_async_callback(api.aclose)
        bus = await NatsBus.start(
            settings.nats_url,
            name=f"flexinfer-manager {host_name()}",
            cluster=settings.cluster,
            credentials=settings.nats_credentials,
            ca=settings.nats_ca,
            clock=clock,
        )
        stack.push_async_callback(bus.close)
        recorder = EventRecorder(api, "manager", clock, host_name())
        mint = EventMint.start("manager", host_name(), boot_id(), clock.now, settings.cluster)
        manager = Manager(policy_of(settings), Interpreter(api, bus, recorder, mint), bus, clock)
        tasks = Supervisor("manager")
        stack.push_async_callback(recorder.flush)
        stack.push_async_callback(tasks.close)
        informers = [Informer(api, res, manager.pump.offer, ns, labels) for res, ns, labels in watched(settings)]
        for informer, (resource, _, _) in zip(informers, watched(settings), strict=True):
            tasks.forever(f"watch {resource.plural}", informer.run)
        tasks.forever("bus", manager.follow)
        tasks.forever("events", recorder.run)
        tasks.forever("lead", lambda: _lead(settings, api, manager, identity, clock))
        server = await WebServer(
            ops_app(_readiness(informers, bus).report), listen(settings.metrics_host, settings.metrics_port), drain=1.0
        ).start()
        stack.push_async_callback(server.stop)
        log.info("manager %s listens on port %d", identity, server.port)
        await stop.wait()
    return 0


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
        (PODS, where, _OURS),
        (CONFIGMAPS, settings.namespace, _CONFIGMAPS),
        (NODES, None, ""),
    )


def policy_of(settings: ManagerSettings) -> Policy:
    """Settings as decisions see them."""
    if settings.default_backend_image:
        log.warning("DEFAULT_BACKEND_IMAGE is deprecated; set DEFAULT_BACKEND_IMAGE_NVIDIA")
    ollama = {
        "NVIDIA": settings.default_backend_image_nvidia or settings.default_backend_image,
        "AMD": settings.default_backend_image_amd,
        "INTEL": settings.default_backend_image_intel,
    }
    return Policy(
        namespace=settings.namespace,
        cluster=settings.cluster,
        scheduler_name=settings.scheduler_name,
        model_path=settings.model_cache_path,
        images={"ollama": ollama},
        benchmark_image=settings.benchmark_image,
        proxy_url=settings.proxy_url,
        nats_url=settings.bench_nats_url or settings.nats_url,
        gate_timeout=settings.gate_timeout,
        job_deadline=settings.job_deadline,
        node_local=settings.node_local,
        capable=lambda device, backend, form: meets(device, need_of(backend, form)),
    )


async def _lead(settings: ManagerSettings, api: KubeApi, manager: Manager, identity: str, clock: SystemClock) -> None:
    if not settings.leader_elect:
        await manager.act()
        return
    await Elector(api, settings.namespace, LEASE, identity, clock).run(lambda _fencing: manager.act())


def _readiness(informers: Sequence[Informer], bus: Bus) -> Readiness:
    """A follower is ready too: its view is warm, and it takes over within the lease time."""
    readiness = Readiness()
    readiness.require(
        "kubernetes", lambda: None if all(i.synced for i in informers) else "the first lists are not complete"
    )
    readiness.degraded = lambda: None if bus.connected else "the bus cannot be reached; events are kept for later"
    return readiness
