"""The disk under the bus is full to the last byte: what is live goes on, and what was last said is kept for later."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.contracts.events import NodeHardware, NodeTelemetry
from flexinfer.local.nats_server import NatsServer
from flexinfer.local.ports import free_port
from flexinfer.local.processes import die_with_parent
from flexinfer.ports import BusRefused, BusUnavailable
from flexinfer.testing.bus import Reader, stepping_mint, until
from tests.cluster.kubelet.netns import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"NOT RUN: a full disk in a mount namespace: {missing()}")

MEGABYTES = 16


class Disk:
    """A file system of a few megabytes at ``folder``, seen by processes started through ``spawn`` alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def mount(self) -> "Disk":
        self.folder.mkdir(parents=True)
        self._holder = await asyncio.create_subprocess_exec(
            "unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size="$1"m none "$2" && echo ready && exec sleep 3600',
            "sh", str(MEGABYTES), str(self.folder), stdout=asyncio.subprocess.PIPE, preexec_fn=die_with_parent(),
        )  # fmt: skip
        assert self._holder.stdout is not None
        assert await self._holder.stdout.readline() == b"ready\n"
        return self

    async def spawn(self, *argv: str, **options: object) -> asyncio.subprocess.Process:
        assert sys.platform == "linux"
        inside = ("nsenter", f"--target={self._holder.pid}", "--mount", "--", *argv)
        return await asyncio.create_subprocess_exec(*inside, preexec_fn=die_with_parent(), **options)  # type: ignore[arg-type]

    async def shell(self, command: str) -> int:
        return await (await self.spawn("sh", "-c", command, stderr=asyncio.subprocess.DEVNULL)).wait()

    async def unmount(self) -> None:
        os.kill(self._holder.pid, signal.SIGKILL)
        await self._holder.wait()


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[Disk]:
    made = await Disk(tmp_path / "nats" / "jetstream").mount()
    yield made
    await made.unmount()


def told(load: int) -> NodeTelemetry:
    return NodeTelemetry(node="n1", interval_seconds=2.0, cpu_util_percent=load)


async def test_a_full_disk_stops_nothing_that_is_live_and_loses_no_last_word(disk: Disk, tmp_path: Path) -> None:
    monitor = free_port()
    server = await NatsServer(tmp_path / "nats", spawn=disk.spawn, options=f"http: 127.0.0.1:{monitor}").start()
    agent = await NatsBus.start(server.url, name="agent")
    reader_bus = await NatsBus.start(server.url, name="reader")
    await until(lambda: agent.connected and reader_bus.connected)
    await reader_bus.ensure()
    mint, reader = stepping_mint(), Reader()
    await reader_bus.follow((NodeTelemetry, NodeHardware), reader)
    await agent.publish(mint.mint(told(1)))
    await until(lambda: reader.state() == [told(1)])

    assert await disk.shell(f"dd if=/dev/zero of={disk.folder}/filler bs=4k") != 0, "dd writes until nothing fits"
    filler = {"filler": "x" * 30_000}
    for load in range(2, 12):
        await agent.publish(mint.mint(NodeHardware(node=f"n{load}", labels=filler)))
        await agent.publish(mint.mint(told(load)))
    await until(lambda: told(11) in reader.state())  # the live copies do not need a disk

    async with asyncio.timeout(180):
        while await health(monitor) == 200:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    assert await disk.shell(f"rm {disk.folder}/filler") == 0
    assert await health(monitor) == 503, "a server that met a full disk keeps its store closed"
    await server.kill()  # what its liveness probe, which asks this page, leads to
    await server.start()
    await until(lambda: reader_bus.connected)
    await reader_bus.ensure()

    async with asyncio.timeout(180):
        while await _stored(reader_bus) != {told(11), *(f"n{load}" for load in range(2, 12))}:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.05)
    for bus in (agent, reader_bus):
        await bus.close()
    await server.kill()


async def health(monitor: int) -> int:
    """Status of the page that the chart's liveness probe asks."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
        session.get(f"http://127.0.0.1:{monitor}/healthz") as answer,
    ):
        return answer.status


async def _stored(bus: NatsBus) -> set[object]:
    try:
        events = await bus.state((NodeTelemetry, NodeHardware))
    except (BusUnavailable, BusRefused):
        return set()
    return {event.data.node if isinstance(event.data, NodeHardware) else event.data for event in events}
