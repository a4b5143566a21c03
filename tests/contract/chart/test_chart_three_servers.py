"""Three servers of the bus, as the chart configures them: one is lost and comes back, then the leader is lost."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from chart_rendering import Render
from chart_servers import Server, ended, insisted, started

from flexinfer.adapters.bus.nats import Limits
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import NodeHardware
from flexinfer.contracts.topics import bucket_name
from flexinfer.local.ports import free_port
from flexinfer.ports import BusFact, Snapshot

HARDWARE = f"KV_{bucket_name('nodes')}"
NAMES = [f"flexinfer-nats-{number}" for number in range(3)]


class Heard:
    """Nodes that a reader was told of, by a snapshot or live."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        self._more = asyncio.Event()

    def sink(self, fact: BusFact) -> None:
        events = fact.events if isinstance(fact, Snapshot) else (fact,)
        self.nodes |= {event.data.node for event in events if isinstance(event.data, NodeHardware)}
        self._more.set()

    async def of(self, node: str) -> None:
        async with asyncio.timeout(120):
            while node not in self.nodes:
                self._more.clear()
                await self._more.wait()


async def until(check: Callable[[], Awaitable[str]]) -> str:
    """What it says at last. Servers announce neither that they caught up nor whom they chose to lead."""
    async with asyncio.timeout(120):
        while not (found := await check()):  # noqa: ASYNC110 - it is a page that is asked for
            await asyncio.sleep(0.1)
    return found


async def leader(server: Server) -> str:
    """Of the bucket of hardware, as this server knows it; empty while there is none."""
    found = (await server.streams()).get(HARDWARE) or {}
    return str((found.get("cluster") or {}).get("leader") or "")


async def well(server: Server) -> str:
    """Not empty once every stream and consumer of it is up to date."""
    return str(await server.page("/healthz") or "")


async def lost(server: Server) -> None:
    server.process.kill()
    await server.process.wait()


async def test_facts_flow_without_one_server_and_then_without_the_leader(render: Render, tmp_path: Path) -> None:
    ports = {f"{what}{number}": free_port("127.0.0.1") for what in ("client", "route") for number in range(3)}
    objects = render("--set", "nats.replicas=3", "--set", "nats.auth.callout.enabled=false")
    servers = [await started(objects, tmp_path / str(number), ports, number) for number in range(3)]
    try:
        manager = await servers[0].join("manager", limits=Limits(replicas=3), others=servers[1:])
        await insisted(manager.ensure)
        copies = {name: found["config"]["num_replicas"] for name, found in (await servers[0].streams()).items()}
        assert len(copies) > 3
        assert set(copies.values()) == {3}
        agent = await servers[1].join("agent", others=servers)
        reader, heard = await servers[2].join("dashboard", others=servers), Heard()
        await reader.follow((NodeHardware,), heard.sink)
        mint = EventMint.start("agent", "n1", "boot", lambda: 1_700_000_000.0)

        async def told(node: str) -> None:
            await insisted(lambda: agent.publish(mint.mint(NodeHardware(node=node)), durable=True))
            await heard.of(node)

        await told("all")
        other = (NAMES.index(await until(lambda: leader(servers[0]))) + 1) % 3
        await lost(servers[other])
        await told("without-one")

        servers[other] = await started(objects, tmp_path / str(other), ports, other)
        for server in servers:
            await until(lambda server=server: well(server))  # type: ignore[misc]
        chief = NAMES.index(await until(lambda: leader(servers[other])))
        await lost(servers[chief])
        await told("without-the-leader")

        kept = await insisted(lambda: reader.state((NodeHardware,)))
        assert {event.data.node for event in kept if isinstance(event.data, NodeHardware)} == heard.nodes
        assert heard.nodes == {"all", "without-one", "without-the-leader"}
        for bus in (manager, agent, reader):
            await bus.close()
    finally:
        await ended(servers)
