"""Three servers of the bus: one is lost, then the leader; what is said is kept, and everybody goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import nats
import pytest
from nats.errors import Error as NatsError

from flexinfer.adapters.bus.nats import Limits, NatsBus
from flexinfer.contracts.events import BenchCompleted, NodeHardware, NodeTelemetry
from flexinfer.local.nats_server import NatsServer
from flexinfer.local.ports import free_port
from flexinfer.ports import BusRefused, BusUnavailable
from flexinfer.testing.bus import Reader, stepping_mint, until
from tests.faults.programs import Program, ours

DEADLINE = 180.0
STREAM = "KV_flexinfer_nodes"
_MIB = 1 << 20
LIMITS = Limits(nodes=8 * _MIB, bench=8 * _MIB, models=8 * _MIB, demand=8 * _MIB, log=16 * _MIB, replicas=3)


class Cluster:
    """Servers by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.servers: list[NatsServer] = []

    async def start(self) -> "Cluster":
        routes = [free_port() for _ in range(3)]
        listed = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
        for number, port in enumerate(routes):
            options = f"cluster {{ name: three, listen: 127.0.0.1:{port}, routes: [ {listed} ] }}"
            self.servers.append(NatsServer(self._folder / f"nats-{number}", options=options))
        await asyncio.gather(*(server.start() for server in self.servers))
        return self

    @property
    def urls(self) -> str:
        return ",".join(server.url for server in self.servers)

    async def leader(self) -> NatsServer:
        """Who leads the bucket of nodes."""
        async with asyncio.timeout(DEADLINE):
            while True:
                found = await self._leader()
                for server in self.servers:
                    if server._name == found and server.process and server.process.returncode is None:
                        return server
                await asyncio.sleep(0.1)

    async def _leader(self) -> str:
        alive = [s.url for s in self.servers if s.process and s.process.returncode is None]
        try:
            client = await nats.connect(alive, connect_timeout=5, max_reconnect_attempts=0)
        except (OSError, TimeoutError, NatsError):
            return ""
        try:
            answer = await client.request(f"$JS.API.STREAM.INFO.{STREAM}", b"", timeout=5)
            told = msgspec.json.decode(answer.data).get("cluster") or {}
            return str(told.get("leader") or "")
        except (OSError, TimeoutError, NatsError):
            return ""
        finally:
            await client.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    made = await Cluster(tmp_path).start()
    yield made
    for server in made.servers:
        await server.kill()


def told(load: int) -> NodeTelemetry:
    return NodeTelemetry(node="n1", interval_seconds=2.0, cpu_util_percent=load)


def result(key: str) -> BenchCompleted:
    return BenchCompleted(
        key=key, namespace="a", model="m", workload="w", source="s", backend="b", device_class="c",
        tokens_per_second=1.0, iterations=1, duration_seconds=1.0,
    )  # fmt: skip


async def insist(bus: NatsBus, event: object) -> None:
    """Publish durably as a benchmark does: again until the bus stored it."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                await bus.publish(event, durable=True)  # type: ignore[arg-type]
                return
            except (BusRefused, BusUnavailable):
                await asyncio.sleep(0.2)


async def knows(bus: NatsBus, load: int, keys: set[str]) -> None:
    """Wait until the store holds the newest telemetry and these results."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                events = [event.data for event in await bus.state((NodeTelemetry, BenchCompleted))]
            except (BusRefused, BusUnavailable):
                events = []
            if told(load) in events and {e.key for e in events if isinstance(e, BenchCompleted)} == keys:
                return
            await asyncio.sleep(0.1)


async def test_one_server_lost_and_then_the_leader_cost_no_word(cluster: Cluster, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        buses = [await NatsBus.start(cluster.urls, name=name, limits=LIMITS) for name in ("manager", "agent", "reader")]
        for bus in buses:
            stack.push_async_callback(bus.close)
        manager, agent, reader_bus = buses
        await until(lambda: all(bus.connected for bus in buses), DEADLINE)
        async with asyncio.timeout(DEADLINE):
            while not await _ensured(manager):  # noqa: ASYNC110 - other processes elect
                await asyncio.sleep(0.2)
        mint, reader = stepping_mint(), Reader()
        await reader_bus.follow((NodeHardware, NodeTelemetry, BenchCompleted), reader)
        await agent.publish(mint.mint(told(1)))
        await insist(agent, mint.mint(result("k1")))
        await knows(reader_bus, 1, {"k1"})
        # a real proxy that knows the routes of all three
        proxy = await _proxy(stack, cluster, tmp_path)

        leader = await cluster.leader()
        follower = next(server for server in cluster.servers if server is not leader)
        await follower.kill()
        await agent.publish(mint.mint(told(2)))
        await insist(agent, mint.mint(result("k2")))
        await knows(reader_bus, 2, {"k1", "k2"})

        await follower.start()
        leader = await cluster.leader()
        await leader.kill()
        await agent.publish(mint.mint(told(3)))
        await insist(agent, mint.mint(result("k3")))
        await knows(reader_bus, 3, {"k1", "k2", "k3"})
        await until(lambda: told(3) in reader.state() and result("k3") in reader.state(), DEADLINE)
        await leader.start()
        await until(lambda: all(bus.connected for bus in buses), DEADLINE)
        await proxy.ready()
        assert proxy.running


async def _ensured(bus: NatsBus) -> bool:
    """False while the cluster elects."""
    try:
        await bus.ensure()
    except (BusRefused, BusUnavailable):
        return False
    return True


async def _proxy(stack: AsyncExitStack, cluster: Cluster, folder: Path) -> Program:
    port = free_port()
    argv = (*ours("flexinfer-proxy"), "--host", "127.0.0.1", "--port", str(port), "--nats-url", cluster.urls)
    made = await Program("proxy", argv, folder / "proxy.log", port).start()
    stack.push_async_callback(made.kill)
    return await made.ready()
