"""A stream of the bus is deleted by hand while everybody stays connected: nobody is told, and all of it comes back."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import nats
import pytest

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.contracts.events import BenchCompleted, Device, ModelPhase, NodeHardware, NodeTelemetry
from flexinfer.local.nats_server import NatsServer
from flexinfer.testing.bus import Reader, stepping_mint, until

HARDWARE = NodeHardware(node="n1", devices=(Device(index=0, uuid="g", vendor="AMD"),))
PHASE = ModelPhase(namespace="a", model="m", kind="Model", phase="Running", reason="Serves", message="1 of 1")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    made = await NatsServer(tmp_path / "nats").start()
    yield made
    await made.kill()


async def delete(server: NatsServer, stream: str) -> None:
    client = await nats.connect(server.url)
    answer = await client.request(f"$JS.API.STREAM.DELETE.{stream}", b"", timeout=30)
    await client.close()
    assert msgspec.json.decode(answer.data)["success"]


async def connected(server: NatsServer, name: str) -> NatsBus:
    bus = await NatsBus.start(server.url, name=name)
    await until(lambda: bus.connected)
    return bus


async def stored(bus: NatsBus, kind: type) -> None:
    """Wait until the bus keeps something of this kind."""
    async with asyncio.timeout(90):
        while not await bus.state((kind,)):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


async def test_what_agents_said_comes_back_with_their_next_word(server: NatsServer) -> None:
    manager, agent = await connected(server, "manager"), await connected(server, "agent")
    mint = stepping_mint()
    await manager.ensure()
    await agent.publish(mint.mint(HARDWARE))
    for _ in range(5):
        await agent.publish(mint.mint(NodeTelemetry(node="n1", interval_seconds=2.0)))
    await stored(manager, NodeTelemetry)
    reader = Reader()
    await manager.follow((NodeHardware,), reader)

    await delete(server, "KV_flexinfer_nodes")
    await manager.ensure()
    await agent.publish(mint.mint(NodeTelemetry(node="n1", interval_seconds=2.0)))

    await stored(manager, NodeHardware)
    assert reader.state() == [HARDWARE]
    assert len(reader.snapshots) == 1, "what is known of nodes is not doubted"
    for bus in (agent, manager):
        await bus.close()


async def test_what_was_said_before_the_connection_broke_comes_back_too(
    server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    manager, agent = await connected(server, "manager"), await connected(server, "agent")
    mint = stepping_mint()
    await manager.ensure()
    await agent.publish(mint.mint(HARDWARE))
    await stored(manager, NodeHardware)
    await server.kill()
    await until(lambda: not (agent.connected or manager.connected))
    await server.start()
    await until(lambda: agent.connected and manager.connected)
    await stored(manager, NodeHardware)

    await delete(server, "KV_flexinfer_nodes")
    await agent.publish(mint.mint(NodeTelemetry(node="n1", interval_seconds=2.0)))
    await until(lambda: "does not exist yet" in caplog.text)
    await manager.ensure()

    await stored(manager, NodeHardware)
    for bus in (agent, manager):
        await bus.close()


async def test_what_the_manager_said_comes_back_at_once_and_it_reads_again_what_others_said(server: NatsServer) -> None:
    manager = await connected(server, "manager")
    mint = stepping_mint("m1", component="manager")
    await manager.ensure()
    await manager.publish(mint.mint(PHASE), durable=True)
    results, models = Reader(), Reader()
    await manager.follow((BenchCompleted,), results)
    await manager.follow((ModelPhase,), models)
    assert models.state() == [PHASE]

    for stream in ("KV_flexinfer_models", "KV_flexinfer_bench"):
        await delete(server, stream)
    await manager.ensure()

    await stored(manager, ModelPhase)
    await until(lambda: len(results.snapshots) == 2)
    await until(lambda: models.state() == [PHASE])
    await manager.close()


async def test_who_provisions_later_notices_that_another_made_it_again(server: NatsServer) -> None:
    leader, follower = await connected(server, "leader"), await connected(server, "follower")
    await leader.ensure()
    await follower.ensure()
    mint = stepping_mint("m1", component="manager")
    await leader.publish(mint.mint(PHASE), durable=True)
    models = Reader()
    await leader.follow((ModelPhase,), models)

    await delete(server, "KV_flexinfer_models")
    await follower.ensure()
    await leader.ensure()

    await stored(follower, ModelPhase)
    await until(lambda: len(models.snapshots) == 2)
    await until(lambda: models.state() == [PHASE])
    for bus in (leader, follower):
        await bus.close()
