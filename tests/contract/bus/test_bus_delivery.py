"""Publishing and following while the bus is up."""

import asyncio
import logging

import pytest

from flexinfer.contracts.envelope import encode_event
from flexinfer.contracts.events import (
    BenchSample,
    ModelDemand,
    ModelEndpoint,
    NodeHardware,
    NodeStatus,
    NodeTelemetry,
)
from flexinfer.contracts.topics import subject_of
from flexinfer.ports import BusRefused, BusUnavailable, Snapshot
from flexinfer.telemetry.metrics import value_of
from flexinfer.testing.bus import Reader, stepping_mint, until


def sample(key: str, iteration: int) -> BenchSample:
    return BenchSample(
        key=key, iteration=iteration, warmup=False, concurrency=1,
        completion_tokens=8, duration_seconds=1.0, tokens_per_second=8.0,
    )  # fmt: skip


def telemetry(util: float, node: str = "n1") -> NodeTelemetry:
    return NodeTelemetry(node=node, interval_seconds=2.0, cpu_util_percent=util)


ONLINE = encode_event(stepping_mint().mint(NodeStatus(node="n1", state="online")))


async def test_a_live_event_arrives_whole(rig):
    bus, mint, reader = await rig.ready(), stepping_mint(), Reader()
    await bus.follow((NodeHardware,), reader)
    sent = mint.mint(NodeHardware(node="gpu-1.example.com", labels={"flexinfer.ai/gpu.vendor": "NVIDIA"}))
    await bus.publish(sent)
    await until(lambda: bool(reader.events))
    assert reader.events[0] == sent


async def test_snapshot_first_then_live(rig):
    bus, mint, reader = await rig.ready(), stepping_mint(), Reader()
    for node in ("n1", "n2"):
        await bus.publish(mint.mint(NodeStatus(node=node, state="online")), durable=True)
    follow = await bus.follow((NodeStatus,), reader)
    assert follow.synced
    first = reader.facts[0]
    assert isinstance(first, Snapshot)
    assert (first.epoch, first.types) == (1, (NodeStatus,))
    assert {event.data.node for event in first.events} == {"n1", "n2"}
    await bus.publish(mint.mint(NodeStatus(node="n1", state="draining")))
    await until(lambda: {data.state for data in reader.state()} == {"online", "draining"})


async def test_no_hole_between_snapshot_and_live(rig):
    """Followers that join in the middle of a stream of changes all end with the last value of each key."""
    bus, mint = await rig.ready("writer"), stepping_mint()
    readers = [Reader() for _ in range(10)]

    async def write() -> None:
        for step in range(400):
            await bus.publish(mint.mint(telemetry(step % 100, f"n{step % 4}")))
            await asyncio.sleep(0)
        for node in range(4):
            await bus.publish(mint.mint(telemetry(99.5, f"n{node}")))

    async def join(reader: Reader, after: int) -> None:
        for _ in range(after):
            await asyncio.sleep(0)
        await bus.follow((NodeTelemetry,), reader)

    await asyncio.gather(write(), *(join(reader, 40 * i) for i, reader in enumerate(readers)))
    for reader in readers:
        await until(lambda r=reader: [d.cpu_util_percent for d in r.state()] == [99.5] * 4)


async def test_a_late_joiner_gets_only_what_it_asked_for(rig):
    bus, mint, reader = await rig.ready(), stepping_mint(), Reader()
    await bus.publish(mint.mint(NodeStatus(node="n1", state="online")), durable=True)
    await bus.publish(mint.mint(telemetry(5)), durable=True)
    await bus.follow((NodeTelemetry,), reader)
    assert reader.state() == [telemetry(5)]
    assert await bus.state((NodeStatus, NodeTelemetry)) != ()
    assert [event.data for event in await bus.state((NodeStatus,))] == [NodeStatus(node="n1", state="online")]


async def test_types_without_state_are_only_live(rig):
    bus, mint, reader = await rig.ready(), stepping_mint(component="bench"), Reader()
    await bus.publish(mint.mint(sample("k", 1)))
    follow = await bus.follow((BenchSample,), reader)
    assert follow.synced
    assert reader.facts == []
    await bus.publish(mint.mint(sample("k", 2)))
    await until(lambda: [event.data.iteration for event in reader.events] == [2])


@pytest.mark.parametrize("durable", [False, True])
async def test_a_retraction_removes_the_key(rig, durable):
    bus, mint, reader = await rig.ready(), stepping_mint(component="manager"), Reader()
    here = ModelEndpoint(namespace="a", model="m", backend="vllm")
    await bus.publish(mint.mint(here), durable=True)
    await bus.follow((ModelEndpoint,), reader)
    assert reader.state() == [here]
    gone = ModelEndpoint(namespace="a", model="m", backend="vllm", gone=True)
    await bus.publish(mint.mint(gone), durable=durable)
    await until(lambda: reader.state() == [])
    late = Reader()
    await bus.follow((ModelEndpoint,), late)
    assert late.state() == []
    assert await bus.state((ModelEndpoint,)) == ()
    await bus.publish(mint.mint(here), durable=True)  # and it may come back
    assert [event.data for event in await bus.state((ModelEndpoint,))] == [here]


async def test_repeats_of_one_event_change_nothing(rig):
    bus, mint, reader = await rig.ready(), stepping_mint(), Reader()
    await bus.follow((NodeTelemetry,), reader)
    old, new = mint.mint(telemetry(1)), mint.mint(telemetry(2))
    for event in (old, new, old, new, old):
        await bus.publish(event)
    await bus.publish(mint.mint(telemetry(3, "n2")))  # comes last
    await until(lambda: telemetry(3, "n2") in reader.state())
    assert telemetry(2) in reader.state()
    assert {event.data for event in await bus.state((NodeTelemetry,))} == {telemetry(2), telemetry(3, "n2")}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "bytes"),
        (b"\xff\x00{", "bytes"),
        (b'{"specversion":"1.0"}', "bytes"),
        (b"[" * 5000, "bytes"),
        (encode_event(stepping_mint().mint(NodeStatus(node="other", state="offline"))), "subject"),
        (encode_event(stepping_mint().mint(telemetry(1))), "subject"),
        (ONLINE.replace(b"status.v1", b"status.v9"), "unknown"),
        (ONLINE.replace(b'"specversion":"1.0"', b'"specversion":"2.0"'), "unknown"),
    ],
)
async def test_malformed_messages_never_reach_a_consumer(rig, raw, reason, caplog):
    bus, mint, reader = await rig.ready(), stepping_mint(), Reader()
    await bus.follow((NodeStatus,), reader)
    before = value_of("flexinfer_bus_malformed_total", {"reason": reason})
    subject = subject_of(NodeStatus(node="n1", state="online"))
    with caplog.at_level(logging.WARNING):
        await rig.inject(subject, raw)
        await until(lambda: value_of("flexinfer_bus_malformed_total", {"reason": reason}) == before + 1)
    assert subject in caplog.text
    await bus.publish(mint.mint(NodeStatus(node="n1", state="draining")))
    await until(lambda: bool(reader.events))
    assert [data.state for data in reader.state()] == ["draining"]


async def test_malformed_state_is_left_out_of_a_snapshot(rig):
    bus, mint, reader = await rig.ready(), stepping_mint(), Reader()
    good = mint.mint(NodeStatus(node="n1", state="online"))
    await bus.publish(good, durable=True)
    before = value_of("flexinfer_bus_malformed_total", {"reason": "subject"})
    await rig.inject_state("nodes", "n2.status", b"rubbish")
    await rig.inject_state("nodes", "n3.status", encode_event(good))  # n1 speaking as n3
    await bus.follow((NodeStatus,), reader)
    assert reader.facts[0].events == (good,)
    assert value_of("flexinfer_bus_malformed_total", {"reason": "subject"}) == before + 1


async def test_a_failing_consumer_keeps_getting_events(rig, caplog):
    bus, mint, reader = await rig.ready(), stepping_mint(), Reader()

    def sink(fact):
        reader(fact)
        raise RuntimeError("reducer fault")

    await bus.follow((NodeTelemetry,), sink)
    for util in (1, 2):
        await bus.publish(mint.mint(telemetry(util)))
    await until(lambda: reader.state() == [telemetry(2)])
    assert "reducer fault" in caplog.text


async def test_a_burst_over_the_backlog_ends_with_the_newest_state(rig):
    """A reader that cannot keep up loses values in between, counted, and never the last ones."""
    bus, mint, reader = await rig.ready("writer"), stepping_mint(), Reader()
    slow = await rig.bus("slow", backlog=10)
    await slow.follow((NodeTelemetry,), reader)
    lost = value_of("flexinfer_bus_dropped_total", {"reason": "slow-reader"})
    for step in range(2000):
        await bus.publish(mint.mint(telemetry(step % 50, f"n{step % 20}")))
    for node in range(20):
        await bus.publish(mint.mint(telemetry(77, f"n{node}")))
    await until(lambda: [data.cpu_util_percent for data in reader.state()] == [77.0] * 20)
    assert value_of("flexinfer_bus_dropped_total", {"reason": "slow-reader"}) > lost
    await until(lambda: len(reader.snapshots) > 1)


async def test_demand_vanishes_after_its_time(rig):
    bus, mint = await rig.ready(), stepping_mint(component="proxy")
    waiting = ModelDemand(namespace="a", model="m", proxy="p1", waiting=3)
    await bus.publish(mint.mint(waiting), durable=True)
    assert [event.data for event in await bus.state((ModelDemand,))] == [waiting]
    await rig.expire_demand()
    assert await bus.state((ModelDemand,)) == ()


async def test_a_closed_follow_gets_nothing_more(rig):
    bus, mint, reader, other = await rig.ready(), stepping_mint(), Reader(), Reader()
    follow = await bus.follow((NodeTelemetry,), reader)
    await follow.close()
    assert not follow.synced
    await bus.follow((NodeTelemetry,), other)
    await bus.publish(mint.mint(telemetry(1)))
    await until(lambda: bool(other.events))
    assert reader.events == []


async def test_names_that_are_no_subject_are_refused(rig):
    bus, mint = await rig.ready(), stepping_mint()
    for node in ("a b", "*", ">", "a:b", "x\r\nPUB"):
        event = mint.mint(NodeStatus(node=node, state="online"))
        with pytest.raises(BusRefused, match="subject"):
            await bus.publish(event, durable=True)
        await bus.publish(event)  # counted, not raised
    assert await bus.state((NodeStatus,)) == ()


async def test_an_event_over_the_limit_is_refused_by_size(rig):
    bus, mint = await rig.ready(), stepping_mint()
    huge = mint.mint(NodeHardware(node="n1", labels={"k": "x" * 1_100_000}))
    with pytest.raises(BusRefused, match="bytes"):
        await bus.publish(huge, durable=True)
    await bus.publish(huge)
    assert await bus.state((NodeHardware,)) == ()


async def test_without_a_connection_reads_say_so(rig):
    bus = await rig.ready()
    await rig.crash()
    with pytest.raises(BusUnavailable):
        await bus.state((NodeStatus,))
    with pytest.raises(BusUnavailable):
        await bus.ensure()
    with pytest.raises(BusUnavailable):
        await bus.history()
    with pytest.raises(BusUnavailable):
        await bus.publish(stepping_mint().mint(telemetry(1)), durable=True)
