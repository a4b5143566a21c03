"""A real bus, the embedded API, the real executable and the scheduler loop of one-machine mode."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest

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
from flexinfer.contracts.kubernetes import NODES, PODS, Object
from flexinfer.core.hardware.device_class import device_class
from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.local.nats_server import NatsServer
from flexinfer.local.ports import free_port
from flexinfer.local.schedloop import SchedulerLoop
from flexinfer.ports import BusFact, Snapshot
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.tasks import Supervisor

DEADLINE = 90.0
CARDS = {
    "4090": ("NVIDIA GeForce RTX 4090", "sm_89", 24564),
    "3090": ("NVIDIA GeForce RTX 3090", "sm_86", 24576),
}


def card(node: str, kind: str) -> Device:
    product, arch, memory = CARDS[kind]
    return Device(
        index=0, uuid=f"GPU-{node}", vendor="NVIDIA", product=product, arch=arch, memory_mib=memory, int4=True
    )


async def until(check: Callable[[], Any], what: str) -> Any:
    """Wait until ``check`` (plain or awaitable) gives something true; fails after DEADLINE."""
    try:
        async with asyncio.timeout(DEADLINE):
            while True:
                found = check()
                if asyncio.iscoroutine(found):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"not within {DEADLINE:.0f} s: {what}")


class Cluster:
    """The parts, and shorthands to use them."""

    def __init__(self, server: NatsServer, embedded: EmbeddedApi, api: KubeClient, bus: NatsBus, folder: Path) -> None:
        self.server = server
        self.embedded = embedded
        self.api = api
        self.bus = bus
        self.kubeconfig = folder / "kubeconfig"
        self.decisions: list[PlacementDecided] = []
        self.supervisor = Supervisor("test")
        self._mints: dict[str, EventMint] = {}
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = await self._stack.enter_async_context(aiohttp.ClientSession())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.supervisor.close()
        await self._stack.aclose()

    until = staticmethod(until)
    free_port = staticmethod(free_port)

    def on_bus(self, fact: BusFact) -> None:
        if not isinstance(fact, Snapshot) and isinstance(fact.data, PlacementDecided):
            self.decisions.append(fact.data)

    async def extender(self, *flags: str, ready: bool = True) -> tuple[str, asyncio.subprocess.Process]:
        """Start one; its URL and process."""
        port = free_port()
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "flexinfer-sched"), "--host", "127.0.0.1", "--port", str(port),
            "--nats-url", self.server.url, "--kubeconfig", str(self.kubeconfig), *flags,
        )  # fmt: skip
        self._stack.push_async_callback(stop, process)
        url = f"http://127.0.0.1:{port}"
        if ready:
            await until(lambda: self.status(url, "/readyz", 200), "extender ready")
        return url, process

    async def command(self, name: str, *args: str) -> str:
        """Output of ``flexinfer <name>``, empty if it failed."""
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "flexinfer"), name, "--nats-url", self.server.url, *args,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        out, _ = await process.communicate()
        return out.decode() if process.returncode == 0 else ""

    async def status(self, url: str, path: str, wanted: int) -> bool:
        assert self._session is not None
        with suppress(aiohttp.ClientError):
            async with self._session.get(url + path) as response:
                return response.status == wanted
        return False

    async def get(self, url: str) -> Any:
        assert self._session is not None
        async with self._session.get(url) as response:
            return await response.json()

    async def post(self, url: str, body: Any) -> Any:
        assert self._session is not None
        async with self._session.post(url, json=body) as response:
            return await response.json()

    def schedule(self, url: str) -> None:
        """Run the scheduler loop against an extender."""
        self.supervisor.forever("loop", SchedulerLoop(self.api, url).run)

    async def tell(self, source: str, data: EventData) -> None:
        mint = self._mints.setdefault(source, EventMint.start("agent", source, "boot", SystemClock().now))
        await self.bus.publish(mint.mint(data))

    async def measured(self, workload: str, kind: str, speed: float) -> None:
        """A benchmark result on the bus."""
        result = BenchCompleted(
            key=f"{workload}-{kind}", namespace="default", model="m", workload=workload, source="hf://m",
            backend="vllm", device_class=device_class(card("x", kind), 1), tokens_per_second=speed, iterations=5,
            duration_seconds=30.0,
        )  # fmt: skip
        await self.tell(f"bench-{workload}-{kind}", result)

    async def gpu_node(self, name: str, kind: str = "4090", util: float = 0.0, **annotations: str) -> None:
        """A Node with one card, known to the API and the bus."""
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": annotations}}
        await self.api.create(NODES, body)
        device = card(name, kind)
        await self.tell(name, NodeHardware(node=name, devices=(device,)))
        await self.live(name, util, device.memory_mib or 0)

    async def live(self, name: str, util: float, free: int) -> None:
        live = DeviceTelemetry(index=0, uuid=f"GPU-{name}", util_percent=util, memory_free_mib=free)
        await self.tell(name, NodeTelemetry(node=name, interval_seconds=30.0, devices=(live,)))

    async def pod(self, name: str, gpus: int = 1, **annotations: str) -> Object:
        """A pod for our scheduler."""
        keys = {"key": "flexinfer.ai/benchmark-key", "vram": "flexinfer.ai/gpu.vram-estimate-mb"}
        resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        body = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {keys[key]: value for key, value in annotations.items()}},
            "spec": {
                "schedulerName": "flexinfer-scheduler",
                "containers": [{"name": "c", "image": "engine", "resources": resources}],
            },
        }  # fmt: skip
        return await self.api.create(PODS, body, "default")

    async def node_of(self, pod: str) -> str:
        found = await self.api.get(PODS, pod, "default")
        return str(found["spec"].get("nodeName") or "")


async def stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        await process.wait()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        server = NatsServer(tmp_path / "nats")
        await server.start()
        stack.push_async_callback(server.stop)
        embedded = EmbeddedApi()
        await embedded.start()
        stack.push_async_callback(embedded.stop)
        embedded.write_kubeconfig(tmp_path / "kubeconfig")
        api = await KubeClient.connect(tmp_path / "kubeconfig")
        stack.push_async_callback(api.aclose)
        bus = await NatsBus.start(server.url, name="test")
        stack.push_async_callback(bus.close)
        await until(lambda: bus.connected, "bus connected")
        await bus.ensure()
        found = await stack.enter_async_context(Cluster(server, embedded, api, bus, tmp_path))
        await bus.follow((PlacementDecided,), found.on_bus)
        yield found
