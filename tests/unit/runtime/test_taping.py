"""A tape of a process that decides nothing: what it was told and what it said, in order."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from flexinfer.adapters.bus.memory import MemoryBroker, MemoryBus
from flexinfer.config.agent import AgentSettings
from flexinfer.config.bench import BenchSettings
from flexinfer.config.dashboard import DashboardSettings
from flexinfer.config.manager import ManagerSettings
from flexinfer.config.proxy import GlobalProxySettings, ProxySettings
from flexinfer.config.scheduler import SchedulerSettings
from flexinfer.contracts.events import NodeStatus
from flexinfer.contracts.kubernetes import KubeDelta
from flexinfer.ports import BusFact, KubeFact, Snapshot
from flexinfer.runtime.journal import read_tape
from flexinfer.runtime.taping import Tape
from flexinfer.testing.bus import ManualClock, stepping_mint, until


@pytest.mark.parametrize(
    "settings",
    [AgentSettings, BenchSettings, DashboardSettings, ManagerSettings, GlobalProxySettings, ProxySettings,
     SchedulerSettings],
)  # fmt: skip
def test_every_executable_can_be_recorded(settings: type) -> None:
    assert "record" in settings.model_fields


async def test_what_is_heard_and_said_is_written_before_it_is_handed_on(tmp_path: Path) -> None:
    clock, heard = ManualClock(), []
    broker = MemoryBroker(clock)
    broker.ensure()
    async with AsyncExitStack() as stack:
        tape = Tape.open(AgentSettings(record=tmp_path, nats_url="nats://u:secret@h"), "agent", "n1", clock.now, stack)
        bus = tape.bus(MemoryBus(broker))

        def sink(fact: BusFact) -> None:
            heard.append(fact)

        def kube(fact: KubeFact) -> None:
            heard.append(fact)

        await bus.follow((NodeStatus,), sink)
        mint = stepping_mint()
        await bus.publish(mint.mint(NodeStatus(node="n1", state="online")))
        tape.sink(kube)(KubeDelta(plural="pods", action="ADDED", object={"metadata": {"name": "p"}}))
        await until(lambda: len(heard) == 3)
        await bus.state((NodeStatus,))
        await bus.close()

    [path] = tmp_path.iterdir()  # noqa: ASYNC240 - nothing runs beside it
    found = read_tape(path)
    assert found.bad == ()
    assert [type(fact).__name__ for _, fact in found.facts] == ["Snapshot", "Event", "KubeDelta", "Event", "Event"]
    assert isinstance(found.facts[0][1], Snapshot)
    assert found.header.component == "agent"
    assert b"secret" not in path.read_bytes()


async def test_without_a_directory_the_bus_is_the_bus_itself() -> None:
    async with AsyncExitStack() as stack:
        tape = Tape.open(AgentSettings(), "agent", "n1", ManualClock().now, stack)
        bus = MemoryBus(MemoryBroker())

        def sink(_fact: BusFact) -> None:
            """Nobody hears it."""

        assert tape.bus(bus) is bus
        assert tape.sink(sink) is sink
