"""The agent as a process beside a real bus and the embedded API: start in any order, drain, end, keep going."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.contracts.events import NodeHardware, NodeStatus, NodeTelemetry, PodMismatch
from flexinfer.contracts.kubernetes import EVENTS, NODES, PODS, Object
from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.local.nats_server import NatsServer
from flexinfer.ports import BusUnavailable, Snapshot

DEADLINE = 90.0
P = "flexinfer.ai/"
AMD_CASE = (Path(__file__).resolve().parents[2] / "captures" / "gpu" / "amd-7900xtx-baseline.json").read_text()


class World:
    """A bus, an API with one Node, and the events seen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nats = NatsServer(folder / "nats")
        self.api = EmbeddedApi()
        self.kubeconfig = folder / "kubeconfig"
        self.client: KubeClient | None = None
        self.bus: NatsBus | None = None
        self.seen: list[Any] = []
        self.grown = asyncio.Event()
        self.agents: list[asyncio.subprocess.Process] = []

    async def start_api(self) -> None:
        await self.api.start()
        self.api.write_kubeconfig(self.kubeconfig)
        self.client = await KubeClient.connect(self.kubeconfig)
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "annotations": {P + "cost": "1"}}}
        await self.client.create(NODES, node)

    async def start_bus(self) -> None:
        await self.nats.start()
        self.bus = await NatsBus.start(self.nats.url, name="test")
        async with asyncio.timeout(DEADLINE):
            while True:
                try:
                    await self.bus.ensure()
                except BusUnavailable:
                    await asyncio.sleep(0.05)
                else:
                    break
        await self.bus.follow((NodeHardware, NodeTelemetry, NodeStatus, PodMismatch), self._take)

    def _take(self, fact: Any) -> None:
        self.seen += [event.data for event in fact.events] if isinstance(fact, Snapshot) else [fact.data]
        self.grown.set()

    async def agent(self, *args: str, **environ: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "from flexinfer.cli import agent; agent()", "--node-name", "n1",
            "--nats-url", self.nats.url, "--kubeconfig", str(self.kubeconfig),
            "--metrics-host", "127.0.0.1", "--metrics-port", "0", "--telemetry-interval", "500ms", *args,
            env={"PATH": str(self.folder / "bin"), "PYTHONPATH": ":".join(sys.path), **environ},
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self.agents.append(process)
        return process

    async def until(self, true: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(DEADLINE):
            while not (found := [data for data in self.seen if true(data)]):
                self.grown.clear()
                await self.grown.wait()
        return found[0]

    async def node(self, true: Callable[[Object], bool]) -> Object:
        assert self.client
        async with asyncio.timeout(DEADLINE):
            while not true(found := (await self.client.get(NODES, "n1"))["metadata"]):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        return found


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    for process in made.agents:
        if process.returncode is None:
            process.kill()
        await process.communicate()
    if made.bus:
        await made.bus.close()
    await made.nats.stop()
    if made.client:
        await made.client.aclose()
    await made.api.stop()


def is_hardware(data: Any) -> bool:
    return isinstance(data, NodeHardware)


async def test_the_life_of_an_agent(world: World) -> None:
    await world.start_bus()
    await world.start_api()
    drain = world.folder / "root" / "run" / "flexinfer" / "drain"
    drain.parent.mkdir(parents=True)
    agent = await world.agent("--root", str(world.folder / "root"))

    hardware = await world.until(is_hardware)
    await world.until(lambda data: isinstance(data, NodeStatus) and data.state == "online")
    await world.until(lambda data: isinstance(data, NodeTelemetry) and data.kv_cache_ratio == 0.0)
    meta = await world.node(lambda found: P + "kv-cache-usage" in found["annotations"])
    drain.write_text("moving house\n")
    await world.until(
        lambda data: isinstance(data, NodeStatus) and (data.state, data.reason) == ("draining", "moving house")
    )
    agent.send_signal(signal.SIGTERM)
    offline = await world.until(lambda data: isinstance(data, NodeStatus) and data.state == "offline")

    assert await asyncio.wait_for(agent.wait(), DEADLINE) == 0
    assert offline.reason == "the agent was stopped"
    assert {**hardware.labels, P + "enabled": "true"} == meta["labels"]
    assert meta["annotations"][P + "cost"] == "1"


async def test_the_agent_may_be_first(world: World) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        world.nats = NatsServer(world.folder / "nats", port=taken.getsockname()[1])
    await world.api.start()
    world.api.write_kubeconfig(world.kubeconfig)
    await world.api.stop()
    agent = await world.agent()
    assert agent.stderr
    async with asyncio.timeout(DEADLINE):
        while b"Node:" not in await agent.stderr.readline():
            assert not agent.stderr.at_eof()

    await world.start_bus()
    await world.until(is_hardware)
    await world.start_api()  # the same address and state again
    meta = await world.node(lambda found: bool(found.get("labels")))

    assert meta["labels"][P + "gpu.count"] == "0"


async def test_a_pod_that_does_not_fit_is_told(world: World) -> None:
    await world.start_bus()
    await world.start_api()
    assert world.client
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "greedy", "namespace": "default"},
        "spec": {"nodeName": "n1", "containers": [
            {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
    }  # fmt: skip
    await world.client.create(PODS, pod, "default")
    await world.agent()

    told = await world.until(lambda data: isinstance(data, PodMismatch))
    async with asyncio.timeout(DEADLINE):
        while not (listed := (await world.client.list(EVENTS, "default")).items):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)

    assert told.reasons == ("asks for 2 NVIDIA accelerators, the node has no usable accelerator",)
    assert (listed[0]["type"], listed[0]["reason"], listed[0]["regarding"]["name"]) == (
        "Warning", "HardwareMismatch", "greedy",
    )  # fmt: skip


async def test_a_hanging_tool_does_not_keep_the_other_vendor_waiting(world: World, player: Any) -> None:
    case = json.loads(AMD_CASE)
    nvidia = "/sys/bus/pci/devices/0000:17:00.0"
    case["inputs"]["files"] |= {
        f"{nvidia}/vendor": "0x10de\n",
        f"{nvidia}/device": "0x2330\n",
        f"{nvidia}/class": "0x030200\n",
    }
    case["inputs"] |= {"nvidia-smi": {"timeout": True}, "chroot /host nvidia-smi": {"timeout": True}}
    _, root = player.materialize(case, world.folder)
    await world.start_bus()
    await world.start_api()

    await world.agent("--root", str(root), "--interval", "3s")
    hardware = await world.until(is_hardware)

    assert len(hardware.devices) == 1  # the first event: the vendor that hangs is not in it yet
    assert hardware.labels[P + "gpu.vendor"] == "AMD"
    assert hardware.labels[P + "gpu.vram"] == "24Gi"
    late = await world.until(lambda data: is_hardware(data) and len(data.devices) == 2)
    assert late.devices[0].health.state == "timeout"


async def test_a_busy_port_is_said_and_the_agent_goes_on(world: World) -> None:
    await world.start_bus()
    await world.start_api()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        agent = await world.agent("--metrics-port", str(port))
        await world.until(is_hardware)
        assert agent.stderr
        async with asyncio.timeout(DEADLINE):
            while b"cannot listen" not in (line := await agent.stderr.readline()):
                assert line

    said = json.loads(line)
    assert said["level"] == "error"
    assert f"127.0.0.1:{port}" in said["message"]
    assert agent.returncode is None
