"""How long two clusters behind one global proxy take to fail over and to spill, with real processes.

Two clusters on this machine (bus, proxy, an engine of known speed each) are joined to a hub by NATS leaf nodes; the
global proxy knows them from their headroom events alone. Four clients ask all the time. Per round:

* kill: one cluster's proxy gets SIGKILL. Requests lost, the slowest request from then on, and the seconds until the
  global proxy takes the cluster for down.
* freeze: it gets SIGSTOP, so that connections stand and nothing answers. The same figures: what waits there has to be
  answered by the other cluster.
* spill: with ``--strategy headroom``, one cluster is filled with long streams. Seconds until nine of ten new requests
  go to the other one.

    python benchmarks/proxy_failover.py [--rounds 5] [--output FILE]
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import Endpoint, ModelEndpoint
from flexinfer.local.nats_server import NatsServer
from flexinfer.local.ports import free_port
from flexinfer.runtime.clock import SystemClock
from flexinfer.testing.fake_engine import FakeEngine, Speeds

GOAL_SECONDS = 5.0
NAMES = ("east", "west")
ENGINE_SPEED = 400.0
PATIENCE = 60.0
PROGRAM = "import sys; from flexinfer.cli import run_program; sys.exit(run_program({!r}))"


def question(tokens: int, *, stream: bool = False) -> bytes:
    body = json.dumps(
        {"model": "m", "stream": stream, "max_tokens": tokens, "messages": [{"role": "user", "content": "hi"}]}
    )
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


async def ask(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and the rest; status 0 for a connection that broke."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request)
            raw = await reader.read()
        finally:
            writer.close()
    except OSError:
        return 0, {}, b""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(first.split(" ")[1]) if first.startswith("HTTP/") else 0, headers, body


@asynccontextmanager
async def program(name: str, port: int, log: Path, *args: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """One of our executables, ready."""
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM.format(name), "--host", "127.0.0.1", "--port", str(port), *args,
            stdout=out, stderr=out,
        )  # fmt: skip
    try:
        ready = b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        deadline = time.monotonic() + PATIENCE
        while (await ask(port, ready))[0] != 200:
            if time.monotonic() > deadline or process.returncode is not None:
                sys.exit(f"{name} did not become ready; its log is {log}")
            await asyncio.sleep(0.05)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@dataclass
class World:
    """The hub, the clusters and their proxies."""

    folder: Path
    hub: NatsServer
    buses: dict[str, str] = field(default_factory=dict)  # cluster -> URL
    ports: dict[str, int] = field(default_factory=dict)
    proxies: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    async def run(self, stack: AsyncExitStack, name: str) -> None:
        """Start a cluster's proxy (again)."""
        self.proxies[name] = await stack.enter_async_context(
            program(
                "flexinfer-proxy", self.ports[name], self.folder / f"{name}.log", "--nats-url", self.buses[name],
                "--cluster", name, "--instance", f"{name}-1",
            )
        )  # fmt: skip


async def world_in(folder: Path, stack: AsyncExitStack) -> World:
    leafs = free_port()
    hub = await NatsServer(folder / "hub", options=f"leafnodes {{ listen: 127.0.0.1:{leafs} }}").start()
    stack.push_async_callback(hub.kill)
    made = World(folder, hub)
    clock = SystemClock()
    for name in NAMES:
        options = (
            f'jetstream {{ store_dir: "{folder}/{name}/jetstream", domain: {name}, max_file_store: 1073741824 }}\n'
            f'leafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:{leafs}", '
            'deny_imports: ["$KV.>", "$JS.>"], deny_exports: ["$KV.>", "$JS.>", "_INBOX.>"] } ] }\n'
        )
        nats = await NatsServer(folder / name, options=options).start()
        stack.push_async_callback(nats.kill)
        engine = await FakeEngine(speeds=Speeds(tokens_per_second=ENGINE_SPEED)).start()
        stack.push_async_callback(engine.stop)
        bus = await NatsBus.start(nats.url, name="owner", cluster=name, clock=clock)
        stack.push_async_callback(bus.close)
        while not bus.connected:  # noqa: ASYNC110 - the port has no event for it
            await asyncio.sleep(0.02)
        await bus.ensure()
        place = Endpoint(url=engine.url, pod="engine", tokens_per_second=0.75 * ENGINE_SPEED)
        spec = ModelEndpoint(namespace="default", model="m", backend="fake", endpoints=(place,))
        await bus.publish(EventMint.start("manager", "bench", "b", clock.now, name).mint(spec), durable=True)
        made.buses[name], made.ports[name] = nats.url, free_port()
        await made.run(stack, name)
    return made


async def up(port: int) -> set[str]:
    """Clusters the global proxy takes for up and knows a model of."""
    _, _, body = await ask(port, b"GET /status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    return {row["cluster"] for row in json.loads(body)["clusters"] if row["up"] and row["models"]}


async def until_up(port: int, *names: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await up(port) >= set(names):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


async def outage(globe: int, world: World, how: signal.Signals) -> dict[str, float]:
    """East breaks while four clients ask."""
    told: list[tuple[float, float, int]] = []  # began, ended, status

    async def client() -> None:
        while True:
            began = time.monotonic()
            status, _, _ = await ask(globe, question(4))
            told.append((began, time.monotonic(), status))

    async with asyncio.TaskGroup() as group:
        clients = [group.create_task(client()) for _ in range(4)]
        while len(told) < 40:  # noqa: ASYNC110 - a list has no event
            await asyncio.sleep(0.01)
        world.proxies["east"].send_signal(how)
        broke = time.monotonic()
        while "east" in await up(globe):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        down = time.monotonic()
        await asyncio.sleep(1.0)  # what waited there is answered by now or lost
        for task in clients:
            task.cancel()
    late = [row for row in told if row[1] > broke]
    return {
        "requests": len(late),
        "lost": sum(status != 200 for _, _, status in late),
        "slowest_seconds": round(max(ended - max(began, broke) for began, ended, _ in late), 3),
        "down_after_seconds": round(down - broke, 3),
    }


async def spill(globe: int, world: World) -> dict[str, float]:
    """East is filled; seconds until nine of ten requests go west."""
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        streams = [group.create_task(swallow(world.ports["east"])) for _ in range(2)]
        async with asyncio.timeout(PATIENCE):
            west = 0
            while west < 9:
                answers = [await ask(globe, question(4)) for _ in range(10)]
                west = sum(headers.get("x-flexinfer-cluster") == "west" for _, headers, _ in answers)
        took = time.monotonic() - began
        for stream in streams:
            stream.cancel()
    await asyncio.sleep(12.0)  # the rates of both are over a window of ten seconds
    return {"spilled_after_seconds": round(took, 3)}


async def swallow(port: int) -> None:
    """Read an endless stream until cancelled."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(question(1_000_000, stream=True))
        while await reader.read(1 << 16):
            pass
    finally:
        writer.close()


def worst_and_median(rows: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    return {
        name: {"median": statistics.median(row[name] for row in rows), "worst": max(row[name] for row in rows)}
        for name in rows[0]
    }


async def measure(rounds: int, folder: Path) -> dict[str, Any]:
    found: dict[str, list[dict[str, float]]] = {"kill": [], "freeze": [], "spill": []}
    async with AsyncExitStack() as stack:
        world = await world_in(folder, stack)
        port = free_port()
        options = ("--nats-url", world.hub.url)
        async with program("flexinfer-global-proxy", port, folder / "globe.log", *options):
            for _ in range(rounds):
                await until_up(port, *NAMES)
                found["kill"].append(await outage(port, world, signal.SIGKILL))
                await world.run(stack, "east")
                await until_up(port, *NAMES)
                found["freeze"].append(await outage(port, world, signal.SIGSTOP))
                world.proxies["east"].send_signal(signal.SIGCONT)
                print(found["kill"][-1], found["freeze"][-1], file=sys.stderr)
        async with program("flexinfer-global-proxy", port, folder / "globe.log", *options, "--strategy", "headroom"):
            for _ in range(max(1, rounds // 2)):
                await until_up(port, *NAMES)
                found["spill"].append(await spill(port, world))
                print(found["spill"][-1], file=sys.stderr)
    return {name: worst_and_median(rows) for name, rows in found.items()}


def main() -> int:
    """0 if nothing was lost and every cluster was out in time."""
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--rounds", type=int, default=5)
    command.add_argument("--output", type=Path)
    args = command.parse_args()
    with tempfile.TemporaryDirectory(prefix="flexinfer-failover-") as folder:
        found = asyncio.run(measure(args.rounds, Path(folder)))
    outages = (found["kill"], found["freeze"])
    report = {
        "what": "two clusters over NATS leaf nodes behind flexinfer-global-proxy: outages of one, spilling by headroom",
        "machine": f"{platform.machine()}, {os.cpu_count()} threads, Python {platform.python_version()}",
        "rounds": args.rounds,
        **found,
        "goal_seconds": GOAL_SECONDS,
    }
    text = json.dumps(report, indent=1)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")
    slowest = max(row[name]["worst"] for row in outages for name in ("slowest_seconds", "down_after_seconds"))
    return 0 if slowest < GOAL_SECONDS and not any(row["lost"]["worst"] for row in outages) else 1


if __name__ == "__main__":
    sys.exit(main())
