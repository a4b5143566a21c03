"""5,000 agents on one bus: what the bus and the extender spend, and how fresh the extender's view is.

A nats-server, the embedded Kubernetes API, the ``flexinfer-sched`` executable, and one process that is all agents
(scale_crowd.py): a connection each, telemetry of two devices once a second each with its acknowledged state write, its
live copy and its sampled copy. Processor time is user plus system of each process over ``--seconds``; freshness is the
time from publishing that one of two more nodes is busy to the prioritize answer that shows it, as in
extender_latency.py.

    python benchmarks/scale_agents.py [--nodes 5000] [--hertz 1] [--seconds 30] [--samples 60] [--output FILE.json]

Goal: the extender under half a core, p99 of freshness 50 ms. On a machine with fewer cores than processes the latter is
mostly waiting for a core; the shares of processor time are not.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
from agent_footprint import cpu_seconds, resident_mb
from extender_latency import PATIENCE, Fleet, ended, extender, house, sample
from measuring import machine, measured, show

GOALS = {"extender_cores": 0.5, "publish_to_score_ms_p99": 50.0}
WARM_UP = 5.0
HERE = Path(__file__).parent


class Rig:
    """Everything running, the crowd humming. ``processes``: name -> pid; ``pair``: the two nodes asked about."""

    processes: dict[str, int]
    url: str
    pair: Fleet
    crowd: asyncio.subprocess.Process

    async def start(self, stack: AsyncExitStack, nodes: int, hertz: float) -> "Rig":
        folder = Path(tempfile.mkdtemp(prefix="flexinfer-bench-"))
        server, bus = await house(stack, folder)
        assert server.process is not None
        self.processes = {"nats-server": server.process.pid}
        self.pair = Fleet(bus, 2)
        await self.pair.introduce()
        self.crowd = await asyncio.create_subprocess_exec(
            sys.executable, str(HERE / "scale_crowd.py"), server.url, str(nodes), "--hertz", str(hertz),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        stack.push_async_callback(ended, self.crowd)
        self.processes["agents"] = self.crowd.pid
        assert self.crowd.stdout is not None
        async with asyncio.timeout(PATIENCE):
            if await self.crowd.stdout.readline() != b"ready\n":
                raise RuntimeError("the simulated agents did not start")
        self.url, self.processes["extender"] = await extender(stack, server.url, folder)
        return self

    async def said(self) -> dict[str, Any]:
        """Ends the crowd; what it sent."""
        output, _ = await self.crowd.communicate(b"")
        found: dict[str, Any] = json.loads(output)
        return found


async def spent(processes: dict[str, int], seconds: float) -> dict[str, float]:
    """Cores used by each over the next ``seconds``."""
    loop = asyncio.get_running_loop()
    before, began = {name: cpu_seconds(pid)[0] for name, pid in processes.items()}, loop.time()
    await asyncio.sleep(seconds)
    took = loop.time() - began
    return {name: round((cpu_seconds(pid)[0] - before[name]) / took, 3) for name, pid in processes.items()}


async def fresh(rig: Rig, samples: int) -> dict[str, Any]:
    """Milliseconds from publish to score."""
    waits, answers, never = [], [], 0
    async with aiohttp.ClientSession() as session:
        for number in range(samples):
            try:
                wait, answer = await sample(rig.pair, session, rig.url, number % 2)
            except TimeoutError:
                never += 1
                continue
            waits.append(wait * 1e3)
            answers.append(answer * 1e3)
            await asyncio.sleep(0.02)
    waits.sort()
    found: dict[str, Any] = {"samples": samples, "not_within_10_seconds": never}
    if waits:
        found |= {
            "p50": round(statistics.median(waits), 1), "p99": round(waits[int(len(waits) * 0.99)], 1),
            "one_answer_p50": round(statistics.median(answers), 1),
        }  # fmt: skip
    return found


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        rig = await Rig().start(stack, options.nodes, options.hertz)
        async with asyncio.timeout(PATIENCE):
            while (await fresh(rig, 1))["not_within_10_seconds"]:
                pass  # on a busy machine the extender begins without the bus
        await asyncio.sleep(WARM_UP)
        cores = await spent(rig.processes, options.seconds)
        freshness = await fresh(rig, options.samples)
        memory = {name: round(resident_mb(pid)) for name, pid in rig.processes.items()}
        said = await rig.said()
    per_event = {name: round(1e6 * share / said["events_per_second"]) for name, share in cores.items()}
    return {
        "machine": machine(),
        "method": (__doc__ or "").strip(), "nodes": options.nodes, "hertz": options.hertz, "goals": GOALS,
        "cores": cores, "cpu_us_per_event": per_event, "resident_mb": memory, "publish_to_score_ms": freshness,
        "agents": said, "load_of_the_machine_per_core": round(os.getloadavg()[0] / (os.cpu_count() or 1), 2),
    }  # fmt: skip


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--nodes", type=int, default=5000)
    command.add_argument("--hertz", type=float, default=1.0)
    command.add_argument("--seconds", type=float, default=30.0)
    command.add_argument("--samples", type=int, default=60)
    command.add_argument("--output", type=Path)
    options = command.parse_args()
    found = measured(measure(options), options.output)
    show(found)


if __name__ == "__main__":
    main()
