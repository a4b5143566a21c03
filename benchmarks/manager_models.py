"""A thousand models at once: the manager's writes, rate and memory, and what one event costs it.

On the control plane of tests/cluster, with fake nodes: a kubelet that only pretends binds pods round-robin and reports
them as running; kube-controller-manager makes them. Benchmarks of models are off. In turn, for several rounds, all
models of a namespace of their own are created at once and timed until the last is Running: by the manager, and by a
script in one process that knows what is to be written and does nothing else: the same writes with the same bodies, and
one watch that tells it when a Deployment is ready. Writes are counted in the API server's audit log.

Then nothing happens but telemetry and heartbeats, and the manager's writes are counted again. Ten idle models are
woken, one after the other: the time from the demand event to the scaled Deployment, as a watch shows it. And in this
process, without any I/O, single events of each kind are folded and decided upon with 10 models and with all of them.

    python benchmarks/manager_models.py [--models 1000] [--rounds 2] [--output FILE.json]
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cluster"))
sys.path.insert(0, str(Path(__file__).parent))

import manager_script
from manager_event_cost import event_costs
from measuring import machine, measured
from rig import Rig

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.adapters.kube.informer import Informer
from flexinfer.contracts.crds import crd_manifests
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import Cpu, Device, DeviceTelemetry, ModelDemand, NodeHardware, NodeTelemetry
from flexinfer.contracts.kubernetes import CRDS, DEPLOYMENTS, MODELDEPLOYMENTS, NAMESPACES, NODES, PODS, Object
from flexinfer.local.nats_server import NatsServer
from flexinfer.ports import KubeFact, NotFound, Relisted
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.tasks import Supervisor

MANAGER_TOKEN, MANAGER_USER = "bench-manager-token", "the-manager"
AT_ONCE = 32
WOKEN = 10
SPEC: Object = {
    "backend": "llamacpp", "model": "file:///models/tiny-1b.gguf", "image": "engine:1",
    "gpu": {"vendor": "nvidia", "count": 1}, "idleTimeoutSeconds": 0, "benchmark": {"enabled": False},
}  # fmt: skip


class QuietRig(Rig):
    """Without the controllers that would taint nodes no kubelet renews, and with client limits out of the way."""

    def _spawn(self, name: str, *args: str) -> None:
        if name == "kube-controller-manager":
            args = (
                *args, "--controllers=-node-lifecycle-controller,-taint-eviction-controller",
                "--kube-api-qps=1000", "--kube-api-burst=2000", "--concurrent-deployment-syncs=16",
                "--concurrent-replicaset-syncs=16",
            )  # fmt: skip
        super()._spawn(name, *args)


class Kubelet:
    """Binds every pod to the next node and says that it runs."""

    def __init__(self, api: KubeClient, nodes: list[str]) -> None:
        self._api = api
        self._nodes = nodes
        self._seen: set[str] = set()
        self._tasks = Supervisor("kubelet")
        self._gate = asyncio.Semaphore(AT_ONCE)

    def start(self) -> None:
        self._tasks.forever("pods", Informer(self._api, PODS, self._sink).run)

    async def stop(self) -> None:
        await self._tasks.close()

    def _sink(self, fact: KubeFact) -> None:
        for pod in fact.objects if isinstance(fact, Relisted) else (fact.object,):
            uid = pod["metadata"]["uid"]
            if uid not in self._seen and not pod["spec"].get("nodeName"):
                self._seen.add(uid)
                self._tasks.once("pod", self._run(pod, len(self._seen)))

    async def _run(self, pod: Object, number: int) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        target = {"kind": "Node", "name": self._nodes[number % len(self._nodes)]}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace}}
        since = "2026-01-01T00:00:00Z"
        ready = [{"type": kind, "status": "True", "lastTransitionTime": since}
                 for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")]  # fmt: skip
        engine = {"name": "engine", "image": "engine:1", "imageID": "", "restartCount": 0, "started": True,
                  "ready": True, "state": {"running": {"startedAt": since}}}  # fmt: skip
        address = f"10.{1 + number // 62500}.{number // 250 % 250}.{1 + number % 250}"
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": ready,
                  "containerStatuses": [engine]}  # fmt: skip
        try:
            async with self._gate:
                await self._api.create(PODS, {**binding, "target": target}, namespace, "binding")
                await self._api.patch(PODS, name, {"status": status}, namespace, subresource="status")
        except NotFound:  # deleted meanwhile
            return


class Counts:
    """Writes of the manager in the audit log, read on from where the last look ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def take(self) -> Counter[str]:
        found: Counter[str] = Counter()
        with self._path.open("rb") as log:
            log.seek(self._at)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._at += len(line)
                entry = json.loads(line)
                where = entry.get("objectRef") or {}
                if entry["user"]["username"] != MANAGER_USER or entry["verb"] in {"get", "list", "watch"}:
                    continue
                kind = "/".join(part for part in (where.get("resource"), where.get("subresource")) if part)
                refused = "" if entry["responseStatus"]["code"] < 300 else f" {entry['responseStatus']['code']}"
                found[f"{entry['verb']} {kind}{refused}"] += 1
        return found


class Bench:
    """The control plane with its fake fleet."""

    def __init__(self, rig: Rig, api: KubeClient, bus: NatsBus, nats_url: str, models: int) -> None:
        self.rig = rig
        self.api = api
        self.bus = bus
        self.nats_url = nats_url
        self.models = models
        self.nodes = [f"node-{number:03d}" for number in range(max(4, models // 20))]
        self.counts = Counts(rig.audit_log)
        self._agents = {name: EventMint.start("agent", name, "boot", SystemClock().now) for name in self.nodes}

    async def fleet(self) -> None:
        for name in self.nodes:
            await self.api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
            await self.api.patch(NODES, name, {"spec": {"taints": []}})  # admission adds not-ready
        await self.tell()

    async def tell(self) -> None:
        """What agents repeat: hardware as a heartbeat, and telemetry."""
        for name, mint in self._agents.items():
            cards = [(n, f"{name}-{n}") for n in range(8)]
            devices = tuple(
                Device(index=n, uuid=uid, vendor="NVIDIA", product="NVIDIA GeForce RTX 4090", arch="sm_89",
                       memory_mib=24564)
                for n, uid in cards
            )  # fmt: skip
            live = tuple(
                DeviceTelemetry(index=n, uuid=uid, util_percent=5.0, memory_free_mib=24000) for n, uid in cards
            )
            cpu = Cpu(model="X", threads=64, memory_mib=512_000)
            await self.bus.publish(mint.mint(NodeHardware(node=name, devices=devices, cpu=cpu)))
            await self.bus.publish(mint.mint(NodeTelemetry(node=name, interval_seconds=2.0, devices=live)))

    async def round(self, namespace: str, *, stages: int = 0) -> float:
        """Models per second from the first creation to the last Running; with ``stages`` by the script."""
        await self.api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        running: set[str] = set()
        done = asyncio.Event()

        def sink(fact: KubeFact) -> None:
            for obj in fact.objects if isinstance(fact, Relisted) else (fact.object,):
                if (obj.get("status") or {}).get("phase") == "Running":
                    running.add(obj["metadata"]["name"])
            if len(running) >= self.models:
                done.set()

        tasks = Supervisor("round")
        informer = Informer(self.api, MODELDEPLOYMENTS, sink, namespace)
        tasks.forever("models", informer.run)
        await informer.wait_synced()
        kubeconfig = self.rig.kubeconfig()
        worker = await manager_script.start(kubeconfig, namespace, self.models, stages=stages) if stages else None
        began = time.monotonic()
        await self._create(namespace)
        await done.wait()
        ended = time.monotonic()
        if worker is not None:
            await worker.wait()
        await tasks.close()
        return self.models / (ended - began)

    async def wake(self, namespace: str) -> list[float]:
        """Milliseconds from a demand event to a Deployment that is told to have replicas, of WOKEN idle models."""
        names = [f"sleepy-{number}" for number in range(WOKEN)]
        asleep: dict[str, asyncio.Event] = {name: asyncio.Event() for name in names}
        awake: dict[str, asyncio.Event] = {name: asyncio.Event() for name in names}

        def sink(fact: KubeFact) -> None:
            for obj in fact.objects if isinstance(fact, Relisted) else (fact.object,):
                name = obj["metadata"]["name"]
                if name in asleep and not obj["spec"]["replicas"]:
                    asleep[name].set()
                elif name in asleep and asleep[name].is_set():
                    awake[name].set()

        tasks = Supervisor("wake")
        informer = Informer(self.api, DEPLOYMENTS, sink, namespace)
        tasks.forever("deployments", informer.run)
        await informer.wait_synced()
        for name in names:
            await self._model(namespace, name, {**SPEC, "minReplicas": 0, "idleTimeoutSeconds": 1})
        await asyncio.gather(*(event.wait() for event in asleep.values()))
        await asyncio.sleep(2.0)
        taken = []
        mint = EventMint.start("proxy", "p", "boot", SystemClock().now)
        for name in names:
            began = time.monotonic()
            await self.bus.publish(mint.mint(ModelDemand(namespace=namespace, model=name, proxy="p", waiting=1)))
            await awake[name].wait()
            taken.append((time.monotonic() - began) * 1e3)
        await tasks.close()
        return taken

    async def _model(self, namespace: str, name: str, spec: Object) -> None:
        body = {"apiVersion": MODELDEPLOYMENTS.api_version, "kind": MODELDEPLOYMENTS.kind, "metadata": {"name": name}}
        await self.api.create(MODELDEPLOYMENTS, {**body, "spec": spec}, namespace)

    async def _create(self, namespace: str) -> None:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with gate:
                await self._model(namespace, f"m{number:04d}", SPEC)

        async with asyncio.TaskGroup() as group:
            for number in range(self.models):
                group.create_task(one(number))

    async def manager(self, namespace: str, log: Path) -> asyncio.subprocess.Process:
        """A manager that looks at one namespace, ready to work."""
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                str(Path(sys.executable).parent / "flexinfer-manager"), "--kubeconfig",
                str(self.rig.kubeconfig(MANAGER_TOKEN)), "--nats-url", self.nats_url, "--metrics-host", "127.0.0.1",
                "--metrics-port", "0", "--leader-elect", "false", "--watch-namespace", namespace,
                stdout=out, stderr=out,
            )  # fmt: skip
        await self.bus.ensure()
        await asyncio.sleep(3.0)
        return process


def memory_mb(pid: int) -> dict[str, float]:
    """Resident now and at most, of 10^6 bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {name: int(text.split()[0]) * 1024 / 1e6 for name, _, text in (line.partition(":") for line in lines)
             if name in {"VmRSS", "VmHWM"}}  # fmt: skip
    return {"now": round(found["VmRSS"], 1), "most": round(found["VmHWM"], 1)}


async def _managed(bench: Bench, namespace: str, log: Path, quiet: float) -> dict[str, Any]:
    process = await bench.manager(namespace, log)
    try:
        bench.counts.take()
        rate = await bench.round(namespace)
        await asyncio.sleep(5.0)  # Kubernetes Events are written behind
        writes = bench.counts.take()
        memory = memory_mb(process.pid)
        until = time.monotonic() + quiet
        while time.monotonic() < until:
            await bench.tell()
            await asyncio.sleep(1.0)
        idle = bench.counts.take()
        woken = await bench.wake(namespace)
    finally:
        process.terminate()
        await process.wait()
    return {"rate": rate, "writes": writes, "memory": memory, "idle": idle, "woken": woken}


async def prepared(rig: QuietRig, nats_url: str, models: int, stack: AsyncExitStack) -> Bench:
    """Bus, CRDs, fake fleet and its kubelet, until the stack is closed."""
    bus = await NatsBus.start(nats_url, name="bench", clock=SystemClock())
    stack.push_async_callback(bus.close)
    connected = asyncio.Event()
    bus.on_connect(connected.set)
    await connected.wait()
    await bus.ensure()
    api = await KubeClient.connect(rig.kubeconfig(), timeout=60.0)
    stack.push_async_callback(api.aclose)
    for crd in crd_manifests():
        await api.patch(CRDS, crd["metadata"]["name"], crd, kind="apply", field_manager="bench")
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "flexinfer-system"}}
    await api.create(NAMESPACES, system)
    bench = Bench(rig, api, bus, nats_url, models)
    await bench.fleet()
    kubelet = Kubelet(api, bench.nodes)
    kubelet.start()
    stack.push_async_callback(kubelet.stop)
    return bench


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="flexinfer-bench-"))
    async with AsyncExitStack() as stack:
        rig = QuietRig(folder / "rig", tokens={MANAGER_TOKEN: (MANAGER_USER, "system:masters")}).start()
        stack.callback(rig.stop)
        server = NatsServer(folder / "nats")
        await server.start()
        stack.push_async_callback(server.stop)
        bench = await prepared(rig, server.url, options.models, stack)
        rates: dict[str, list[float]] = {"manager": [], "script": []}
        first: dict[str, Any] = {}
        for number in range(options.rounds):
            found = await _managed(bench, f"managed-{number}", folder / "manager.log", options.quiet)
            first = first or found
            rates["manager"].append(round(found["rate"], 1))
            stages = round(found["writes"]["patch modeldeployments/status"] / options.models)
            rates["script"].append(round(await bench.round(f"scripted-{number}", stages=min(stages, 3)), 1))
            print(f"round {number + 1}: { ({name: found[-1] for name, found in rates.items()}) } models/s", flush=True)
    costs = event_costs((10, options.models))
    written = sum(first["writes"].values())
    return {
        "machine": machine(),
        "models": options.models,
        "rounds": rates,
        "models_per_second": {name: statistics.median(found) for name, found in rates.items()},
        "manager_to_script": round(
            statistics.median(m / s for m, s in zip(rates["manager"], rates["script"], strict=True)), 3
        ),
        "writes_per_model": round(written / options.models, 2),
        "writes": dict(sorted(first["writes"].items())),
        "memory_mb": first["memory"],
        "steady_state": {"seconds": options.quiet, "writes": dict(first["idle"])},
        "wake_ms": {"median": round(statistics.median(first["woken"]), 1), "most": round(max(first["woken"]), 1)},
        "event_cost_us": costs,
    }


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--models", type=int, default=1000)
    command.add_argument("--rounds", type=int, default=2)
    command.add_argument("--quiet", type=float, default=30.0, help="seconds of steady state")
    command.add_argument("--output", type=Path)
    options = command.parse_args()
    found = measured(measure(options), options.output)
    shown = (
        "models_per_second",
        "manager_to_script",
        "writes_per_model",
        "writes",
        "memory_mb",
        "steady_state",
        "wake_ms",
        "event_cost_us",
    )
    print(json.dumps({key: found[key] for key in shown}, indent=1))


if __name__ == "__main__":
    main()
