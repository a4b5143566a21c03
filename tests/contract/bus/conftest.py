"""The behaviour suite runs on the in-memory bus and on a real nats-server; a rig hides which."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest

from flexinfer.adapters.bus.memory import MemoryBroker, MemoryBus
from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.contracts.topics import DEMAND_TTL_SECONDS
from flexinfer.local.nats_server import NatsServer
from flexinfer.ports import Bus
from flexinfer.testing.bus import DEADLINE, ManualClock, until


class Rig:
    """A server and its clients. ``bus`` connects only, ``ready`` also makes buckets and log."""

    async def bus(self, name: str = "client", *, backlog: int = 65_536) -> Bus:
        raise NotImplementedError

    async def ready(self, name: str = "client", *, backlog: int = 65_536) -> Bus:
        bus = await self.bus(name, backlog=backlog)
        await until(lambda: bus.connected)
        await bus.ensure()
        return bus


class MemoryRig(Rig):
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker(self.clock)
        self.buses: list[MemoryBus] = []

    async def bus(self, name: str = "client", *, backlog: int = 65_536) -> MemoryBus:
        made = MemoryBus(self.broker, backlog=backlog)
        self.buses.append(made)
        return made

    async def crash(self) -> None:
        self.broker.stop()

    async def recover(self) -> None:
        self.broker.start()

    async def wipe(self) -> None:
        self.broker.wipe()

    async def inject(self, subject: str, raw: bytes) -> None:
        self.broker.inject(subject, raw)

    async def inject_state(self, bucket: str, key: str, raw: bytes) -> None:
        self.broker.inject_state(bucket, key, raw)

    async def consumers(self) -> int:
        return 0

    async def expire_demand(self) -> None:
        self.clock.at += DEMAND_TTL_SECONDS + 1

    async def close(self) -> None:
        for bus in self.buses:
            await bus.close()


class NatsRig(Rig):
    def __init__(self, folder: Path) -> None:
        self.server = NatsServer(folder)
        self.buses: list[NatsBus] = []

    async def bus(self, name: str = "client", *, backlog: int = 65_536) -> NatsBus:
        if not self.server.port:
            await self.server.start()
        made = await NatsBus.start(self.server.url, name=name, backlog=backlog)
        self.buses.append(made)
        return made

    async def crash(self) -> None:
        if not self.server.port:
            await self.server.start()  # to have an address that is known and dead
        await self.server.kill()
        await until(lambda: not any(bus.connected for bus in self.buses))

    async def recover(self) -> None:
        await self.server.start()

    async def wipe(self) -> None:
        shutil.rmtree(self.server.store)

    async def inject(self, subject: str, raw: bytes) -> None:
        client = await nats.connect(self.server.url)
        await client.publish(subject, raw)
        await client.flush()
        await client.close()

    async def inject_state(self, bucket: str, key: str, raw: bytes) -> None:
        client = await nats.connect(self.server.url)
        await client.request(f"$KV.flexinfer_{bucket}.{key}", raw, timeout=5)
        await client.close()

    async def consumers(self) -> int:
        return int((await self.api("INFO"))["consumers"])

    async def api(self, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One JetStream call past the code under test."""
        client = await nats.connect(self.server.url)
        answer = await client.request(f"$JS.API.{verb}", msgspec.json.encode(body or {}), timeout=5)
        await client.close()
        found = msgspec.json.decode(answer.data)
        assert "error" not in found, found
        return found

    async def expire_demand(self) -> None:
        """The server goes by its own clock; so shorten the age it allows instead of waiting."""
        config = (await self.api("STREAM.INFO.KV_flexinfer_demand"))["config"]
        assert config["max_age"] == DEMAND_TTL_SECONDS * 1e9
        short = {"max_age": 100_000_000, "duplicate_window": 100_000_000}
        await self.api("STREAM.UPDATE.KV_flexinfer_demand", {**config, **short})
        async with asyncio.timeout(DEADLINE):
            while (await self.api("STREAM.INFO.KV_flexinfer_demand"))["state"]["messages"]:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        for bus in self.buses:
            await bus.close()
        await self.server.stop()


@pytest.fixture(params=["memory", "nats"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    made = MemoryRig() if request.param == "memory" else NatsRig(tmp_path / "nats")
    yield made
    await made.close()


@pytest.fixture
async def spawn() -> AsyncIterator[Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"]]:
    """Starts work beside the test; what still runs at the end is cancelled."""
    tasks: list[asyncio.Task[Any]] = []

    def start(work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        tasks.append(asyncio.get_running_loop().create_task(work))
        return tasks[-1]

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A real server alone."""
    made = NatsServer(tmp_path / "nats")
    await made.start()
    yield made
    await made.stop()
