"""The proxy against a direct connection, vllm-router and the LiteLLM proxy, on the same cores in one run.

One engine and one load generator on bare protocols (proxy_rig.py), each a process, with one proxy at a time in between.
The targets take turns in rounds, so that whatever else the machine does meets all of them; figures are medians over
the rounds, ratios are taken within a round. CPU is what the proxy's processes used, from /proc.

* latency: one connection, short answers; "added" is the difference to direct in the same round.
* throughput: 32 connections, short answers.
* streams: 500 connections, each at the engine's declared rate; tokens/s that arrived, and the gaps between tokens.
* flood: 500 streams as fast as they are read; relayed tokens/s.
* idle: 2,000 open streams per target, all targets at once, one token per ten seconds each; memory at the start and at
  the end (--idle-seconds). Only memory and errors are judged here, so it may run beside other work.

LiteLLM gets fewer streams where it serves none of so many (SLOW).

    python benchmarks/proxy.py [--rounds 5] [--output FILE] [--vllm-router PROGRAM] [--litellm PROGRAM]

The peers are not dependencies of the project: install ``vllm-router`` and ``litellm[proxy]`` into environments of
their own and name their programs.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import platform
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import Endpoint, ModelEndpoint
from flexinfer.local.nats_server import NatsServer
from flexinfer.runtime.clock import SystemClock

RIG = Path(__file__).with_name("proxy_rig.py")
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
OURS = "import sys; from flexinfer.cli import run_program; sys.exit(run_program('flexinfer-proxy'))"


def free_port() -> int:
    """Below the ephemeral range, so that no outgoing connection takes it meanwhile."""
    for port in range(21000, 32000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port
    raise SystemExit("no free port")


_given: set[int] = set()


@dataclass
class Target:
    """Something that listens on ``port``; ``pid`` is its process, 0 for the engine itself."""

    name: str
    port: int
    pid: int

    def processes(self) -> list[int]:
        """It and its children."""
        found, queue = [], [self.pid] if self.pid else []
        while queue:
            pid = queue.pop()
            found.append(pid)
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    queue += map(int, (task / "children").read_text().split())
        return found

    def cpu(self) -> float:
        """Seconds used so far."""
        total = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
        return total / TICKS

    def memory(self) -> int:
        """Resident bytes."""
        total = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
        return total


async def spawn(*argv: str, log: Path | None = None, **options: Any) -> asyncio.subprocess.Process:
    out = log.open("ab") if log else asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(*argv, stdout=out, stderr=out, **options)


async def listens(port: int, process: asyncio.subprocess.Process, path: bytes, seconds: float = 90) -> None:
    """Wait until a GET of ``path`` is answered with 200."""
    deadline = time.monotonic() + seconds
    while True:
        if process.returncode is not None:
            raise SystemExit(f"the program for port {port} ended with code {process.returncode}")
        if time.monotonic() > deadline:
            raise SystemExit(f"nobody answers on port {port}")
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-bench\r\n\r\n")
            line = await reader.readline()
            writer.close()
            if b" 200 " in line:
                return
        await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def ours(folder: Path, engine: int, workers: int) -> AsyncIterator[Target]:
    """The real executable on a real bus."""
    nats = await NatsServer(folder / "nats").start()
    clock = SystemClock()
    bus = await NatsBus.start(nats.url, name="bench", cluster="default", clock=clock)
    while not bus.connected:  # noqa: ASYNC110 - the port has no event for it
        await asyncio.sleep(0.02)
    await bus.ensure()
    endpoint = Endpoint(url=f"http://127.0.0.1:{engine}", pod="engine", tokens_per_second=50.0)
    spec = ModelEndpoint(namespace="default", model="m", backend="fake", endpoints=(endpoint,))
    await bus.publish(EventMint.start("manager", "bench", "b", clock.now).mint(spec), durable=True)
    port = free_port()
    process = await spawn(
        sys.executable, "-c", OURS, "--nats-url", nats.url, "--host", "127.0.0.1", "--port", str(port),
        "--instance", f"bench{workers}", "--workers", str(workers), log=folder / "ours.log",
    )  # fmt: skip
    try:
        await listens(port, process, b"/v1/models/m")
        yield Target(f"flexinfer-proxy x{workers}" if workers > 1 else "flexinfer-proxy", port, process.pid)
    finally:
        process.terminate()
        await process.wait()
        await bus.close()
        await nats.kill()


@contextlib.asynccontextmanager
async def vllm_router(program: str, folder: Path, engine: int) -> AsyncIterator[Target]:
    port, metrics = free_port(), free_port()
    process = await spawn(
        program, "--host", "127.0.0.1", "--port", str(port), "--worker-urls", f"http://127.0.0.1:{engine}",
        "--policy", "round_robin", "--log-level", "error", "--prometheus-port", str(metrics),
        log=folder / "router.log",
    )  # fmt: skip
    try:
        await listens(port, process, b"/health")
        yield Target("vllm-router", port, process.pid)
    finally:
        process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def litellm(program: str, folder: Path, engine: int) -> AsyncIterator[Target]:
    port = free_port()
    config = folder / "litellm.yaml"
    config.write_text(
        "model_list:\n  - model_name: m\n    litellm_params:\n      model: openai/m\n"
        f"      api_base: http://127.0.0.1:{engine}/v1\n      api_key: x\n"
        "general_settings:\n  master_key: sk-bench\nlitellm_settings:\n  telemetry: false\n"
    )
    process = await spawn(
        program, "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1",
        log=folder / "litellm.log", env={**os.environ, "LITELLM_LOG": "ERROR"},
    )  # fmt: skip
    try:
        await listens(port, process, b"/health/liveliness", 180)
        yield Target("litellm", port, process.pid)
    finally:
        process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def load(target: Target, **options: Any) -> dict[str, Any]:
    """One load on one target, with what it cost the target."""
    before = target.cpu()
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(RIG), "load", json.dumps({"port": target.port, **options}), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"the load on {target.name} failed")
    found: dict[str, Any] = json.loads(out)
    found["cpu_seconds"] = target.cpu() - before
    if found["requests"] and not options.get("stream"):
        found["cpu_us_per_request"] = 1e6 * found["cpu_seconds"] / found["requests"]
    if options.get("stream") and found["tokens_per_second"]:
        found["cpu_us_per_token"] = 1e6 * found["cpu_seconds"] / (found["tokens_per_second"] * found["seconds"])
    return found


def medians(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Median of each number, sum of errors; None for what does not apply (JSON knows no NaN)."""
    found: dict[str, Any] = {}
    for name in rows[0]:
        values = [row[name] for row in rows if isinstance(row.get(name), int | float) and not math.isnan(row[name])]
        middle = round(statistics.median(values), 4) if values else None
        found[name] = sum(values) if name == "errors" else middle
    return found


PHASES: dict[str, dict[str, Any]] = {
    "latency": {"connections": 1, "requests": 400},
    "throughput": {"connections": 32, "seconds": 3.0},
    "streams": {"connections": 500, "seconds": 6.0, "stream": True, "tokens": 100_000, "rate": 10.0},
    "flood": {"connections": 500, "seconds": 3.0, "stream": True, "tokens": 100_000, "rate": 0.0},
}
SLOW = {"litellm": {"latency": {"requests": 40}, "streams": {"connections": 50}, "flood": {"connections": 16}}}


async def phase(name: str, targets: list[Target], rounds: int) -> dict[str, Any]:
    """All rounds of one phase."""
    rows: dict[str, list[dict[str, Any]]] = {target.name: [] for target in targets}
    for number in range(rounds):
        for target in targets:
            options = {**PHASES[name], **SLOW.get(target.name, {}).get(name, {})}
            rows[target.name].append(await load(target, **options))
            if name == "latency":
                for share in ("p50", "p95", "p99"):
                    row, direct = rows[target.name][-1], rows["direct"][-1]
                    row[f"added_{share}_ms"] = row[f"{share}_ms"] - direct[f"{share}_ms"]
            print(f"{name} {number + 1}/{rounds} {target.name}: {summary(name, rows[target.name][-1])}", flush=True)
    return {target: medians(found) for target, found in rows.items()}


def summary(name: str, row: dict[str, Any]) -> str:
    if name == "latency":
        return f"p50 {row['p50_ms']:.3f} ms, p99 {row['p99_ms']:.3f} ms"
    if name == "throughput":
        return f"{row['requests_per_second']:.0f} requests/s, {row['cpu_us_per_request']:.0f} us CPU each"
    return f"{row['tokens_per_second']:.0f} tokens/s, gap p99 {row['gap_p99_ms']:.0f} ms, {row['errors']} errors"


async def idle(target: Target, seconds: float, streams: int = 2000) -> dict[str, Any]:
    """Open streams that hardly say anything; what the target holds in memory meanwhile."""
    before = target.memory()
    options = {
        "port": target.port, "connections": streams, "stream": True, "tokens": 100_000, "rate": 0.1, "hold": True,
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(RIG), "load", json.dumps(options),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    stdin, stdout = process.stdin, process.stdout
    assert stdin
    assert stdout

    async def ask() -> dict[str, Any]:
        stdin.write(b"\n")
        state: dict[str, Any] = json.loads(await stdout.readline())
        return {**state, "memory_mib": round(target.memory() / 2**20, 1)}

    first = await ask()
    cpu, began = target.cpu(), time.monotonic()
    trail = [first]
    while (left := began + seconds - time.monotonic()) > 0:
        await asyncio.sleep(min(left, max(1.0, seconds / 10)))
        trail.append(await ask())
        print(f"idle {target.name}: {trail[-1]}", flush=True)
    used = target.cpu() - cpu
    stdin.close()
    await process.wait()
    return {
        "streams": streams, "seconds": seconds, "memory_before_mib": round(before / 2**20, 1),
        "memory_open_mib": first["memory_mib"], "memory_end_mib": trail[-1]["memory_mib"],
        "kib_per_stream": round((trail[-1]["memory_mib"] - before / 2**20) * 1024 / streams, 1),
        "memory_trail_mib": [state["memory_mib"] for state in trail[1:]],
        "errors": trail[-1]["errors"], "open_end": trail[-1]["open"], "cores": round(used / seconds, 4),
    }  # fmt: skip


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """What the goals of the design ask for."""
    out: dict[str, float] = {}
    mine = "flexinfer-proxy"
    for peer in ("vllm-router", "litellm", "direct"):
        for name, figure in (("throughput", "requests_per_second"), ("flood", "tokens_per_second")):
            rows = found.get(name, {})
            if mine in rows and peer in rows and rows[peer][figure]:
                out[f"{name}_over_{peer}"] = round(rows[mine][figure] / rows[peer][figure], 3)
    if "latency" in found:
        out["added_p50_ms"] = found["latency"][mine]["added_p50_ms"]
    return out


async def main() -> None:
    """Run everything, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--phases", default=",".join(PHASES))
    parser.add_argument("--workers", default="1,2", help="numbers of worker processes to measure")
    parser.add_argument("--idle-seconds", type=float, default=0.0)
    parser.add_argument("--vllm-router", default="")
    parser.add_argument("--litellm", default="")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--update", action="store_true", help="keep what the output has of phases that are not run")
    args = parser.parse_args()
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flexinfer-bench-")))
        port = free_port()
        engine = await spawn(sys.executable, str(RIG), "engine", str(port))
        stack.callback(engine.kill)
        await listens(port, engine, b"/v1/models")
        targets = [Target("direct", port, 0)]
        for count in map(int, args.workers.split(",")):
            place = folder / f"x{count}"
            place.mkdir()
            targets.append(await stack.enter_async_context(ours(place, port, count)))
        if args.vllm_router:
            targets.append(await stack.enter_async_context(vllm_router(args.vllm_router, folder, port)))
        if args.litellm:
            targets.append(await stack.enter_async_context(litellm(args.litellm, folder, port)))
        found: dict[str, Any] = {
            "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]},
            "rounds": args.rounds,
        }
        for name in filter(None, args.phases.split(",")):
            found[name] = await phase(name, targets, args.rounds)
        if args.idle_seconds:
            asked = [target for target in targets if target.pid]
            rows = await asyncio.gather(*(idle(target, args.idle_seconds) for target in asked))
            found["idle"] = {target.name: row for target, row in zip(asked, rows, strict=True)}
        if "throughput" in found:
            found["ratios"] = ratios(found)
            print(json.dumps(found["ratios"], indent=1))
        if args.output:
            if args.update:
                known = json.loads(args.output.read_text())
                found = known | {name: found[name] for name in found if name not in {"machine", "rounds"}}
            args.output.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
