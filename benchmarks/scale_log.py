"""A day of a fleet's telemetry through the log at its limits: it stays within them, and state is not touched.

A nats-server with the streams as the manager makes them. State of every node is written first. Then the sampled copies
that ``--nodes`` nodes send in ``--hours`` hours (one a minute each, two devices) are published as fast as the server
acknowledges them. Asked of the server: bytes and messages of the log beside its limit, now and at most while it ran,
and what its files take on disk (they are compressed; the limit counts bytes before compression). Read back afterwards:
every key of state, byte for byte, and one more write to it.

    python benchmarks/scale_log.py [--nodes 1000] [--hours 24] [--output FILE.json]
"""

import argparse
import asyncio
import json
import random
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nats
from measuring import machine, measured, show
from scale_crowd import CONNECT, Agent, publication

from flexinfer.adapters.bus.nats import Limits, NatsBus
from flexinfer.adapters.bus.outbound import SAMPLE_SECONDS, pack
from flexinfer.contracts.envelope import encode_event
from flexinfer.contracts.events import NodeHardware
from flexinfer.contracts.topics import LOG_STREAM
from flexinfer.local.nats_server import NatsServer
from flexinfer.ports import BusFact, Snapshot

POOL = 20_000  # events made beforehand and sent in turn
WINDOW = 1000  # sent and not yet acknowledged
INBOX = b"_INBOX.day"
LOOKS = 20


class Pipe:
    """A connection that publishes with acknowledgements, ``WINDOW`` at a time."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname or "127.0.0.1", address.port or 4222))
        self._socket.settimeout(60.0)
        self._socket.sendall(CONNECT % INBOX)
        self._rest = b""
        self.acknowledged = self.refused = 0

    def send(self, frames: list[bytes]) -> None:
        """All of them; returns when they are answered."""
        owed = self.acknowledged + self.refused + len(frames)
        self._socket.sendall(b"".join(frames))
        while self.acknowledged + self.refused < owed:
            chunk = self._socket.recv(1 << 20)
            if not chunk:
                raise ConnectionError("the server closed the connection")
            data, ends, self._rest = (self._rest + chunk).rpartition(b"\r\n")
            data += ends
            failed = data.count(b'"error":')
            self.refused += failed
            self.acknowledged += data.count(b"}\r\n") - failed
            if b"PING\r\n" in data:
                self._socket.sendall(b"PONG\r\n")

    def close(self) -> None:
        self._socket.close()


async def state_of(bus: NatsBus) -> dict[str, bytes]:
    """Every node's hardware as the bus has it."""
    found: dict[str, bytes] = {}
    ready = asyncio.Event()

    def sink(fact: BusFact) -> None:
        if isinstance(fact, Snapshot):
            found.update({event.subject: encode_event(event) for event in fact.events})
            ready.set()

    follow = await bus.follow((NodeHardware,), sink)
    async with asyncio.timeout(60):
        await ready.wait()
    await follow.close()
    return found


async def look(client: Any) -> dict[str, int]:
    """State of the log stream."""
    answer = await client.request(f"$JS.API.STREAM.INFO.{LOG_STREAM}", b"", timeout=30)
    state = json.loads(answer.data)["state"]
    return {"bytes": state["bytes"], "messages": state["messages"], "first": state["first_seq"]}


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="flexinfer-bench-"))
    server = NatsServer(folder / "nats")
    await server.start()
    try:
        return await _measure(options, server)
    finally:
        await server.stop()
        shutil.rmtree(folder)


async def _measure(options: argparse.Namespace, server: NatsServer) -> dict[str, Any]:
    bus = await NatsBus.start(server.url, name="bench")
    connected = asyncio.Event()
    bus.on_connect(connected.set)
    await connected.wait()
    await bus.ensure()
    agents = [Agent(f"gpu-node-{number:05d}", 2, 1.0) for number in range(options.nodes)]
    for agent in agents:
        await bus.publish(agent.hardware())
    await bus.publish(agents[0].hardware(), durable=True)
    before = await state_of(bus)
    client = await nats.connect(server.url)
    pipe = Pipe(server.url)
    total = round(options.nodes * options.hours * 3600 / SAMPLE_SECONDS)
    frames = _pool(agents, min(POOL, total))
    at_start = await look(client)
    began = time.monotonic()
    most, full_after = 0, None
    for number in range(0, total, WINDOW):
        count = min(WINDOW, total - number)
        await asyncio.to_thread(pipe.send, [frames[(number + one) % len(frames)] for one in range(count)])
        if number // WINDOW % max(total // WINDOW // LOOKS, 1) == 0:
            now = await look(client)
            most = max(most, now["bytes"])
            if full_after is None and now["first"] > at_start["first"]:
                full_after = now["messages"]
    took = time.monotonic() - began
    end = await look(client)
    after = await state_of(bus)
    await bus.publish(agents[0].hardware(), durable=True)
    limit = Limits().log
    per_message = (end["bytes"] - at_start["bytes"]) / max(end["messages"] - at_start["messages"], 1)
    found = {
        "machine": machine(),
        "method": (__doc__ or "").strip(), "nodes": options.nodes, "hours": options.hours,
        "published": total, "acknowledged": pipe.acknowledged, "refused": pipe.refused,
        "events_per_second": round(total / took), "bytes_per_event": round(per_message),
        "limit_bytes": limit, "most_bytes": max(most, end["bytes"]), "messages_kept": end["messages"],
        "within_limit": max(most, end["bytes"]) <= limit, "filled": end["first"] > at_start["first"],
        "disk_bytes": sum(file.stat().st_size for file in _files(next(server.store.rglob(LOG_STREAM)))),
        "state_keys": len(before), "state_unharmed": before == after,
        "hours_kept_by_nodes": {
            str(nodes): round(limit / per_message / nodes * SAMPLE_SECONDS / 3600, 1) for nodes in (50, 500, 1000, 5000)
        },
    }  # fmt: skip
    pipe.close()
    await client.close()
    await bus.close()
    return found


def _pool(agents: list[Agent], count: int) -> list[bytes]:
    dice = random.Random(7)
    found = []
    for number in range(count):
        parcel = pack(agents[number % len(agents)].telemetry(dice), "default")
        assert parcel.sampled is not None
        found.append(publication(parcel.sampled, parcel.raw, INBOX))
    return found


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--nodes", type=int, default=1000)
    command.add_argument("--hours", type=float, default=24.0)
    command.add_argument("--output", type=Path)
    options = command.parse_args()
    found = measured(measure(options), options.output)
    show(found)


if __name__ == "__main__":
    main()
