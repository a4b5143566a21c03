"""From an event published on the bus to the score that counts it, through real processes.

A nats-server, the embedded Kubernetes API and the ``flexinfer-sched`` executable; one publisher sends telemetry of
every node once a second, each over JetStream state and the live subject as agents do. For each sample one of two nodes
turns from idle to busy and the other back; the clock starts before the publish and stops when a prioritize answer shows
it. Asking takes its time too: the time of one answer is given beside it.

    python benchmarks/extender_latency.py [--nodes 1000] [--samples 200] [--output FILE.json]
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import aiohttp
from measuring import connected, machine, measured

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import Device, DeviceTelemetry, NodeHardware, NodeTelemetry
from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.local.nats_server import NatsServer
from flexinfer.local.ports import free_port
from flexinfer.runtime.clock import SystemClock

MEMORY = 24564
PATIENCE = 120.0
DEADLINE = 10.0


class Fleet:
    """Nodes with one card each, told of by one publisher."""

    def __init__(self, bus: NatsBus, count: int) -> None:
        self._bus = bus
        self.names = [f"node-{number:05d}" for number in range(count)]
        self._mints = {name: EventMint.start("agent", name, "boot", SystemClock().now) for name in self.names}

    async def introduce(self) -> None:
        for name in self.names:
            card = Device(index=0, uuid=f"GPU-{name}", vendor="NVIDIA", arch="sm_89", memory_mib=MEMORY)
            await self._bus.publish(self._mints[name].mint(NodeHardware(node=name, devices=(card,))))
            await self.live(name, 0.0)

    async def live(self, name: str, util: float) -> None:
        live = DeviceTelemetry(index=0, uuid=f"GPU-{name}", util_percent=util, memory_free_mib=MEMORY)
        await self._bus.publish(
            self._mints[name].mint(NodeTelemetry(node=name, interval_seconds=60.0, devices=(live,)))
        )

    async def hum(self) -> None:
        """Telemetry of all nodes but the first two, once a second, until cancelled."""
        others = self.names[2:]
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            for number, name in enumerate(others):
                await self.live(name, number % 90)
                if number % 20 == 0:
                    await asyncio.sleep(max(began + number / len(others) - loop.time(), 0))
            await asyncio.sleep(max(began + 1 - loop.time(), 0))


async def sample(fleet: Fleet, session: aiohttp.ClientSession, url: str, busy: int) -> tuple[float, float]:
    """(publish to score, one answer), seconds: node ``busy`` of the first two becomes busy, the other idle."""
    loop = asyncio.get_running_loop()
    pair = fleet.names[:2]
    pod = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": []}}
    pod["metadata"]["annotations"] = {"flexinfer.ai/gpu.vendor": "NVIDIA"}  # type: ignore[assignment]
    body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": pair})
    began = loop.time()
    await fleet.live(pair[busy], 100.0)
    await fleet.live(pair[1 - busy], 0.0)
    while loop.time() - began < DEADLINE:
        asked = loop.time()
        async with session.post(url + "/prioritize", data=body) as response:
            scores = {one["Host"]: one["Score"] for one in await response.json()}
        answered = loop.time()
        if scores[pair[busy]] == 0 and scores[pair[1 - busy]] == 10:
            return answered - began, answered - asked
    raise TimeoutError("the event never counted")


async def house(stack: AsyncExitStack, folder: Path) -> tuple[NatsServer, NatsBus]:
    """A bus with its streams, and the embedded API whose kubeconfig lies in ``folder``."""
    server = NatsServer(folder / "nats")
    await server.start()
    stack.push_async_callback(server.stop)
    embedded = EmbeddedApi()
    await embedded.start()
    stack.push_async_callback(embedded.stop)
    embedded.write_kubeconfig(folder / "kubeconfig")
    bus = await connected(server.url)
    stack.push_async_callback(bus.close)
    await bus.ensure()
    return server, bus


async def ended(process: asyncio.subprocess.Process) -> None:
    """Stop it, if it did not stop by itself."""
    with suppress(ProcessLookupError):
        process.terminate()
    await process.wait()


async def extender(stack: AsyncExitStack, bus: str, folder: Path) -> tuple[str, int]:
    """URL and pid of a ``flexinfer-sched`` that is ready and looks at load alone. Raises TimeoutError."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "flexinfer-sched"), "--host", "127.0.0.1", "--port", str(port),
        "--nats-url", bus, "--kubeconfig", str(folder / "kubeconfig"), "--log-level", "warning", "--weight-tps", "0",
    )  # fmt: skip
    stack.push_async_callback(ended, process)
    url = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE):
        while True:
            with suppress(aiohttp.ClientError):
                async with session.get(url + "/readyz") as response:
                    if response.status == 200:
                        return url, process.pid
            await asyncio.sleep(0.1)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="flexinfer-bench-"))
    async with AsyncExitStack() as stack:
        server, bus = await house(stack, folder)
        fleet = Fleet(bus, options.nodes)
        await fleet.introduce()
        url, _ = await extender(stack, server.url, folder)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        async with asyncio.TaskGroup() as group:
            humming = group.create_task(fleet.hum())
            await asyncio.sleep(2.0)
            found = []
            for number in range(options.samples):
                found.append(await sample(fleet, session, url, number % 2))
                await asyncio.sleep(0.01)
            humming.cancel()
    waits = sorted(wait for wait, _ in found)
    return {
        "machine": machine(),
        "method": (__doc__ or "").strip(),
        "nodes": options.nodes, "samples": options.samples, "events_per_second": options.nodes - 2,
        "publish_to_score_ms": {
            "p50": round(statistics.median(waits) * 1e3, 2), "p99": round(waits[int(len(waits) * 0.99)] * 1e3, 2),
        },
        "one_answer_ms_p50": round(statistics.median(answer for _, answer in found) * 1e3, 2),
    }  # fmt: skip


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--nodes", type=int, default=1000)
    command.add_argument("--samples", type=int, default=200)
    command.add_argument("--output", type=Path)
    options = command.parse_args()
    found = measured(measure(options), options.output)
    print({key: value for key, value in found.items() if key != "method"})


if __name__ == "__main__":
    main()
