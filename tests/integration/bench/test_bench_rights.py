"""The executable's path on a bus that lets it do only what contracts.permissions says."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.apps.bench import measure
from flexinfer.config.bench import BenchSettings
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import (
    BenchCompleted,
    BenchFailed,
    BenchStarted,
    Device,
    DeviceTelemetry,
    Endpoint,
    EventData,
    ModelDemand,
    ModelEndpoint,
    ModelPhase,
    NodeHardware,
    NodeStatus,
    NodeTelemetry,
)
from flexinfer.contracts.permissions import permissions
from flexinfer.core.lifecycle.naming import job_name
from flexinfer.local.nats_server import NatsServer
from flexinfer.ports import BusRefused
from flexinfer.runtime.clock import SystemClock
from flexinfer.testing.bus import Reader, until
from flexinfer.testing.fake_engine import FakeEngine, Speeds

KEY = "smol-0123456789ab"
CLASS = "nvidia-l4-sm-89-24g-x1"
L4 = Device(index=0, uuid="g", vendor="NVIDIA", product="L4", arch="sm_89", memory_mib=24576)


def user(component: str, client: str, entity: str = "*") -> str:
    rights = permissions(component, client, entity)
    lists = {"publish": rights.publish, "subscribe": rights.subscribe}
    name = client.partition(" ")[0]
    return f'{{ user: "{name}", password: "pw", permissions: {msgspec.json.encode(lists).decode()} }}'


class Guarded:
    """A bus with a bench user for one key (``flexinfer-bench``), one for all keys (``bench-any``), and everybody's
    facts written by one who may do everything."""

    def __init__(self, folder: Path, server: NatsServer, owner: NatsBus) -> None:
        self.folder = folder
        self.server = server
        self.owner = owner
        self.joined: list[NatsBus] = [owner]
        self.mint = EventMint.start("test", "t", "boot-1", SystemClock().now)

    async def join(self, name: str, **options: Path) -> NatsBus:
        file = self.folder / "auth"
        file.write_text(f"{name.partition(' ')[0]}:pw\n")
        bus = await NatsBus.start(self.server.url, name=name, credentials=file, clock=SystemClock(), **options)
        self.joined.append(bus)
        await until(lambda: bus.connected)
        return bus

    async def tell(self, data: EventData) -> None:
        await self.owner.publish(self.mint.mint(data), durable=True)

    async def serve(self, node: str) -> None:
        """The alias of the run is on this node, another key's is elsewhere."""
        for key, place in ((KEY, node), ("other-0123456789ab", "elsewhere")):
            replica = Endpoint(url="http://10.0.0.1:80", pod="p", node=place, device_class=CLASS)
            await self.tell(
                ModelEndpoint(
                    namespace="default", model=job_name(key), backend="llamacpp", endpoints=(replica,), hidden=True
                )
            )


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    users = [
        '{ user: "owner", password: "pw" }',
        user("bench", f"flexinfer-bench {KEY}", KEY),
        user("bench", "bench-any *"),
    ]
    options = "authorization { users = [\n" + "\n".join(users) + "\n] }"
    server = await NatsServer(tmp_path / "nats", options=options).start()
    file = tmp_path / "owner"
    file.write_text("owner:pw\n")
    owner = await NatsBus.start(server.url, name="owner", credentials=file, clock=SystemClock())
    await until(lambda: owner.connected)
    await owner.ensure()
    made = Guarded(tmp_path, server, owner)
    yield made
    for bus in made.joined:
        await bus.close()
    await server.stop()


def settings(engine: FakeEngine, folder: Path, iterations: int = 3) -> BenchSettings:
    return BenchSettings(
        url=engine.url, model=job_name(KEY), key=KEY, model_name="smol", backend="llamacpp", device_class=CLASS,
        node_name="bench-host", min_duration=0, iterations=iterations, batch_size=8, concurrency="1",
        cost_per_hour=0.36, ready_timeout=30, termination_log=folder / "log",
    )  # fmt: skip


@pytest.mark.parametrize("client", [f"flexinfer-bench {KEY}", f"bench-any {KEY}"])
async def test_it_learns_the_node_its_class_and_its_power(guarded: Guarded, engine: FakeEngine, client: str):
    engine.models = (job_name(KEY),)
    engine.speeds = Speeds(tokens_per_second=100)
    await guarded.tell(NodeHardware(node="gpu-1.example.com", devices=(L4,)))
    await guarded.tell(NodeHardware(node="bench-host"))
    await guarded.serve("gpu-1.example.com")
    reader, stop = Reader(), asyncio.Event()
    await guarded.owner.follow((BenchStarted, BenchCompleted, BenchFailed), reader)

    async def draw() -> None:
        reading = DeviceTelemetry(index=0, uuid="g", power_watts=70.0)
        while True:
            told = NodeTelemetry(node="gpu-1.example.com", interval_seconds=0.02, devices=(reading,))
            await guarded.owner.publish(guarded.mint.mint(told, at=time.time()))
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as group:
        drawing = group.create_task(draw())
        # 3 s: readings that come late on a busy machine must still cover most of the stage.
        code = await measure(settings(engine, guarded.folder, 40), await guarded.join(client), stop)
        drawing.cancel()

    assert code == 0
    await until(lambda: any(isinstance(event.data, BenchCompleted) for event in reader.events))
    [done] = [event.data for event in reader.events if isinstance(event.data, BenchCompleted)]
    assert (done.node, done.device_class) == ("gpu-1.example.com", CLASS)
    assert done.joules_per_token is not None
    assert done.joules_per_token == pytest.approx(70.0 / done.curve[0].tokens_per_second, rel=0.2)
    assert done.cost_per_million_tokens == pytest.approx(100.0 / done.curve[0].tokens_per_second)


async def test_another_class_is_found_out(guarded: Guarded, engine: FakeEngine):
    engine.models = (job_name(KEY),)
    await guarded.tell(NodeHardware(node="cpu-1"))
    await guarded.serve("cpu-1")
    reader = Reader()
    await guarded.owner.follow((BenchFailed,), reader)

    code = await measure(
        settings(engine, guarded.folder), await guarded.join(f"flexinfer-bench {KEY}"), asyncio.Event()
    )

    assert code == 6
    await until(lambda: bool(reader.events))
    assert reader.events[0].data.reason == "WrongDeviceClass"
    assert "cpu-1" in reader.events[0].data.message


async def test_it_may_read_and_say_nothing_else(guarded: Guarded):
    bench = await guarded.join(f"flexinfer-bench {KEY}")
    await guarded.serve("gpu-1")
    mine = ("default", job_name(KEY))
    assert len(await bench.state((ModelEndpoint,), mine)) == 1
    assert await bench.state((NodeHardware,), ("gpu-1",)) == ()

    for types, names in (
        ((ModelEndpoint,), ("default", job_name("other-0123456789ab"))),
        ((ModelEndpoint,), ()),
        ((ModelPhase,), mine),
        ((NodeStatus,), ("gpu-1",)),
        ((NodeHardware, NodeTelemetry), ()),
        ((BenchCompleted,), (KEY,)),
        ((ModelDemand,), ()),
    ):
        with pytest.raises(BusRefused, match="denies"):
            await bench.state(types, names)
    with pytest.raises(BusRefused, match="denies"):
        await bench.history()
    with pytest.raises(BusRefused, match="denies"):
        await bench.publish(guarded.mint.mint(NodeHardware(node="gpu-1")), durable=True)
    failed = BenchFailed(key="other-0123456789ab", namespace="a", model="m", reason="R", message="m", remedy="r")
    with pytest.raises(BusRefused, match="denies"):
        await bench.publish(guarded.mint.mint(failed), durable=True)
