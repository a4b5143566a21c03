"""A snapshot taken at a reconnect may be older than what was heard live meanwhile."""

from typing import Any

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import Cpu, NodeHardware, NodeStatus
from flexinfer.core.lifecycle.fold_events import fold_event, fold_snapshot

TYPES = (NodeHardware, NodeStatus)


def _hardware(threads: int) -> NodeHardware:
    return NodeHardware(node="n", cpu=Cpu(model="X", threads=threads, memory_mib=8000))


def test_the_live_word_of_a_new_boot_stands_and_is_listened_to(sim: Any) -> None:
    old = EventMint.start("agent", "n", "old", lambda: sim.now)
    stored = old.mint(_hardware(2))
    sim.now += 60
    new = EventMint.start("agent", "n", "new", lambda: sim.now)
    fold_event(sim.view, new.mint(_hardware(4)), sim.now)
    fold_snapshot(sim.view, TYPES, (stored,), sim.now)
    assert sim.view.hardware("n").cpu.threads == 4

    sim.now += 1
    fold_event(sim.view, new.mint(_hardware(8)), sim.now)
    assert sim.view.hardware("n").cpu.threads == 8


def test_what_a_wiped_bus_forgot_is_taken_again_when_it_is_put_back(sim: Any) -> None:
    agent = EventMint.start("agent", "n", "b", lambda: sim.now)
    event = agent.mint(_hardware(2))
    fold_event(sim.view, event, sim.now)
    fold_snapshot(sim.view, TYPES, (), sim.now)
    assert sim.view.hardware("n") is None

    fold_snapshot(sim.view, TYPES, (event,), sim.now)
    assert sim.view.hardware("n") == event.data
