"""Every part is restarted, frozen or lost in turn while clients ask: what serves goes on serving."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import aiohttp
import msgspec
import nats
import pytest
import pytest_asyncio

from flexinfer.contracts.events import BenchCompleted, EventData, ModelEndpoint, ModelPhase, NodeHardware
from flexinfer.contracts.kubernetes import DEPLOYMENTS, JOBS, MODELDEPLOYMENTS, Object
from flexinfer.ports import BusRefused, BusUnavailable
from flexinfer.runtime.tasks import Supervisor
from tests.faults.deck import STREAMS
from tests.faults.hands import model
from tests.faults.house import GPUS, House
from tests.faults.traffic import ask

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

DEADLINE = 300.0
FROZEN_SECONDS = float(os.environ.get("FAULTS_SECONDS", "5"))
CONTROL = ("manager-a", "manager-b", "scheduler", "agent", "placer")


@dataclass
class Clients:
    """Ask all the time, the other proxy when one is not there, as a Service's endpoints make them."""

    house: House
    answers: Counter[str] = field(default_factory=Counter)

    async def _client(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
            while True:
                self.answers[await self._try(session)] += 1
                await asyncio.sleep(0.05)

    async def _try(self, session: aiohttp.ClientSession) -> str:
        first = await ask(session, self.house.proxy_url("proxy-a"), "m0")
        return first if first != "none" else await ask(session, self.house.proxy_url("proxy-b"), "m0")

    async def some(self) -> None:
        """Wait until a few more were answered."""
        async with asyncio.timeout(DEADLINE):
            until = self.answers.total() + 5
            while self.answers.total() < until:  # noqa: ASYNC110 - a counter
                await asyncio.sleep(0.02)


@asynccontextmanager
async def asking(house: House) -> AsyncIterator[Clients]:
    """Two clients; at the end every request must have been answered with 200."""
    tasks, clients = Supervisor("clients"), Clients(house)
    for _ in range(2):
        tasks.once("client", clients._client())
    try:
        await clients.some()
        yield clients
        await clients.some()
    finally:
        await tasks.close()
    assert set(clients.answers) == {"200"}, clients.answers


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """Everything runs, and m0 serves with one replica."""
    made = await House(tmp_path_factory.mktemp("house")).start()
    try:
        await made.kube.create(MODELDEPLOYMENTS, model("m0", 0), "default")
        await serves(made, 1)
        yield made
    finally:
        await made.stop()
        assert made.leftovers() == []


async def serves(house: House, replicas: int) -> Object:
    """Wait until m0 is Running with so many ready replicas; the object."""
    found: Object = {}
    try:
        async with asyncio.timeout(DEADLINE):
            while True:
                found = await house.kube.get(MODELDEPLOYMENTS, "m0", "default")
                status = found.get("status") or {}
                current = status.get("observedGeneration") == found["metadata"]["generation"]
                if status.get("phase") == "Running" and status.get("readyReplicas") == replicas and current:
                    return found
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not {replicas} replicas: {found.get('status')}") from None


async def scale(house: House, replicas: int) -> None:
    await house.kube.patch(MODELDEPLOYMENTS, "m0", {"spec": {"replicas": replicas}}, "default")
    await serves(house, replicas)


async def bus_knows(house: House) -> None:
    """Wait until a fresh reader would find the whole state: nodes, the model, its result, its endpoint."""
    wanted: dict[type[EventData], int] = {NodeHardware: 3, ModelPhase: 1, ModelEndpoint: 1, BenchCompleted: 1}
    found: Counter[type] = Counter()
    try:
        async with asyncio.timeout(DEADLINE):
            while any(found[kind] < count for kind, count in wanted.items()):
                try:
                    found = Counter(type(event.data) for event in await house.bus.state(tuple(wanted)))
                except (BusUnavailable, BusRefused):
                    found = Counter()
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"the bus holds only {found}") from None


async def children(house: House) -> tuple[list[str], list[str]]:
    """Uids of Deployments and Jobs: the same ones, never anew."""
    lists = [await house.kube.list(resource, "default") for resource in (DEPLOYMENTS, JOBS)]
    deployments, jobs = ([item["metadata"]["uid"] for item in page.items] for page in lists)
    return deployments, jobs


@pytest.mark.parametrize("name", [*CONTROL, "proxy-a"])
async def test_a_rolling_restart_loses_no_request(house: House, name: str) -> None:
    program = house.programs[name]
    async with asking(house) as clients:
        assert await program.end(60) == 0
        await clients.some()
        await program.start()
        if program.ops:
            await program.ready()


async def test_a_bus_that_restarts_costs_no_request_and_remembers(house: House) -> None:
    async with asking(house) as clients:
        await house.nats.kill()
        await clients.some()
        await house.nats.start()
        await bus_knows(house)


async def test_a_stream_deleted_by_hand_costs_no_request_and_comes_back(house: House) -> None:
    async with asking(house):
        client = await nats.connect(house.nats.url)
        for stream in STREAMS:
            answer = await client.request(f"$JS.API.STREAM.DELETE.{stream}", b"", timeout=30)
            assert msgspec.json.decode(answer.data)["success"]
        await client.close()
        await bus_knows(house)


async def test_an_api_server_that_restarts_costs_no_request_and_nothing_is_made_twice(house: House) -> None:
    before = await children(house)
    async with asking(house) as clients:
        await house.programs["api"].end(60)
        await clients.some()
        await house.programs["api"].start()
        await house.api_answers()
        await scale(house, 2)
    assert await children(house) == before
    await scale(house, 1)


async def test_all_that_only_controls_may_freeze_and_clients_notice_nothing(house: House) -> None:
    frozen = [house.programs[name] for name in (*CONTROL, "api")]
    assert house.nats.process is not None
    before = await children(house)
    async with asking(house) as clients:
        for program in frozen:
            program.signal(signal.SIGSTOP)
        house.nats.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(FROZEN_SECONDS)  # the length is the fault, nothing is waited for
        await clients.some()
        house.nats.process.send_signal(signal.SIGCONT)
        for program in frozen:
            program.signal(signal.SIGCONT)
        await house.ready()
        await scale(house, 2)
    assert await children(house) == before
    await scale(house, 1)


async def test_a_proxy_that_froze_answers_what_waited(house: House) -> None:
    proxy = house.programs["proxy-b"]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as session:
        proxy.signal(signal.SIGSTOP)
        tasks = Supervisor("waiting")
        waiting = [tasks.once("ask", ask(session, house.proxy_url("proxy-b"), "m0")) for _ in range(5)]
        await asyncio.sleep(1.0)  # they are on their way; how far does not matter
        proxy.signal(signal.SIGCONT)
        assert await asyncio.gather(*waiting) == ["200"] * 5
        await tasks.close()


async def test_an_extender_whose_files_were_all_taken_places_again_when_they_are_back(house: House) -> None:
    extender = house.programs["scheduler"]
    extender.limits = ("sh", "-c", 'ulimit -n 64; exec "$@"', "sh")
    try:
        await extender.end(60)
        await (await extender.start()).ready()
        taken = []
        for _ in range(200):
            with suppress(OSError):
                taken.append(await asyncio.open_connection("127.0.0.1", extender.ops))
        for _, writer in taken:
            writer.transport.abort()
        await extender.ready()
        await scale(house, 2)
        assert extender.running
        await scale(house, 1)
    finally:
        extender.limits = ()


async def test_the_nodes_are_still_those_of_the_start(house: House) -> None:
    """After all of that the extender sees every card."""
    events = await house.bus.state((NodeHardware,))
    cards = Counter(len(event.data.devices) for event in events if isinstance(event.data, NodeHardware))
    assert cards[GPUS] == 2
