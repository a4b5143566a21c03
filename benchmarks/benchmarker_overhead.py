"""What the benchmarker adds to what it measures: its numbers against a fake server of known speed.

The server (a process of its own) emits 1,000 tokens/s on each stream by absolute deadlines, so a request of N tokens
takes N milliseconds by declaration. The client is the one of flexinfer-bench, unchanged. Reported per concurrency,
median of interleaved rounds: how much longer requests seemed than declared, how much lower the total rate, and
what the server's own clock says, which is the part that is not the client's. Two lengths: 2,000 tokens, for which
the goal is, and the default 128, where 32 new connections at once weigh against requests of an eighth of a second.

    python benchmarks/benchmarker_overhead.py [--rounds 5] [--output FILE.json]
"""

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from flexinfer.adapters.inference.client import OpenAIClient
from flexinfer.runtime.process import run_app
from flexinfer.testing.fake_engine import FakeEngine, Speeds

SPEED = 1000.0
STREAMS = (1, 8, 32)
LENGTHS = (2000, 128)
GOAL_PERCENT = 2.0


async def serve() -> int:
    """The fake server: prints its address, ends when its input does."""
    engine = await FakeEngine(speeds=Speeds(SPEED)).start()
    print(engine.url, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await engine.stop()
    return 0


async def one_round(url: str, streams: int, tokens: int) -> dict[str, float]:
    """``streams`` requests at once; all figures in percent of the declared time or rate."""
    loop = asyncio.get_running_loop()
    before = resource.getrusage(resource.RUSAGE_SELF)
    async with OpenAIClient(url) as client:
        began = loop.time()
        done = await asyncio.gather(*(client.complete("fake-model", "a", tokens, {}) for _ in range(streams)))
        wall = loop.time() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    declared = tokens / SPEED
    total = sum(answer.completion_tokens for answer in done)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    engine = [answer.engine_tokens_per_second or 0.0 for answer in done]
    return {
        "request_longer_percent": (statistics.median(a.duration for a in done) / declared - 1) * 100,
        "rate_lower_percent": (1 - total / wall / (SPEED * streams)) * 100,
        "server_late_percent": (1 - statistics.median(engine) / SPEED) * 100,
        "client_cpu_us_per_token": cpu / total * 1e6,
    }


async def measure(url: str, rounds: int) -> dict[str, dict[str, float]]:
    await one_round(url, 8, 200)
    shapes = [(streams, tokens) for tokens in LENGTHS for streams in STREAMS]
    found: dict[tuple[int, int], list[dict[str, float]]] = {shape: [] for shape in shapes}
    for _ in range(rounds):
        for shape in shapes:
            found[shape].append(await one_round(url, *shape))
    return {
        f"{streams} x {tokens} tokens": {name: round(statistics.median(r[name] for r in runs), 3) for name in runs[0]}
        for (streams, tokens), runs in found.items()
    }


def main() -> int:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    command.add_argument("--rounds", type=int, default=5)
    command.add_argument("--output", type=Path)
    args = command.parse_args()
    if args.serve:
        return run_app(serve)
    with subprocess.Popen(
        [sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        results: dict[str, dict[str, float]] = {}

        async def body() -> int:
            results.update(await measure(url, args.rounds))
            return 0

        run_app(body)
        server.communicate()
    judged = [row for shape, row in results.items() if shape.endswith(f" {LENGTHS[0]} tokens")]
    worst = max(max(row["request_longer_percent"], row["rate_lower_percent"]) for row in judged)
    report = {
        "what": "benchmarker client against a fake server of 1,000 tokens/s per stream",
        "machine": f"{platform.machine()}, {os.cpu_count()} threads, Python {platform.python_version()}",
        "rounds": args.rounds,
        "by_shape": results,
        "worst_percent": worst,
        "goal_percent": GOAL_PERCENT,
    }
    text = json.dumps(report, indent=2)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")
    return 0 if worst < GOAL_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
