"""The bus goes away, comes back, loses its disk, or is late: nobody needs a restart."""

import asyncio
import logging

import pytest

from flexinfer.contracts.events import BenchCompleted, BenchSample, ModelEndpoint, NodeStatus, NodeTelemetry
from flexinfer.ports import BusRefused, Snapshot
from flexinfer.telemetry.metrics import value_of
from flexinfer.testing.bus import Reader, stepping_mint, until


def telemetry(util: float, node: str = "n1") -> NodeTelemetry:
    return NodeTelemetry(node=node, interval_seconds=2.0, cpu_util_percent=util)


def result(key: str = "m-0123456789ab") -> BenchCompleted:
    return BenchCompleted(
        key=key, namespace="a", model="m", workload="w", source="hf://m", backend="llamacpp", device_class="cpu",
        tokens_per_second=42.0, iterations=5, duration_seconds=30.0,
    )  # fmt: skip


async def test_after_a_crash_followers_resync_and_the_newest_state_arrives(rig):
    bus, other, mint, reader = await rig.ready("agent"), await rig.bus("reader"), stepping_mint(), Reader()
    follow = await other.follow((NodeTelemetry,), reader)
    await bus.publish(mint.mint(telemetry(1)), durable=True)
    await until(lambda: reader.state() == [telemetry(1)])
    await rig.crash()
    await until(lambda: not follow.synced)
    lost = value_of("flexinfer_bus_dropped_total", {"reason": "disconnected"})
    for util in range(2, 50):
        await bus.publish(mint.mint(telemetry(util)))  # never blocks, never raises
    assert value_of("flexinfer_bus_dropped_total", {"reason": "disconnected"}) == lost + 48
    await rig.recover()
    await until(lambda: reader.state() == [telemetry(49)])
    await until(lambda: follow.synced)
    assert [snapshot.epoch for snapshot in reader.snapshots] == [1, 2]
    # Values in between were superseded before anybody could have seen them.
    assert {event.data.cpu_util_percent for event in reader.events} <= {1.0, 49.0}


async def test_retraction_during_an_outage(rig):
    bus, mint, reader = await rig.ready("manager"), stepping_mint(), Reader()
    here = ModelEndpoint(namespace="a", model="m", backend="vllm")
    await bus.publish(mint.mint(here), durable=True)
    await bus.follow((ModelEndpoint,), reader)
    await rig.crash()
    await bus.publish(mint.mint(ModelEndpoint(namespace="a", model="m", backend="vllm", gone=True)))
    await rig.recover()
    await until(lambda: reader.state() == [] and len(reader.snapshots) == 2)
    assert await bus.state((ModelEndpoint,)) == ()


async def test_a_bus_that_lost_its_disk_is_filled_again_by_the_producers(rig, spawn):
    manager, agent, other = await rig.ready("manager"), await rig.bus("agent"), await rig.bus("reader")
    reader, mint = Reader(), stepping_mint()
    manager.on_connect(lambda: spawn(manager.ensure()))
    await until(lambda: agent.connected)
    await agent.publish(mint.mint(NodeStatus(node="n1", state="online")), durable=True)
    await agent.publish(mint.mint(telemetry(7)))
    await other.follow((NodeStatus, NodeTelemetry), reader)
    await until(lambda: len(reader.state()) == 2)
    await rig.crash()
    await rig.wipe()
    await rig.recover()
    await until(lambda: len(reader.snapshots) == 2)
    await until(lambda: len(reader.state()) == 2)
    late = Reader()
    await until(lambda: manager.connected)
    await manager.follow((NodeStatus, NodeTelemetry), late)
    await until(lambda: len(late.state()) == 2)
    assert set(late.state()) == {NodeStatus(node="n1", state="online"), telemetry(7)}


async def test_written_again_means_only_where_it_is_missing(rig):
    """A writer that comes back with old state does not undo what another wrote meanwhile."""
    old, new = await rig.ready("old-leader"), await rig.bus("new-leader")
    await until(lambda: new.connected)
    was = ModelEndpoint(namespace="a", model="m", backend="vllm")
    now = ModelEndpoint(namespace="a", model="m", backend="vllm", wakeable=True)
    await old.publish(stepping_mint("m0", "b0").mint(was), durable=True)
    await new.publish(stepping_mint("m1", "b1").mint(now), durable=True)
    await rig.crash()
    await rig.recover()
    reader = Reader()
    await new.follow((ModelEndpoint,), reader)
    await until(lambda: old.connected)
    await old.publish(stepping_mint("m0", "b0").mint(ModelEndpoint(namespace="a", model="z", backend="vllm")))
    await until(lambda: len(reader.state()) == 2)  # what the old one sent at its return has been handled
    assert now in reader.state()
    assert now in [event.data for event in await new.state((ModelEndpoint,))]


async def test_started_before_the_bus(rig, spawn):
    await rig.crash()
    bus, mint, reader = await rig.bus("early"), stepping_mint(), Reader()
    assert not bus.connected
    await bus.publish(mint.mint(telemetry(1)))
    following = spawn(bus.follow((NodeTelemetry,), reader))
    await bus.publish(mint.mint(telemetry(2)))
    await rig.recover()
    manager = await rig.ready("manager")
    assert manager.connected
    follow = await asyncio.wait_for(following, 15)
    assert follow.synced
    await until(lambda: reader.state() == [telemetry(2)])


async def test_everyone_waits_for_the_manager_and_says_so(rig, spawn, caplog):
    """Buckets are made by one; writers keep the newest state and followers wait until they exist."""
    bus, mint, reader = await rig.bus("agent"), stepping_mint(), Reader()
    await until(lambda: bus.connected)
    await bus.publish(mint.mint(telemetry(1)))
    with pytest.raises(BusRefused, match=r"flexinfer_nodes.*manager"):
        await bus.state((NodeTelemetry,))
    with pytest.raises(BusRefused, match=r"flexinfer_bench.*manager"):
        await bus.publish(mint.mint(result()), durable=True)
    with pytest.raises(BusRefused, match=r"FLEXINFER_LOG.*manager"):
        await bus.publish(mint.mint(BenchSample(
            key="k", iteration=1, warmup=False, concurrency=1, completion_tokens=1, duration_seconds=1,
            tokens_per_second=1,
        )), durable=True)  # fmt: skip
    with pytest.raises(BusRefused, match=r"FLEXINFER_LOG.*manager"):
        await bus.history()
    with caplog.at_level(logging.INFO):
        following = spawn(bus.follow((NodeTelemetry,), reader))
        await asyncio.sleep(0)
        assert not following.done()
        await rig.ready("manager")
        await asyncio.wait_for(following, 15)
    await until(lambda: reader.state() == [telemetry(1)])
    late = Reader()
    await until(lambda: bool(reader.snapshots))
    await bus.follow((NodeTelemetry,), late)
    await until(lambda: late.state() == [telemetry(1)])


async def test_ensure_twice_changes_nothing(rig):
    bus, mint = await rig.ready(), stepping_mint()
    await bus.publish(mint.mint(telemetry(1)), durable=True)
    await bus.ensure()
    await bus.ensure()
    assert [event.data for event in await bus.state((NodeTelemetry,))] == [telemetry(1)]


async def test_a_durable_publish_repeated_is_stored_once(rig):
    bus, mint = await rig.ready("bench"), stepping_mint(component="bench")
    event = mint.mint(result())
    for _ in range(3):
        await bus.publish(event, durable=True)
    assert [found.id for found in [e async for e in await bus.history()]] == [event.id]
    assert [found.id for found in await bus.state((BenchCompleted,))] == [event.id]


async def test_a_durable_publish_repeated_over_a_crash_is_stored_once(rig):
    bus, mint = await rig.ready("bench"), stepping_mint(component="bench")
    event = mint.mint(result())
    await bus.publish(event, durable=True)
    await rig.crash()
    await rig.recover()
    await until(lambda: bus.connected)
    await bus.publish(event, durable=True)
    assert [found.id for found in [e async for e in await bus.history()]] == [event.id]


async def test_following_stops_and_frees_what_the_server_holds(rig):
    bus, readers = await rig.ready(), [Reader() for _ in range(20)]
    follows = [await bus.follow((NodeTelemetry, BenchCompleted), reader) for reader in readers]
    for follow in follows[:10]:
        await follow.close()
    for follow in follows[10:]:  # these are simply kept: a snapshot's consumer goes by itself
        assert follow.synced
    async with asyncio.timeout(60):
        while await rig.consumers():  # noqa: ASYNC110 - the server is another process
            await asyncio.sleep(0.05)


async def test_cancelled_while_waiting_leaves_nothing(rig, spawn):
    await rig.crash()
    bus = await rig.bus()
    following = spawn(bus.follow((NodeTelemetry,), Reader()))
    await asyncio.sleep(0)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following


async def test_the_log_keeps_events_and_samples_telemetry(rig):
    bus, mint = await rig.ready(), stepping_mint()
    for util in range(5):
        await bus.publish(mint.mint(telemetry(util)), durable=True)
    for state in ("online", "draining"):
        await bus.publish(mint.mint(NodeStatus(node="n1", state=state)), durable=True)
    logged = [event.data async for event in await bus.history()]
    assert logged == [telemetry(0), NodeStatus(node="n1", state="online"), NodeStatus(node="n1", state="draining")]


async def test_history_since_and_onwards(rig, spawn):
    bus, mint = await rig.ready(), stepping_mint()
    await bus.publish(mint.mint(NodeStatus(node="n1", state="online")), durable=True)
    seen: list[str] = []

    async def watch() -> None:
        async for event in await bus.history(follow=True):
            seen.append(event.data.state)  # noqa: PERF401 - read while it grows

    spawn(watch())
    await until(lambda: seen == ["online"])
    await bus.publish(mint.mint(NodeStatus(node="n1", state="draining")), durable=True)
    await until(lambda: seen == ["online", "draining"])
    await rig.crash()
    await rig.recover()
    await until(lambda: bus.connected)
    await bus.publish(mint.mint(NodeStatus(node="n1", state="offline")), durable=True)
    await until(lambda: seen[-1] == "offline")
    assert seen == ["online", "draining", "offline"]
    assert [e async for e in await bus.history(since=4e9)] == []


async def test_malformed_log_entries_are_skipped(rig):
    bus, mint = await rig.ready(), stepping_mint()
    await rig.inject("flexinfer.v1.default.node.n1.status", b"rubbish")
    await bus.publish(mint.mint(NodeStatus(node="n1", state="online")), durable=True)
    assert [event.data.state async for event in await bus.history()] == ["online"]


async def test_on_connect_is_told_at_once_and_at_each_return(rig):
    bus, told = await rig.ready(), []
    bus.on_connect(lambda: told.append("up"))
    assert told == ["up"]
    await rig.crash()
    await rig.recover()
    await until(lambda: told == ["up", "up"])


async def test_snapshots_name_their_types_and_count_up(rig):
    bus, reader = await rig.ready(), Reader()
    await bus.follow((NodeTelemetry, BenchSample), reader)
    for _ in range(2):
        count = len(reader.snapshots)
        await rig.crash()
        await rig.recover()
        await until(lambda c=count: len(reader.snapshots) > c)
    assert [(s.types, s.epoch) for s in reader.snapshots] == [((NodeTelemetry,), n) for n in (1, 2, 3)]
    assert all(isinstance(fact, Snapshot) for fact in reader.facts)


async def test_crash_after_crash_under_load(rig, spawn):
    """Producers never pause; after the last crash every reader, early or late, agrees with what was said last."""
    manager, reader = await rig.ready("manager"), Reader()
    manager.on_connect(lambda: spawn(manager.ensure()))
    producers = [await rig.bus(f"agent-{i}") for i in range(3)]
    await (await rig.bus("reader")).follow((NodeTelemetry,), reader)
    stop = False

    async def produce(number: int) -> None:
        mint, util = stepping_mint(f"n{number}"), 0
        while not stop:
            util += 1
            await producers[number].publish(mint.mint(telemetry(util % 90, f"n{number}")))
            await asyncio.sleep(0.001)
        await producers[number].publish(mint.mint(telemetry(99, f"n{number}")))

    working = [spawn(produce(number)) for number in range(3)]
    for round_ in range(3):
        seen = len(reader.events)
        await until(lambda n=seen: len(reader.events) > n + 20)
        await rig.crash()
        if round_ == 1:
            await rig.wipe()
        await rig.recover()
        await until(lambda n=round_: len(reader.snapshots) >= n + 2)
    stop = True
    await asyncio.gather(*working)
    await until(lambda: sorted(data.cpu_util_percent for data in reader.state()) == [99.0] * 3)
    late = Reader()
    await until(lambda: manager.connected)
    await manager.follow((NodeTelemetry,), late)
    await until(lambda: sorted(data.cpu_util_percent for data in late.state()) == [99.0] * 3)
