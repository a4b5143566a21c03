"""From the state on the bus to a view that can answer, with a real nats-server.

State of every node (hardware and telemetry) is published once. Then, for several rounds, a fresh connection follows it
as the extender does: timed from the call to the view folded from the snapshot and the first offers made. After these
the server is killed and started on its files again: timed from the moment it accepts clients to the view folded anew.

    python benchmarks/extender_warm.py [--nodes 5000] [--rounds 5] [--output FILE.json]
"""

import argparse
import asyncio
import statistics
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from extender_server import Fleet
from measuring import connected, machine, measured

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.contracts.envelope import decode_event
from flexinfer.core.fleet.fold import STATE_TYPES, replace_state
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.scoring import Weights
from flexinfer.local.nats_server import NatsServer
from flexinfer.ports import BusFact, Snapshot
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.heap import collect_rarely, keep_freed_memory

AT_ONCE = 64


async def fill(bus: NatsBus, count: int) -> None:
    """Publish the state of ``count`` nodes."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(raw: bytes) -> None:
        async with gate:
            await bus.publish(decode_event(raw))

    await asyncio.gather(*(one(raw) for raw in Fleet(count).state()))


class Replica:
    """A view folded from snapshots, as the extender's."""

    def __init__(self) -> None:
        self.view = FleetView()
        self.folded = asyncio.Event()

    def sink(self, fact: BusFact) -> None:
        if isinstance(fact, Snapshot):
            now = SystemClock().now()
            replace_state(self.view, fact.types, fact.events, now)
            Desk(self.view, Weights()).warm(now)
            self.folded.set()


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    keep_freed_memory()  # as the executable does
    collect_rarely()
    clock = SystemClock()
    warm: list[float] = []
    again: list[float] = []
    async with AsyncExitStack() as stack:
        server = NatsServer(Path(tempfile.mkdtemp(prefix="flexinfer-bench-")) / "nats")
        await server.start()
        stack.push_async_callback(server.stop)
        filling = await connected(server.url)
        await filling.ensure()
        await fill(filling, options.nodes)
        await filling.close()
        for _ in range(options.rounds):
            replica = Replica()
            bus = await connected(server.url)
            began = clock.monotonic()
            await bus.follow(STATE_TYPES, replica.sink)
            await replica.folded.wait()
            warm.append(clock.monotonic() - began)
            replica.folded.clear()
            await server.stop()
            await server.start()
            began = clock.monotonic()
            await replica.folded.wait()
            again.append(clock.monotonic() - began)
            await bus.close()
        nodes = len(replica.view.nodes)
    return {
        "machine": machine(),
        "method": (__doc__ or "").strip(), "nodes": nodes,
        "snapshot_to_warm_seconds": summary(warm), "resync_after_restart_seconds": summary(again),
    }  # fmt: skip


def summary(times: list[float]) -> dict[str, Any]:
    return {"median": round(statistics.median(times), 3), "rounds": [round(time, 3) for time in times]}


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--nodes", type=int, default=5000)
    command.add_argument("--rounds", type=int, default=5)
    command.add_argument("--output", type=Path)
    options = command.parse_args()
    found = measured(measure(options), options.output)
    print({key: value for key, value in found.items() if key != "method"})


if __name__ == "__main__":
    main()
