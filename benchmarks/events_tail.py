"""``flexinfer events tail`` under load: what it shows and what it says it dropped, end to end over a real nats-server.

Run: python benchmarks/events_tail.py [--output FILE]. Half a minute. 20,000 telemetry events a second for ten seconds
from a process of their own, and one ``flexinfer events tail --output json`` that writes into a file. Every event is
shown, or counted as dropped, or the command says that events in between are missing. Goal: keeps up, or says what it
dropped.
"""

import argparse
import asyncio
import json
import os
import platform
import re
import sys
import tempfile
import time
from pathlib import Path

import nats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.contracts.envelope import EventMint, encode_event
from flexinfer.contracts.events import DeviceTelemetry, NodeStatus, NodeTelemetry
from flexinfer.contracts.topics import subject_of
from flexinfer.local.nats_server import NatsServer
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.connecting import wait_connected

RATE, SECONDS = 20_000, 10.0
DEADLINE = 180.0
NODES = 1000


async def flood(url: str, count: int, rate: float) -> float:
    """Publish ``count`` telemetry events, ``rate`` a second (0: as fast as it goes); how many a second it were."""
    wire = await nats.connect(url)
    mints = [EventMint.start("agent", f"node-{i:04}", "boot-1", time.time) for i in range(NODES)]
    cards = tuple(
        DeviceTelemetry(index=i, uuid=f"GPU-{i}", util_percent=50.0, memory_free_mib=20_000, temperature_celsius=60.0)
        for i in range(2)
    )
    events = []
    for number in range(count):
        mint = mints[number % NODES]
        event = mint.mint(NodeTelemetry(node=mint.instance, interval_seconds=2.0, devices=cards))
        events.append((subject_of(event.data), encode_event(event)))
    began = time.perf_counter()
    for number, (subject, raw) in enumerate(events):
        await wire.publish(subject, raw)
        if rate and number % 100 == 0:
            await asyncio.sleep(max(number / rate - (time.perf_counter() - began), 0))
    await wire.flush()
    spent = time.perf_counter() - began
    await wire.close()
    return count / spent


class Tail:
    """The command as a process that writes into a file. Marks are events of other nodes, said until one is shown."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._out, self._err = folder / "tail.out", folder / "tail.err"
        self._mint = EventMint.start("agent", "mark", "boot-1", time.time)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Started, and it shows what is said."""
        binary = str(Path(sys.executable).parent / "flexinfer")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = await asyncio.create_subprocess_exec(
                binary, "events", "tail", "--nats-url", self._url, "--output", "json", stdout=out, stderr=err
            )
        await self.shows("first")

    async def shows(self, mark: str) -> None:
        """Wait until an event said from now on is shown: all before it were shown or dropped."""
        wire = await nats.connect(self._url)
        seen = 0
        async with asyncio.timeout(DEADLINE):
            while mark.encode() not in (text := self._read(seen)):
                seen += max(len(text) - 1024, 0)
                event = self._mint.mint(NodeStatus(node=mark, state="online"))
                await wire.publish(subject_of(event.data), encode_event(event))
                await wire.flush()
                await asyncio.sleep(0.2)
        await wire.close()

    def _read(self, seen: int) -> bytes:
        with self._out.open("rb") as file:
            file.seek(seen)
            return file.read()

    def cpu_seconds(self) -> float:
        """CPU time of the process so far."""
        assert self._process
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def end(self) -> dict[str, object]:
        """What it showed, and what it said it had not."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
        lines = self._out.read_bytes().splitlines()
        said = self._err.read_text()
        return {
            "shown": sum(b'"type":"ai.flexinfer.node.telemetry.v1"' in line for line in lines),
            "said_dropped": sum(int(count) for count in re.findall(r"(\d+) events dropped", said)),
            "said_missing": "events in between are missing" in said,
        }


async def measure(folder: Path, url: str, count: int, rate: float) -> dict[str, object]:
    """``count`` events past one tail; the publisher is a process of its own."""
    bus = await NatsBus.start(url, name="bench", clock=SystemClock())
    await wait_connected(bus, url, 60)
    await bus.ensure()
    await bus.close()
    tail = Tail(url, folder)
    try:
        await tail.start()
        before, began = tail.cpu_seconds(), time.perf_counter()
        publisher = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--flood", url, "--count", str(count), "--rate", str(rate),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await publisher.communicate()
        await tail.shows("last")
        spent, cpu = time.perf_counter() - began, tail.cpu_seconds() - before
    finally:
        told = await tail.end()
    return {
        "sent": count, **told, "sent_per_second": round(float(out)),
        "tail_cpu_microseconds_per_event": round(cpu / count * 1e6, 1), "seconds_until_shown": round(spent, 1),
    }  # fmt: skip


async def _bench(folder: Path) -> dict[str, object]:
    server = NatsServer(folder / "nats")
    await server.start(timeout=60)
    try:
        found = await measure(folder, server.url, int(RATE * SECONDS), RATE)
    finally:
        await server.stop()
    load = round(os.getloadavg()[0] / (os.cpu_count() or 1), 1)
    return {"rate": RATE, **found, "load_of_the_machine_per_core": load, "python": platform.python_version()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--flood", default="")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.0)
    args = parser.parse_args()
    if args.flood:
        print(asyncio.run(flood(args.flood, args.count, args.rate)))
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        result = asyncio.run(_bench(Path(folder)))
    text = json.dumps(result, indent=1)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
