"""What the bus adapter costs over bare nats-py on the same server: latency, throughput, snapshot, resync.

Run: python benchmarks/bus.py [--json FILE]. Starts its own nats-server on loopback; about ten seconds. Publisher,
reader and measurement share one process and one loop, so figures are ratios of the same arrangement, not limits.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import nats
import uvloop

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.contracts.envelope import Event, EventMint, encode_event
from flexinfer.contracts.events import DeviceTelemetry, NodeHardware, NodeTelemetry
from flexinfer.contracts.topics import subject_of
from flexinfer.local.nats_server import NatsServer
from flexinfer.ports import BusFact, Snapshot
from flexinfer.testing.bus import until

NODES = 5000
BURST = 5000
PINGS = 400


def telemetry(node: str) -> NodeTelemetry:
    devices = tuple(
        DeviceTelemetry(index=i, uuid=f"GPU-{i:04d}", util_percent=40.0, memory_used_mib=1000, memory_free_mib=80000)
        for i in range(4)
    )
    return NodeTelemetry(node=node, interval_seconds=2.0, devices=devices, cpu_util_percent=3.0)


def mint() -> EventMint:
    return EventMint.start("agent", "n1", f"{time.time_ns():x}", time.time)


def quantiles(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return {"p50_us": round(cuts[49] * 1e6, 1), "p99_us": round(cuts[98] * 1e6, 1)}


async def raw(url: str, rounds: list[Event]) -> dict[str, Any]:
    """Bare nats-py: one publish, one callback, no decoding, no state."""
    sender, receiver = await nats.connect(url), await nats.connect(url)
    got = 0
    arrived = asyncio.Event()

    async def on_message(_msg: Any) -> None:
        nonlocal got
        got += 1
        arrived.set()

    await receiver.subscribe("bench.raw", cb=on_message)
    await receiver.flush()
    messages = [encode_event(event) for event in rounds]
    times = []
    for message in messages[:PINGS]:
        arrived.clear()
        began = time.perf_counter()
        await sender.publish("bench.raw", message)
        await arrived.wait()
        times.append(time.perf_counter() - began)
        await asyncio.sleep(0.001)
    got, began = 0, time.perf_counter()
    for message in messages:
        await sender.publish("bench.raw", message)
    await until(lambda: got >= len(messages))
    rate = len(messages) / (time.perf_counter() - began)
    await sender.close()
    await receiver.close()
    return {**quantiles(times), "events_per_second": round(rate)}


async def ours(url: str, rounds: list[Event]) -> dict[str, Any]:
    """The adapter: live copy, acknowledged state write, sampling; decoded and checked at the reader."""
    sender, receiver = await NatsBus.start(url, name="sender"), await NatsBus.start(url, name="receiver")
    got = 0
    arrived = asyncio.Event()

    def sink(fact: BusFact) -> None:
        nonlocal got
        if isinstance(fact, Event):
            got += 1
            arrived.set()

    follow = await receiver.follow((NodeTelemetry,), sink)
    await asyncio.sleep(2.2)  # past the moment in which the bucket is read along
    times = []
    for event in rounds[:PINGS]:
        arrived.clear()
        began = time.perf_counter()
        await sender.publish(event)
        await arrived.wait()
        times.append(time.perf_counter() - began)
        await asyncio.sleep(0.001)
    got, began = 0, time.perf_counter()
    fresh = mint()
    for event in rounds:
        await sender.publish(fresh.mint(event.data))
    await until(lambda: got >= len(rounds))
    rate = len(rounds) / (time.perf_counter() - began)
    await follow.close()
    await sender.close()
    await receiver.close()
    return {**quantiles(times), "events_per_second": round(rate)}


async def reading(url: str, rounds: list[Event]) -> dict[str, Any]:
    """The reader alone: bare nats-py sends what was encoded before, ``follow`` decodes, checks and delivers."""
    sender, receiver = await nats.connect(url), await NatsBus.start(url, name="receiver")
    got = 0

    def sink(fact: BusFact) -> None:
        nonlocal got
        got += isinstance(fact, Event)

    follow = await receiver.follow((NodeTelemetry,), sink)
    await asyncio.sleep(2.2)
    messages = [(subject_of(event.data), encode_event(event)) for event in rounds]
    got, began = 0, time.perf_counter()
    for subject, message in messages:
        await sender.publish(subject, message)
    await until(lambda: got >= len(rounds))
    rate = len(rounds) / (time.perf_counter() - began)
    await follow.close()
    await receiver.close()
    await sender.close()
    return {"events_per_second": round(rate)}


async def snapshot(server: NatsServer) -> dict[str, Any]:
    """NODES nodes: from nothing to a delivered snapshot, and again after a crash of the server."""
    manager = await NatsBus.start(server.url, name="filler")
    await until(lambda: manager.connected)
    made = mint()
    for number in range(NODES):
        await manager.publish(made.mint(NodeHardware(node=f"node-{number}", labels={"pad": "x" * 600})))
    await manager.close()
    reader = await NatsBus.start(server.url, name="reader")
    await until(lambda: reader.connected)
    snapshots: list[Snapshot] = []

    def sink(fact: BusFact) -> None:
        if isinstance(fact, Snapshot):
            snapshots.append(fact)

    began = time.perf_counter()
    await reader.follow((NodeHardware,), sink)
    first = time.perf_counter() - began
    await server.kill()
    await until(lambda: not reader.connected)
    await server.start()
    began = time.perf_counter()
    await until(lambda: len(snapshots) == 2)
    again = time.perf_counter() - began
    await reader.close()
    assert [len(found.events) for found in snapshots] == [NODES, NODES]
    return {"keys": NODES, "snapshot_seconds": round(first, 3), "resync_after_crash_seconds": round(again, 3)}


async def measure(folder: Path) -> dict[str, Any]:
    server = await NatsServer(folder).start()
    setup = await NatsBus.start(server.url, name="setup")
    await until(lambda: setup.connected)
    await setup.ensure()
    await setup.close()
    made = mint()
    rounds = [made.mint(telemetry(f"node-{number % 500}")) for number in range(BURST)]
    found: dict[str, Any] = {"event_bytes": len(encode_event(rounds[0])), "subject": subject_of(rounds[0].data)}
    for name, run in (("raw", raw), ("adapter", ours), ("reader", reading)):
        found[name] = await run(server.url, rounds)
    found["latency_ratio_p50"] = round(found["adapter"]["p50_us"] / found["raw"]["p50_us"], 2)
    found["throughput_ratio"] = round(found["adapter"]["events_per_second"] / found["raw"]["events_per_second"], 2)
    found["reader_ratio"] = round(found["reader"]["events_per_second"] / found["raw"]["events_per_second"], 2)
    found["snapshot"] = await snapshot(server)
    await server.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(measure(Path(folder)))
    text = json.dumps(found, indent=2)
    print(text)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
