"""A real agent in a network of its own is cut off from the bus: one way, the other way, both, again and again."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.contracts.events import NodeHardware, NodeTelemetry
from flexinfer.local.nats_server import NatsServer
from flexinfer.local.processes import die_with_parent
from flexinfer.ports import BusFact, Snapshot
from tests.cluster.kubelet.netns import CLONE_NEWNET, _libc, ip, missing, new_namespace, private_network
from tests.faults.programs import ours

BUS, AGENT = "10.251.0.1", "10.251.0.2"
NOWHERE = "02:00:00:00:00:01"  # no card has it: what is sent there is dropped by the other end, unseen by the sender
DEADLINE = 180.0

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"NOT RUN: partitions by network namespaces: {missing()}")


class Heard:
    """What a reader beside the bus hears of the node."""

    def __init__(self) -> None:
        self.telemetry = 0
        self.boots: set[str] = set()
        self.news = asyncio.Event()

    def sink(self, fact: BusFact) -> None:
        for event in fact.events if isinstance(fact, Snapshot) else (fact,):
            self.boots.add(event.bootid)
            if isinstance(event.data, NodeTelemetry) and not isinstance(fact, Snapshot):
                self.telemetry += 1
                self.news.set()

    async def more(self, count: int = 3) -> None:
        """Wait until the node was heard again."""
        async with asyncio.timeout(DEADLINE):
            until = self.telemetry + count
            while self.telemetry < until:
                self.news.clear()
                await self.news.wait()

    async def silence(self) -> None:
        """Wait until nothing was heard for a while."""
        async with asyncio.timeout(DEADLINE):
            while True:
                self.news.clear()
                try:
                    await asyncio.wait_for(self.news.wait(), 2.5)
                except TimeoutError:
                    return


class Wire:
    """The two ends of a cable; ``inside`` is the agent's namespace, the bus is in the caller's."""

    def __init__(self) -> None:
        self.inside = new_namespace(
            "link set lo up", "link add eth0 type veth peer name flx0 netns {parent}",
            f"addr add {AGENT}/30 dev eth0", "link set eth0 up",
        )  # fmt: skip
        ip(f"addr add {BUS}/30 dev flx0", "link set flx0 up")

    async def drop(self, *ways: str) -> None:
        """``down``: what the bus sends is lost; ``up``: what the agent sends is."""
        if "down" in ways:
            ip(f"neigh replace {AGENT} dev flx0 lladdr {NOWHERE} nud permanent")
        if "up" in ways:
            await self._within(f"neigh replace {BUS} dev eth0 lladdr {NOWHERE} nud permanent")

    async def heal(self) -> None:
        ip(f"neigh replace {AGENT} dev flx0 lladdr {NOWHERE} nud permanent", f"neigh del {AGENT} dev flx0")
        here = f"neigh replace {BUS} dev eth0 lladdr {NOWHERE} nud permanent"
        await self._within(here, f"neigh del {BUS} dev eth0")

    async def _within(self, *lines: str) -> None:
        process = await self.spawn("ip", "-batch", "-", stdin=asyncio.subprocess.PIPE)
        await process.communicate("".join(f"{line}\n" for line in lines).encode())
        assert process.returncode == 0

    async def spawn(self, *argv: str, **options: object) -> asyncio.subprocess.Process:
        """A process in the agent's namespace."""
        handle, dies = self.inside, die_with_parent()

        def enter() -> None:
            if _libc.setns(handle, CLONE_NEWNET):
                os._exit(1)
            if dies:
                dies()

        return await asyncio.create_subprocess_exec(*argv, preexec_fn=enter, **options)  # type: ignore[arg-type]


@pytest.fixture
def apart() -> Iterator[None]:
    """The test gets a network of its own; the machine's is not touched."""
    with private_network():
        yield


def test_an_agent_that_was_cut_off_is_heard_again_without_a_restart(apart: None, tmp_path: Path) -> None:
    asyncio.run(scenario(tmp_path))


async def scenario(folder: Path) -> None:
    wire, heard = Wire(), Heard()
    server = await NatsServer(folder / "nats", host="0.0.0.0").start()
    bus = await NatsBus.start(f"nats://127.0.0.1:{server.port}", name="reader")
    while not bus.connected:  # noqa: ASYNC110 - the port has no event for it
        await asyncio.sleep(0.02)
    await bus.ensure()
    log = (folder / "agent.log").open("ab")
    agent = await wire.spawn(
        *ours("flexinfer-agent"), "--nats-url", f"nats://{BUS}:{server.port}", "--node-name", "apart",
        "--telemetry-interval", "500ms", "--metrics-host", "127.0.0.1", "--metrics-port", "0",
        "--kubeconfig", str(_nowhere(folder)), stdout=log, stderr=log,
    )  # fmt: skip
    try:
        await bus.follow((NodeHardware, NodeTelemetry), heard.sink)
        await heard.more()
        for ways in (("up",), ("down",), ("up", "down")):
            await wire.drop(*ways)
            if "up" in ways:
                await heard.silence()
            else:
                await asyncio.sleep(2.0)  # the agent is heard, and hears nothing: its writes stay unanswered
            await wire.heal()
            await heard.more()
        for _ in range(5):
            await wire.drop("up", "down")
            await asyncio.sleep(0.3)  # the flapping itself
            await wire.heal()
            await asyncio.sleep(0.3)
        await heard.more()
        await bus.state((NodeHardware,))
        assert agent.returncode is None
        assert len(heard.boots) == 1, "one boot of the agent: nobody restarted it"
        agent.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(agent.wait(), DEADLINE) == 0
    finally:
        if agent.returncode is None:
            agent.kill()
            await agent.wait()
        log.close()
        await bus.close()
        await server.kill()
        os.close(wire.inside)


def _nowhere(folder: Path) -> Path:
    """A kubeconfig of an API server that is not there: what this agent says does not depend on it."""
    path = folder / "kubeconfig"
    path.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'"
        "}}], users: [{name: c, user: {token: t}}], contexts: [{name: c, context: {cluster: c, user: c}}]}"
    )
    return path
