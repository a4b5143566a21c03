"""The real kube-scheduler with the shipped configurations, the real extender process and a real bus."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from rig import Rig

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import (
    BenchCompleted,
    Device,
    DeviceTelemetry,
    EventData,
    NodeHardware,
    NodeTelemetry,
    PlacementDecided,
)
from flexinfer.contracts.kubernetes import NODES, PODS, Resource
from flexinfer.core.hardware.device_class import device_class
from flexinfer.local.nats_server import NatsServer
from flexinfer.local.ports import free_port
from flexinfer.ports import BusFact, Snapshot
from flexinfer.runtime.clock import SystemClock

CONFIGURATIONS = Path(__file__).parents[2] / "deploy" / "scheduler"
PRIORITIES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
CARDS = {"4090": ("NVIDIA GeForce RTX 4090", "sm_89"), "3090": ("NVIDIA GeForce RTX 3090", "sm_86")}
DEADLINE = 90.0
KEY = "m-0123456789ab"


async def until(check: Any, what: str, rig: Rig) -> Any:
    try:
        async with asyncio.timeout(DEADLINE):
            while True:
                found = await check()
                if found:
                    return found
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"not within {DEADLINE:.0f} s: {what}\n{rig.log('kube-scheduler', 15)}")


class Fleet:
    """Nodes in the API server and on the bus, and pods asking for them."""

    def __init__(self, rig: Rig, api: KubeClient, bus: NatsBus) -> None:
        self.rig = rig
        self.api = api
        self.bus = bus
        self.decisions: list[PlacementDecided] = []
        self.replicas: list[asyncio.subprocess.Process] = []
        self._mints: dict[str, EventMint] = {}

    def on_bus(self, fact: BusFact) -> None:
        if not isinstance(fact, Snapshot) and isinstance(fact.data, PlacementDecided):
            self.decisions.append(fact.data)

    async def tell(self, source: str, data: EventData) -> None:
        mint = self._mints.setdefault(source, EventMint.start("agent", source, "boot", SystemClock().now))
        await self.bus.publish(mint.mint(data))

    async def node(self, name: str, kind: str, speed: float) -> None:
        product, arch = CARDS[kind]
        device = Device(
            index=0, uuid=f"GPU-{name}", vendor="NVIDIA", product=product, arch=arch, memory_mib=24564, int4=True
        )
        live = DeviceTelemetry(index=0, uuid=device.uuid, util_percent=0.0, memory_free_mib=24564)
        await self.tell(name, NodeHardware(node=name, devices=(device,)))
        await self.tell(name, NodeTelemetry(node=name, interval_seconds=60.0, devices=(live,)))
        result = BenchCompleted(
            key=f"{KEY}-{kind}", namespace="default", model="m", workload=KEY, source="s", backend="vllm",
            device_class=device_class(device, 1), tokens_per_second=speed, iterations=1, duration_seconds=1.0,
        )  # fmt: skip
        await self.tell(f"bench-{kind}", result)
        await self.api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        room = {"cpu": "4", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "1"}
        status = {
            "capacity": room, "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }  # fmt: skip
        await self.api.patch(NODES, name, {"status": status}, kind="merge", subresource="status")
        # The node lifecycle controller sees no lease of a kubelet and taints; these tests are shorter than its grace.
        await self.api.patch(NODES, name, {"spec": {"taints": []}}, kind="merge")

    async def pod(self, name: str, scheduler: str = "flexinfer-scheduler", vram: str = "9000", **spec: Any) -> None:
        resources = {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
        body = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {
                "flexinfer.ai/benchmark-key": KEY, "flexinfer.ai/gpu.vram-estimate-mb": vram}},
            "spec": {"schedulerName": scheduler, "containers": [
                {"name": "c", "image": "engine", "resources": resources}]} | spec,
        }  # fmt: skip
        await self.api.create(PODS, body, "default")

    async def get(self, pod: str) -> dict[str, Any]:
        return await self.api.get(PODS, pod, "default")

    async def node_of(self, pod: str) -> str:
        async def bound() -> str:
            return str((await self.get(pod))["spec"].get("nodeName") or "")

        return str(await until(bound, f"{pod} bound", self.rig))

    async def refusal(self, pod: str) -> str:
        """The message of PodScheduled=False."""

        async def told() -> str:
            conditions = (await self.get(pod)).get("status", {}).get("conditions") or []
            return next(
                (c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), ""
            )

        return str(await until(told, f"{pod} refused", self.rig))


class Service:
    """Spreads connections over replicas in turn, as a Kubernetes Service does; dead ones are passed over."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._next = 0

    async def start(self, stack: AsyncExitStack) -> str:
        """Its URL."""
        port = free_port()
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        stack.callback(server.close)
        return f"http://127.0.0.1:{port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in self._ports:
            port = self._ports[self._next % len(self._ports)]
            self._next += 1
            with suppress(OSError):
                upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(pump(reader, upstream_writer), pump(upstream_reader, writer))
                return
        writer.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def extender(
    rig: Rig, bus_url: str, stack: AsyncExitStack, *flags: str
) -> tuple[str, asyncio.subprocess.Process]:
    """A replica that is ready: its URL and process."""
    url = f"http://127.0.0.1:{free_port()}"
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "flexinfer-sched"), "--host", "127.0.0.1",
        "--port", url.rpartition(":")[2], "--nats-url", bus_url, "--kubeconfig", str(rig.kubeconfig()), *flags,
    )  # fmt: skip
    stack.push_async_callback(ended, process)

    async def ready() -> bool:
        async with aiohttp.ClientSession() as session:
            with suppress(aiohttp.ClientError):
                async with session.get(url + "/readyz") as response:
                    return response.status == 200
        return False

    await until(ready, "extender ready", rig)
    return url, process


async def ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    await process.wait()


@pytest.fixture
async def fleet(rig: Rig, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Fleet]:
    """Extenders behind a Service and a kube-scheduler: the configuration file, and how many (one if not told)."""
    file, replicas = request.param if isinstance(request.param, tuple) else (request.param, 1)
    async with AsyncExitStack() as stack:
        server = NatsServer(tmp_path / "nats")
        await server.start()
        stack.push_async_callback(server.stop)
        bus = await NatsBus.start(server.url, name="test")
        stack.push_async_callback(bus.close)
        api = await KubeClient.connect(rig.kubeconfig())
        stack.push_async_callback(api.aclose)

        async def connected() -> bool:
            return bus.connected

        await until(connected, "bus connected", rig)
        await bus.ensure()
        found = Fleet(rig, api, bus)
        await bus.follow((PlacementDecided,), found.on_bus)
        started = [await extender(rig, server.url, stack, "--advertise", f"r{n}") for n in range(replicas)]
        found.replicas = [process for _, process in started]
        url = await Service([int(url.rpartition(":")[2]) for url, _ in started]).start(stack)
        config = yaml.safe_load((CONFIGURATIONS / file).read_text())
        for one in config["extenders"]:
            one["urlPrefix"] = url
        rig.start_scheduler(url, options={
            "profiles": config["profiles"], "extenders": config["extenders"],
        })  # fmt: skip
        stack.callback(rig.kill, "kube-scheduler")
        yield found
        for resource, namespace in ((PODS, "default"), (NODES, None)):
            for item in (await api.list(resource, namespace)).items:
                await api.delete(resource, item["metadata"]["name"], namespace, grace_seconds=0)


own_profile = pytest.mark.parametrize("fleet", ["own-profile.yaml"], indirect=True)


@own_profile
async def test_pods_go_where_they_run_fastest_and_the_rest_wait_with_a_reason(fleet):
    await fleet.node("slow", "3090", 10.0)
    await fleet.node("fast", "4090", 58.0)

    await fleet.pod("one")
    first = await fleet.node_of("one")
    await fleet.pod("two")
    second = await fleet.node_of("two")
    await fleet.pod("huge", vram="90000")
    message = await fleet.refusal("huge")

    assert (first, second) == ("fast", "slow")
    # Both cards are taken, which kube-scheduler finds by itself; the extender is not asked.
    assert "Insufficient nvidia.com/gpu" in message
    assert [(d.pod, d.outcome) for d in fleet.decisions[:2]] == [("one", "ranked"), ("two", "single")]


@own_profile
async def test_what_the_extender_refuses_is_said_on_the_pod_and_tried_again_after_a_touch(fleet):
    await fleet.node("fast", "4090", 58.0)
    await fleet.pod("huge", vram="90000")

    message = await fleet.refusal("huge")
    before = len(fleet.decisions)
    await fleet.api.patch(PODS, "huge", {"metadata": {"annotations": {"flexinfer.ai/touched": "1"}}}, "default")

    assert "1 flexinfer: installed VRAM is too small" in message

    async def asked_again() -> bool:
        return len(fleet.decisions) > before

    await until(asked_again, "another attempt", fleet.rig)


@own_profile
async def test_a_pod_that_fits_nowhere_evicts_nobody(fleet):
    await fleet.node("fast", "4090", 58.0)
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    await fleet.api.create(PRIORITIES, priority)
    await fleet.pod("low")
    await fleet.node_of("low")

    await fleet.pod("high", vram="90000", priorityClassName="urgent")
    message = await fleet.refusal("high")
    survivor = await fleet.get("low")
    await fleet.api.delete(PRIORITIES, "urgent")

    assert "preemption" in message
    assert "deletionTimestamp" not in survivor["metadata"]


@own_profile
async def test_a_pod_whose_eviction_helps_may_evict(fleet):
    await fleet.node("fast", "4090", 58.0)
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    await fleet.api.create(PRIORITIES, priority)
    await fleet.pod("low", terminationGracePeriodSeconds=0)
    await fleet.node_of("low")

    await fleet.pod("high", priorityClassName="urgent")
    node = await fleet.node_of("high")
    await fleet.api.delete(PRIORITIES, "urgent")

    assert node == "fast"


@pytest.mark.parametrize("fleet", ["default-profile.yaml"], indirect=True)
async def test_the_default_scheduler_asks_only_about_pods_with_accelerators(fleet):
    await fleet.node("slow", "3090", 10.0)
    await fleet.node("fast", "4090", 58.0)

    await fleet.pod("gpu", scheduler="default-scheduler")
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"},
             "spec": {"containers": [{"name": "c", "image": "x"}]}}  # fmt: skip
    await fleet.api.create(PODS, plain, "default")

    assert await fleet.node_of("gpu") == "fast"
    assert await fleet.node_of("plain")
    assert {decision.pod for decision in fleet.decisions} == {"gpu"}


@pytest.mark.parametrize("fleet", [("own-profile.yaml", 2)], indirect=True)
async def test_killing_one_of_two_replicas_behind_a_service_loses_and_misplaces_no_pod(fleet):
    # Twice as many fast cards as pods: one that is still reserved for a pod bound elsewhere is then never missed.
    count = 16
    for number in range(2 * count):
        await fleet.node(f"fast-{number:02d}", "4090", 58.0)
    for number in range(4):
        await fleet.node(f"slow-{number}", "3090", 10.0)

    async def bound() -> list[str]:
        pods = (await fleet.api.list(PODS, "default")).items
        return [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]

    async def some_bound() -> bool:
        return len(await bound()) >= 3

    async def all_bound() -> bool:
        return len(await bound()) >= count

    for number in range(count // 2):
        await fleet.pod(f"pod-{number:02d}")
    await until(some_bound, "the first pods bound", fleet.rig)
    fleet.replicas[0].kill()
    for number in range(count // 2, count):
        await fleet.pod(f"pod-{number:02d}")
    await until(all_bound, "all pods bound", fleet.rig)

    nodes = await bound()
    assert len(set(nodes)) == count, "one pod on each card"
    assert all(node.startswith("fast-") for node in nodes)
