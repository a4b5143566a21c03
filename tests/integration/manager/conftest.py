"""The manager on the embedded API and the in-memory bus, with a kubelet that only pretends to run containers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from flexinfer.adapters.bus.memory import MemoryBroker, MemoryBus
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.adapters.kube.informer import Informer
from flexinfer.adapters.kube.recorder import EventRecorder
from flexinfer.apps.manager import policy_of, watched, watched_mounts
from flexinfer.config.manager import ManagerSettings
from flexinfer.contracts.crds import crd_manifests
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import BenchCompleted, BenchFailed, Cpu, Device, ModelEndpoint, ModelPhase, NodeHardware
from flexinfer.contracts.kubernetes import (
    CONFIGMAPS,
    CRDS,
    DEPLOYMENTS,
    MODELDEPLOYMENTS,
    MODELS,
    NODES,
    PODS,
    Object,
    Resource,
)
from flexinfer.contracts.termination import encode_outcome
from flexinfer.core.lifecycle.view import BENCH_KEY
from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.ports import KubeError, KubeFact, NotFound, Relisted
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.interpreter import Interpreter
from flexinfer.runtime.manager import Manager
from flexinfer.runtime.tasks import Supervisor
from flexinfer.testing.bus import Reader, until

TPS = 50.0


class Kubelet:
    """Binds pods to the first node their affinity allows and reports them as running, without running anything.

    ``outcome`` decides what a benchmark says: a function of the pod's bench environment, or None to keep it running.
    ``ready`` decides whether an engine pod becomes ready.
    """

    def __init__(self, api: KubeClient, mint: EventMint, bus: MemoryBus) -> None:
        self._api = api
        self._mint = mint
        self._bus = bus
        self._tasks = Supervisor("kubelet")
        self._seen: set[str] = set()
        self._ip = 10
        self.nodes = ["n1"]
        self.outcome: Callable[[dict[str, str]], BenchCompleted | BenchFailed | None] = measured
        self.ready: Callable[[Object], bool] = lambda _pod: True
        self.tell_bus = True
        self.schedule = True

    def start(self) -> None:
        self._tasks.forever("pods", Informer(self._api, PODS, self._sink).run)

    async def stop(self) -> None:
        await self._tasks.close()

    def _sink(self, fact: KubeFact) -> None:
        for pod in fact.objects if isinstance(fact, Relisted) else (fact.object,):
            gone = not isinstance(fact, Relisted) and fact.action == "DELETED"
            uid = pod["metadata"]["uid"]
            if not gone and pod["metadata"].get("deletionTimestamp"):
                self._tasks.once("remove", self._remove(pod))
            elif not gone and uid not in self._seen and self.schedule:
                self._seen.add(uid)
                self._tasks.once("run", self._run(pod))

    async def _remove(self, pod: Object) -> None:
        meta = pod["metadata"]
        with suppress(NotFound):
            await self._api.delete(PODS, meta["name"], meta["namespace"], grace_seconds=0, uid=meta["uid"])

    async def _run(self, pod: Object) -> None:
        with suppress(KubeError):
            await self._start(pod)

    async def _start(self, pod: Object) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        node = _node_of(spec, self.nodes)
        binding = {
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "target": {"kind": "Node", "name": node},
        }  # fmt: skip
        await self._api.create(PODS, binding, meta["namespace"], "binding")
        self._ip += 1
        engine = {"name": "engine", "image": "x", "restartCount": 0, "started": True, "ready": True,
                  "state": {"running": {}}}  # fmt: skip
        bench = BENCH_KEY in meta["labels"]
        ready = bench or self.ready(pod)
        engine["ready"] = ready
        status: dict[str, Any] = {
            "phase": "Running",
            "podIP": f"127.0.1.{self._ip}",
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "True" if ready else "False"},
            ],
            "containerStatuses": [{**engine, "name": "bench"} if bench else engine],
        }
        if bench:
            status["initContainerStatuses"] = [engine]
        await self._status(pod, status)
        if bench:
            await self._measure(pod, status, node)

    async def _measure(self, pod: Object, status: dict[str, Any], node: str) -> None:
        env = {e["name"]: e.get("value", "") for e in pod["spec"]["containers"][0]["env"]}
        env["NODE_NAME"] = node
        outcome = self.outcome(env)
        if outcome is None:
            return
        if self.tell_bus:
            await self._bus.publish(self._mint.mint(outcome))
        code = 0 if isinstance(outcome, BenchCompleted) else 1
        ended = {"exitCode": code, "message": encode_outcome(outcome).decode(), "reason": "Completed"}
        done = {
            **status,
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": "bench", "restartCount": 0, "ready": False, "image": "x",
                                   "state": {"terminated": ended}}],
        }  # fmt: skip
        await self._status(pod, done)

    async def _status(self, pod: Object, status: dict[str, Any]) -> None:
        meta = pod["metadata"]
        await self._api.patch(PODS, meta["name"], {"status": status}, meta["namespace"], subresource="status")


def _node_of(spec: Object, nodes: list[str]) -> str:
    terms = (
        ((spec.get("affinity") or {}).get("nodeAffinity") or {})
        .get("requiredDuringSchedulingIgnoredDuringExecution", {})
        .get("nodeSelectorTerms", [])
    )
    allowed = terms[0]["matchExpressions"][0]["values"] if terms else nodes
    return next(node for node in nodes if node in allowed)


def measured(env: dict[str, str]) -> BenchCompleted:
    """A plausible result for what the environment asks."""
    return BenchCompleted(
        key=env["FLEXINFER_KEY"],
        namespace=env["FLEXINFER_MODEL_NAMESPACE"],
        model=env["FLEXINFER_MODEL_NAME"],
        workload=env["FLEXINFER_WORKLOAD"],
        source=env["FLEXINFER_SOURCE"],
        backend=env["FLEXINFER_BACKEND"],
        device_class=env["FLEXINFER_DEVICE_CLASS"],
        driver_major=env.get("FLEXINFER_DRIVER_MAJOR", ""),
        node=env["NODE_NAME"],
        tokens_per_second=TPS,
        iterations=5,
        duration_seconds=10.0,
    )


class Counting:
    """A KubeApi that remembers the writes made through it, and may stop the manager after one of them."""

    def __init__(self, api: KubeClient) -> None:
        self._api = api
        self.writes: list[tuple[str, str]] = []
        self.after: Callable[[int], None] = lambda _count: None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._api, name)
        if name not in {"create", "replace", "patch", "delete"}:
            return found

        async def write(resource: Resource, *args: Any, **kwargs: Any) -> Any:
            try:
                return await found(resource, *args, **kwargs)
            finally:
                self.writes.append((name, resource.plural))
                self.after(len(self.writes))

        return write


class World:
    """Everything of one test. ``manage`` starts a manager, ``kill`` ends it as a crash would."""

    def __init__(self, server: EmbeddedApi, api: KubeClient, broker: MemoryBroker, bus: MemoryBus) -> None:
        self.server = server
        self.api = api
        self.broker = broker
        self.bus = bus
        self.agent = EventMint.start("agent", "n1", "b1", SystemClock().now)
        self.kubelet = Kubelet(api, EventMint.start("bench", "b", "b1", SystemClock().now), bus)
        self.reader = Reader()
        self.settings = ManagerSettings(nats_url="nats://x:4222", proxy_url="http://proxy:8080", leader_elect=False)
        self.manager: Manager | None = None
        self.counting = Counting(api)
        self._tasks: Supervisor | None = None
        self._boots = 0
        self._managers: list[MemoryBus] = []

    def manage(self) -> Manager:
        clock = SystemClock()
        bus = MemoryBus(self.broker)
        self._managers.append(bus)
        recorder = EventRecorder(self.counting, "manager", clock, "m1")

        def mint() -> EventMint:
            self._boots += 1
            return EventMint.start("manager", "m1", f"b{self._boots}", clock.now)

        self.manager = Manager(policy_of(self.settings), Interpreter(self.counting, bus, recorder, mint), bus, clock)
        tasks = self._tasks = Supervisor("manager")
        for resource, namespace, labels in watched(self.settings):
            tasks.forever(resource.plural, Informer(self.api, resource, self.manager.pump.offer, namespace, labels).run)
        events, where, fields = watched_mounts(self.settings)
        tasks.forever("watch events", Informer(self.api, events, self.manager.pump.offer, where, fields=fields).run)
        tasks.forever("bus", self.manager.follow)
        tasks.forever("events", recorder.run)
        tasks.forever("act", self.manager.act)
        return self.manager

    def crash(self) -> None:
        """Ask for the end of the manager from inside one of its own calls; ``kill`` then waits for it."""
        for task in list(self._tasks._tasks) if self._tasks else ():
            task.cancel()

    async def kill(self) -> None:
        if self._tasks:
            await self._tasks.close()
            self._tasks = None
        while self._managers:
            await self._managers.pop().close()

    async def node(self, name: str = "n1", *devices: Device) -> None:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}}
        with suppress(KubeError):
            await self.api.create(NODES, body)
        cpu = Cpu(model="Test CPU", threads=2, memory_mib=16000)
        await self.bus.publish(self.agent.mint(NodeHardware(node=name, devices=devices, cpu=cpu)))

    async def apply(
        self,
        name: str = "m",
        spec: Object | None = None,
        kind: Resource = MODELDEPLOYMENTS,
        *,
        direct: bool = False,
        namespace: str = "default",
    ) -> Object:
        """Create or change an object of ours; ``direct``: past the API, so that faults are left for the manager."""
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec or SPEC,
        }
        if direct:
            entry = self.server.catalog.by_kind(kind.api_version, kind.kind)
            return self.server.registry.create(entry, namespace, body)
        return await self.api.patch(kind, name, body, namespace, kind="apply", field_manager="user")

    async def get(self, name: str = "m", kind: Resource = MODELDEPLOYMENTS) -> Object:
        return await self.api.get(kind, name, "default")

    async def phase(self, wanted: str, name: str = "m", kind: Resource = MODELDEPLOYMENTS) -> Object:
        """Wait until the object has a phase; the object."""
        found: Object = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(30):
                while True:
                    found = await self.get(name, kind)
                    if found.get("status", {}).get("phase") == wanted:
                        return found
                    await asyncio.sleep(0.02)
        raise AssertionError(f"{name} is {found.get('status')}, not {wanted}; {await self._pods()}")

    async def _pods(self) -> str:
        """What the API and the manager's view know of pods, for the message of a failed wait."""
        stored = (await self.api.list(PODS, "default")).items
        groups = self.manager.view.pods.values() if self.manager else ()
        viewed = [pod for group in groups for pod in group.values()]
        return f"API {[_brief(pod) for pod in stored]}, view {[_brief(pod) for pod in viewed]}"

    async def scaled(self, replicas: int, name: str = "m") -> None:
        """Wait until the Deployment asks for this many replicas."""
        async with asyncio.timeout(30):
            while True:
                with suppress(NotFound):
                    found = await self.api.get(DEPLOYMENTS, name, "default")
                    if found["spec"]["replicas"] == replicas:
                        return
                await asyncio.sleep(0.01)

    async def recorded(self) -> dict[str, str]:
        """Wait for the record of results; its data."""
        async with asyncio.timeout(30):
            while True:
                with suppress(NotFound):
                    found = await self.api.get(CONFIGMAPS, "flexinfer-benchmark-results", "flexinfer-system")
                    return dict(found["data"])
                await asyncio.sleep(0.02)

    async def count(self, resource: Resource, wanted: int, labels: str = "", namespace: str = "default") -> None:
        """Wait until there are this many objects."""
        async with asyncio.timeout(30):
            while len((await self.api.list(resource, namespace, labels=labels)).items) != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def gone(self, name: str = "m", kind: Resource = MODELDEPLOYMENTS) -> None:
        async with asyncio.timeout(30):
            while True:
                try:
                    await self.get(name, kind)
                except NotFound:
                    return
                await asyncio.sleep(0.02)


def _brief(pod: Object) -> tuple[Any, ...]:
    return pod["metadata"]["name"], pod["metadata"]["resourceVersion"], pod["spec"].get("nodeName"), pod.get("status")


SPEC: Object = {
    "backend": "llamacpp",
    "model": "file:///models/SmolLM2-135M-Instruct.Q4_1.gguf",
    "gpu": {"vendor": "cpu", "count": 0},
    "benchmark": {"concurrency": [1], "minDuration": "1s", "iterations": 1},
}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        server = await EmbeddedApi().start()
        stack.push_async_callback(server.stop)
        path = tmp_path / "kubeconfig"
        server.write_kubeconfig(path)
        api = await KubeClient.connect(path)
        stack.push_async_callback(api.aclose)
        for crd in crd_manifests():
            await api.patch(CRDS, crd["metadata"]["name"], crd, kind="apply", field_manager="test")
        broker = MemoryBroker()
        bus = MemoryBus(broker)
        stack.push_async_callback(bus.close)
        found = World(server, api, broker, bus)
        stack.push_async_callback(found.kill)
        stack.push_async_callback(found.kubelet.stop)
        await bus.ensure()
        await bus.follow((ModelPhase, ModelEndpoint, BenchCompleted), found.reader)
        found.kubelet.start()
        yield found


__all__ = ["MODELS", "SPEC", "TPS", "World", "until"]
