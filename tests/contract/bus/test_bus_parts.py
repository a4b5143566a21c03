"""The parts both buses share, alone; and the in-memory bus under any order of faults."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexinfer.adapters.bus.background import Background
from flexinfer.adapters.bus.broker import matches
from flexinfer.adapters.bus.following import Delivery
from flexinfer.adapters.bus.inbound import topics_of
from flexinfer.adapters.bus.memory import MemoryBroker, MemoryBus
from flexinfer.adapters.bus.outbound import Outbox, Sampler, Unsendable, pack
from flexinfer.contracts.events import ModelEndpoint, NodeStatus, NodeTelemetry
from flexinfer.ports import Snapshot
from flexinfer.testing.bus import ManualClock, Reader, stepping_mint, until


def status(node: str, state: str = "online") -> NodeStatus:
    return NodeStatus(node=node, state=state)


def packed(mint, data):
    return pack(mint.mint(data), "default")


# --- outbox ----------------------------------------------------------------------------------------------------


def test_the_outbox_keeps_the_newest_of_each_key():
    box, mint = Outbox(), stepping_mint()
    first, _ = box.offer(packed(mint, status("n1")), "nodes")
    second, _ = box.offer(packed(mint, status("n1", "draining")), "nodes")
    assert not box.current(first)
    assert box.pending() == [second]


def test_a_full_outbox_lets_stored_keys_go_first():
    box, mint = Outbox(capacity=2), stepping_mint()
    stored, _ = box.offer(packed(mint, status("n1")), "nodes")
    waiting, _ = box.offer(packed(mint, status("n2")), "nodes")
    box.stored(stored)
    _, kept = box.offer(packed(mint, status("n3")), "nodes")
    assert kept
    assert box.current(waiting)
    _, kept = box.offer(packed(mint, status("n4")), "nodes")
    assert not kept  # something unsaved had to go, and that is told
    assert len(box.writes) == 2


def test_what_was_sent_without_an_answer_is_sent_again():
    box, mint = Outbox(), stepping_mint()
    write, _ = box.offer(packed(mint, status("n1")), "nodes")
    write.state = "sent"
    assert box.unconfirmed()
    assert box.pending() == []
    box.disconnected()
    assert box.pending() == [write]


def test_a_stored_retraction_is_forgotten():
    box, mint = Outbox(), stepping_mint()
    gone = ModelEndpoint(namespace="a", model="m", backend="vllm", gone=True)
    write, _ = box.offer(packed(mint, gone), "models")
    box.stored(write)
    assert not box.writes


def test_an_answer_to_an_old_write_does_not_drop_a_newer_one():
    box, mint = Outbox(), stepping_mint()
    gone, _ = box.offer(packed(mint, ModelEndpoint(namespace="a", model="m", backend="v", gone=True)), "models")
    back, _ = box.offer(packed(mint, ModelEndpoint(namespace="a", model="m", backend="v")), "models")
    box.stored(gone)
    assert box.current(back)


def test_a_late_retry_is_outdated_and_a_new_boot_is_not():
    box, mint = Outbox(), stepping_mint()
    old, new = mint.mint(status("n1")), mint.mint(status("n1", "draining"))
    box.offer(pack(new, "default"), "nodes")
    assert box.outdated(pack(old, "default"))
    assert not box.outdated(pack(new, "default"))
    assert not box.outdated(packed(stepping_mint(boot="b2"), status("n1")))


def test_samples_are_a_minute_apart_per_subject():
    sampler = Sampler()
    taken = [now for now in range(0, 300, 2) if sampler.due("a", now)]
    assert taken == [0, 60, 120, 180, 240]
    assert sampler.due("b", 301)


@pytest.mark.parametrize("name", ["a b", "a\tb", "*", "x>", "a\x00", "ä"])
def test_what_does_not_fit_into_a_subject_is_not_packed(name):
    with pytest.raises(Unsendable, match="does not fit"):
        packed(stepping_mint(), status(name))


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.*.c", "a.b.c", True), ("a.*.c", "a.b.d", False), ("a.>", "a.b.c", True), ("a.>", "a", False),
        ("a.*", "a.b.c", False), ("a.b.c", "a.b", False), (">", "a", True), ("*", "a.b", False),
    ],
)  # fmt: skip
def test_patterns(pattern, subject, expected):
    assert matches(pattern, subject) is expected


# --- delivery --------------------------------------------------------------------------------------------------


def test_nothing_comes_before_the_first_snapshot():
    reader, mint = Reader(), stepping_mint()
    delivery = Delivery(topics_of((NodeStatus,)), reader)
    early = mint.mint(status("n1"))
    delivery.live(early)
    assert reader.facts == []
    delivery.snapshot((), "reconnect")
    assert isinstance(reader.facts[0], Snapshot)
    assert reader.events == [early]


def test_a_later_snapshot_does_not_undo_what_came_live_while_it_was_read():
    reader, mint = Reader(), stepping_mint()
    delivery = Delivery(topics_of((NodeStatus,)), reader)
    old, new = mint.mint(status("n1")), mint.mint(status("n1", "draining"))
    delivery.snapshot((old,), "reconnect")
    delivery.hold()
    delivery.live(new)
    assert reader.state() == [new.data]  # not held back meanwhile
    delivery.snapshot((old,), "reconnect")  # it was read before the change
    assert reader.state() == [new.data]


async def test_background_work_that_swallows_one_cancellation_still_ends():
    started = asyncio.Event()

    async def stubborn() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(60)

    background = Background("test")
    task = background.start("stubborn", stubborn())
    await started.wait()
    await asyncio.wait_for(background.close(), 5)
    assert task.done()


async def test_background_failures_are_logged(caplog):
    async def broken() -> None:
        raise ValueError("by design")

    background = Background("test")
    task = background.start("broken", broken())
    await until(task.done)
    assert "test:broken failed" in caplog.text
    await background.close()


# --- any order of faults ---------------------------------------------------------------------------------------

ENDPOINT = st.builds(
    ModelEndpoint,
    namespace=st.just("a"),
    model=st.sampled_from(["m1", "m2"]),
    backend=st.just("vllm"),
    wakeable=st.booleans(),
    gone=st.booleans(),
)
TELEMETRY = st.builds(
    NodeTelemetry,
    node=st.sampled_from(["n1", "n2"]),
    interval_seconds=st.just(2.0),
    cpu_util_percent=st.sampled_from([1.0, 2.0, 3.0]),
)
STEPS = st.lists(
    st.sampled_from(["stop", "start", "wipe", "cut", "mend", "ensure"]) | ENDPOINT | TELEMETRY, max_size=25
)


async def play(steps: list[Any]) -> None:
    broker = MemoryBroker(ManualClock())
    producer, consumer, manager = MemoryBus(broker), MemoryBus(broker, backlog=4), MemoryBus(broker)
    await manager.ensure()
    reader, mint = Reader(), stepping_mint()
    await consumer.follow((ModelEndpoint, NodeTelemetry), reader)
    truth: dict[str, Any] = {}
    actions = {
        "stop": broker.stop, "start": broker.start, "wipe": broker.wipe,
        "cut": producer.cut, "mend": producer.mend,
    }  # fmt: skip
    for step in steps:
        if step == "ensure" and broker.up:
            await manager.ensure()
        elif step == "wipe":
            broker.stop()  # a disk is lost with the server that has it
            broker.wipe()
        elif isinstance(step, str):
            actions.get(step, bool)()
        else:
            await producer.publish(mint.mint(step))
            name = getattr(step, "node", "") or step.model
            truth[name] = None if getattr(step, "gone", False) else step
    producer.mend()
    broker.start()
    await manager.ensure()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    expected = {repr(data) for data in truth.values() if data is not None}
    late = Reader()
    await manager.follow((ModelEndpoint, NodeTelemetry), late)
    assert {repr(data) for data in late.state()} == expected
    assert {repr(data) for data in reader.state()} == expected


@settings(max_examples=150)
@given(STEPS)
def test_readers_end_with_what_producers_said_last(steps):
    asyncio.run(play(steps))
