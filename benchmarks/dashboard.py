"""The dashboard under load: how late a viewer hears, what the server costs, how long a browser's frames are.

Run: python benchmarks/dashboard.py [--output FILE]. About two minutes. A real nats-server and a real
``flexinfer-dashboard``; 1,000 nodes with two cards, 1,000 telemetry events a second, 20 viewers. Late: from publishing
to a viewer's holding the batch that has the event, on one clock. Cost: CPU time of the server process alone. Frames:
the time between two animation frames of headless Chromium, without a GPU, if there is a Chromium, on the fleet view and
on the list of events; and what a busy machine does not change: the CPU time of its main thread for one update, and of
the longest frame, from Chromium's own trace.
Goals: under 1 s, under a quarter of a core, under 50 ms.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import nats
from nats.aio.client import Client

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.contracts.envelope import EventMint, encode_event
from flexinfer.contracts.events import Device, DeviceTelemetry, NodeHardware, NodeStatus, NodeTelemetry
from flexinfer.contracts.topics import subject_of
from flexinfer.local.nats_server import NatsServer
from flexinfer.local.ports import free_port
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.connecting import wait_connected
from tests.integration.dashboard.browser import CHROMIUM, Browser, browser

NODES, RATE, VIEWERS = 1000, 1000, 20
SECONDS = 20.0
SETTLE = 3.0
UPDATES = 4  # a second: what the server sends at most
FRAMES = """new Promise((done) => { const gaps = []; let last = performance.now(); const begin = last;
  const step = (now) => { gaps.push(now - last); last = now;
    if (now - begin < 8000) requestAnimationFrame(step); else done(gaps.slice(2)); };
  requestAnimationFrame(step); })"""


class Fleet:
    """Publishes telemetry at a steady rate, node after node."""

    def __init__(self, bus: NatsBus, wire: Client) -> None:
        self._bus = bus
        self._wire = wire  # a thousand agents write a thousand keys; one connection for all writes live copies only
        self._mints = [EventMint.start("agent", f"node-{i:04}", "boot-1", time.time) for i in range(NODES)]
        self.sent: dict[str, float] = {}

    async def appear(self) -> None:
        for mint in self._mints:
            cards = tuple(
                Device(index=i, uuid=f"GPU-{i}", vendor="NVIDIA", product="NVIDIA L4", arch="sm_89", memory_mib=23034)
                for i in range(2)
            )
            await self._bus.publish(mint.mint(NodeHardware(node=mint.instance, devices=cards)), durable=True)
            await self._bus.publish(mint.mint(NodeStatus(node=mint.instance, state="online")), durable=True)

    async def talk(self, seconds: float) -> None:
        began, count = time.perf_counter(), 0
        while (passed := time.perf_counter() - began) < seconds:
            while count < passed * RATE:
                mint = self._mints[count % NODES]
                cards = tuple(
                    DeviceTelemetry(
                        index=i, uuid=f"GPU-{i}", util_percent=float(count % 100), memory_free_mib=20000 - count % 9999,
                        temperature_celsius=60.0, power_watts=70.0,
                    )
                    for i in range(2)
                )  # fmt: skip
                event = mint.mint(NodeTelemetry(node=mint.instance, interval_seconds=2.0, devices=cards))
                if count % 50 == 0:
                    self.sent[event.id] = time.perf_counter()
                await self._wire.publish(subject_of(event.data), encode_event(event))
                count += 1
            await asyncio.sleep(0.005)


class Viewer:
    """Reads a stream as a browser does; the first one looks at the events, the others count bytes."""

    def __init__(self, fleet: Fleet | None) -> None:
        self.late: list[float] = []
        self.bytes = 0
        self._fleet = fleet

    async def watch(self, web: aiohttp.ClientSession, url: str) -> None:
        async with web.get(f"{url}/stream") as answer:
            block = bytearray()
            async for chunk in answer.content.iter_any():
                self.bytes += len(chunk)
                if self._fleet is None:
                    continue
                block += chunk
                while (end := block.find(b"\n\n")) >= 0:
                    self._look(bytes(block[:end]))
                    del block[: end + 2]

    def _look(self, block: bytes) -> None:
        now = time.perf_counter()
        for line in block.splitlines():
            if line.startswith(b"data: ") and self._fleet:
                for record in json.loads(line[6:]).get("telemetry", {}).values():
                    began = self._fleet.sent.pop(record["id"], None) if record else None
                    if began is not None:
                        self.late.append(now - began)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def frames(folder: Path, url: str) -> dict[str, dict[str, float]] | None:
    if CHROMIUM is None:
        return None
    async with browser(folder / "profile") as page:
        await page.call("Performance.enable", timeDomain="threadTicks")
        await page.open(url, width=1920, height=1080)
        await page.until("document.querySelectorAll('#fleet .card').length === 1000")
        found = {"fleet": await _view(page)}
        await page.run("document.getElementById('tab-events').click()")
        await page.until("document.querySelectorAll('#stream li').length > 100")
        found["events"] = await _view(page)
    return found


async def _view(page: Browser) -> dict[str, float]:
    await asyncio.sleep(SETTLE)
    before, began = await _busy(page), time.perf_counter()
    gaps = sorted(await page.run(FRAMES))
    busy, updates = await _busy(page) - before, (time.perf_counter() - began) * UPDATES
    _, events = await page.traced(FRAMES, ("toplevel", "devtools.timeline"))
    costs = frame_costs(events)
    return {
        "median_ms": round(statistics.median(gaps), 1),
        "p99_ms": round(gaps[int(len(gaps) * 0.99)], 1),
        "most_ms": round(gaps[-1], 1),
        "main_thread_cpu_ms_per_update": round(busy / updates * 1000, 1),
        "main_thread_cpu_ms_of_the_longest_frame": round(costs[-1], 1),
        "main_thread_cpu_ms_of_a_frame_p99": round(costs[int(len(costs) * 0.99)], 1),
    }


def frame_costs(events: list[dict[str, Any]]) -> list[float]:
    """CPU milliseconds of the page's main thread between two animation frames, least first."""
    main = {(e["pid"], e["tid"]) for e in events if e["name"] == "FireAnimationFrame"}
    mine = sorted((e for e in events if (e["pid"], e["tid"]) in main), key=lambda e: float(e["ts"]))
    costs: list[float] = []
    for event in mine:
        if event["name"] == "FireAnimationFrame":
            costs.append(0.0)
        elif event["name"] == "ThreadControllerImpl::RunTask" and costs:
            costs[-1] += event.get("tdur", 0) / 1000
    return sorted(costs)


async def _busy(page: Browser) -> float:
    found = await page.call("Performance.getMetrics")
    return next(item["value"] for item in found["metrics"] if item["name"] == "TaskDuration")


async def measure(folder: Path) -> dict[str, object]:
    server = NatsServer(folder / "nats")
    await server.start(timeout=60)
    port = free_port("127.0.0.1")
    binary = str(Path(sys.executable).parent / "flexinfer-dashboard")
    dashboard = await asyncio.create_subprocess_exec(
        binary, "--nats-url", server.url, "--host", "127.0.0.1", "--port", str(port), "--log-level", "error"
    )
    try:
        bus = await NatsBus.start(server.url, name="bench", clock=SystemClock())
        await wait_connected(bus, server.url, 60)
        await bus.ensure()
        wire = await nats.connect(server.url)
        fleet = Fleet(bus, wire)
        await fleet.appear()
        url = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as web:
            await _ready(web, url)
            viewers = [Viewer(fleet if number == 0 else None) for number in range(VIEWERS)]
            watching = [asyncio.get_running_loop().create_task(viewer.watch(web, url)) for viewer in viewers]
            await fleet.talk(SETTLE)
            fleet.sent.clear()
            before, began, bytes_before = cpu_seconds(dashboard.pid), time.perf_counter(), viewers[-1].bytes
            await fleet.talk(SECONDS)
            passed = time.perf_counter() - began
            share = (cpu_seconds(dashboard.pid) - before) / passed
            rate = (viewers[-1].bytes - bytes_before) / passed
            memory = resident_mb(dashboard.pid)
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
        talking = asyncio.get_running_loop().create_task(fleet.talk(120))
        smooth = await frames(folder, url)
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
        await wire.close()
        await bus.close()
    finally:
        dashboard.terminate()
        await dashboard.wait()
        await server.stop()
    late = sorted(viewers[0].late)
    return {
        "nodes": NODES, "events_per_second": RATE, "viewers": VIEWERS, "seconds": SECONDS,
        "late_ms": {
            "samples": len(late), "median": round(statistics.median(late) * 1000), "most": round(late[-1] * 1000),
            "p99": round(late[int(len(late) * 0.99)] * 1000), "goal": 1000,
        },
        "server_cores": {"measured": round(share, 3), "goal": 0.25},
        "server_memory_mb": round(memory),
        "kilobytes_per_second_and_viewer": round(rate / 1000),
        "load_of_the_machine_per_core": round(os.getloadavg()[0] / (os.cpu_count() or 1), 1), "browser_frames": smooth,
        "python": platform.python_version(),
    }  # fmt: skip


async def _ready(web: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                async with web.get(f"{url}/api/state") as answer:
                    if len((await answer.json())["hardware"]) == NODES:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    output = parser.parse_args().output
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        result = asyncio.run(measure(Path(folder)))
    text = json.dumps(result, indent=1)
    print(text)
    if output:
        output.write_text(text + "\n")


if __name__ == "__main__":
    main()
