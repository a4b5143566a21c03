"""Is the cost of an event flat as the fleet grows? And what a view of 5,000 nodes takes to start and to hold.

In one process, without I/O: for each size of fleet the state of all nodes (two devices each, hardware and telemetry) is
decoded and folded into a view as a fresh replica does from its snapshot, the first offers are made, and then events
come one by one: telemetry decoded, folded and the offers kept ready for two kinds of demand renewed, as in the
extender; a pod bound and its end folded; a request answered for 100 names. Times are processor time, medians; sizes
take turns, so that whatever else the machine does meets all alike. Memory is what the process grew by, from
/proc/self/statm, in a child of its own for each size.

    python benchmarks/scale_fleet.py [--sizes 100 1000 5000] [--output FOLDER]

writes scale_fleet.json and scale_fleet.svg. Goal: the cost per event at the largest size at most 1.5 times that at the
smallest (a larger view misses the processor's caches more often), a warm view of 5,000 nodes within half a second of
processor time after its bytes are there.
"""

import argparse
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from agent_footprint import resident_mb
from measuring import machine, show
from scale_crowd import Agent
from svg_charts import lines

from flexinfer.contracts.envelope import decode_event, encode_event
from flexinfer.contracts.extender import PodObject
from flexinfer.contracts.kubernetes import PODS, KubeDelta, Object
from flexinfer.core.fleet.fold import STATE_TYPES, fold, replace_state
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.roster import Asked
from flexinfer.core.placement.scoring import Weights

SIZES = (100, 1000, 5000)
REPEATS = 400
ASKED = 100
GOALS = {"cost_ratio": 1.5, "warm_seconds": 0.5}


class Replica:
    """A view of ``count`` nodes and the desk over it. ``started``: processor seconds from bytes to a warm view."""

    def __init__(self, count: int, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._dice = random.Random(7)
        # An hour between two events of a node, so that ages play no part.
        self._agents = [Agent(f"gpu-node-{number:05d}", 2, 1 / 3600) for number in range(count)]
        self.names = [agent.name for agent in self._agents]
        state = [encode_event(agent.hardware()) for agent in self._agents]
        state += [encode_event(agent.telemetry(self._dice)) for agent in self._agents]
        self._bound: list[Object] = []
        gc.collect()
        before = resident_mb(os.getpid())
        began = time.process_time()
        self.view = FleetView()
        replace_state(self.view, STATE_TYPES, [decode_event(raw) for raw in state], now())
        self.desk = Desk(self.view, Weights())
        self.desk.warm(now())
        self.started = time.process_time() - began
        self.memory_mb = resident_mb(os.getpid()) - before
        self.ask(0)

    def telemetry(self, number: int) -> Callable[[], None]:
        """The next event, encoded; calling takes it in."""
        raw = encode_event(self._agents[number * 7919 % len(self._agents)].telemetry(self._dice))

        def take() -> None:
            fold(self.view, decode_event(raw), self._now())
            self.desk.keep_up(self._now())

        return take

    def pod(self, number: int) -> Callable[[], None]:
        """A pod is bound; every second one ends instead."""
        body = _pod(f"p{number}", self.names[number * 7919 % len(self.names)])
        action: Any = "MODIFIED"
        if self._bound:
            body, action = self._bound.pop(), "DELETED"
        else:
            self._bound.append(body)
        delta = KubeDelta(plural=PODS.plural, action=action, object=body)

        def take() -> None:
            fold(self.view, delta, self._now())
            self.desk.keep_up(self._now())

        return take

    def request(self, number: int) -> Callable[[], None]:
        return lambda: self.ask(number)

    def ask(self, number: int) -> None:
        pod = msgspec.convert(_pod(f"q{number}"), PodObject)
        start = number * 7919 % max(len(self.names) - ASKED, 1)
        asked = Asked(self.names[start : start + ASKED])
        passed = self.desk.filter(pod, asked, self._now()).passed
        self.desk.prioritize(pod, Asked(passed), self._now())
        self.desk.take()


def _pod(name: str, node: str = "") -> Object:
    return {
        "metadata": {
            "name": name, "namespace": "d", "uid": name,
            "annotations": {"flexinfer.ai/gpu.vram-estimate-mb": "2000", "flexinfer.ai/gpu.vendor": "NVIDIA"},
        },
        "spec": {"containers": [], **({"nodeName": node} if node else {})},
    }  # fmt: skip


KINDS: dict[str, Callable[[Replica, int], Callable[[], None]]] = {
    "telemetry": Replica.telemetry,
    "pod bound or ended": Replica.pod,
    f"filter and prioritize, {ASKED} names": Replica.request,
}


def costs(sizes: Sequence[int], repeats: int) -> dict[str, Any]:
    """Microseconds of processor time by kind of event and size."""
    replicas = {size: Replica(size) for size in sizes}
    gc.collect()
    gc.freeze()
    found: dict[str, Any] = {}
    for kind, make in KINDS.items():
        times: dict[int, list[float]] = {size: [] for size in sizes}
        for number in range(repeats):
            for size, replica in replicas.items():
                take = make(replica, number)
                began = time.process_time()
                take()
                times[size].append((time.process_time() - began) * 1e6)
        medians = {str(size): round(statistics.median(taken), 1) for size, taken in times.items()}
        ratio = medians[str(max(sizes))] / medians[str(min(sizes))]
        found[kind] = {**medians, "ratio": round(ratio, 2)}
    gc.unfreeze()
    return found


def start(size: int) -> dict[str, float]:
    """Of a fresh process: what a view of this size takes."""
    replica = Replica(size)
    return {"warm_cpu_seconds": round(replica.started, 3), "memory_mb": round(replica.memory_mb, 1)}


def _in_a_child(size: int) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, "--start", str(size)], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    command.add_argument("--repeats", type=int, default=REPEATS)
    command.add_argument("--start", type=int, help="only start a view of this size and print what it took")
    command.add_argument("--output", type=Path)
    options = command.parse_args()
    if options.start:
        print(json.dumps(start(options.start)))
        return
    starts = {str(size): [_in_a_child(size) for _ in range(3)] for size in options.sizes}
    found = {
        "machine": machine(),
        "method": (__doc__ or "").strip(), "goals": GOALS,
        "start": {
            size: {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}
            for size, runs in starts.items()
        },
        "event_cost_us": costs(options.sizes, options.repeats),
    }  # fmt: skip
    show(found)
    if options.output:
        (options.output / "scale_fleet.json").write_text(json.dumps(found, indent=1) + "\n")
        (options.output / "scale_fleet.svg").write_text(plot(found))


def plot(found: dict[str, Any]) -> str:
    """Cost per event, and seconds and MB of a start, over the number of nodes."""
    costs = {
        kind: [(float(size), value) for size, value in row.items() if size != "ratio"]
        for kind, row in found["event_cost_us"].items()
    }
    starts = found["start"]
    return lines(
        [
            ("µs per event", costs),
            ("MB of a view", {"memory": [(float(size), row["memory_mb"]) for size, row in starts.items()]}),
            (
                "s of CPU to a warm view",
                {"start": [(float(size), row["warm_cpu_seconds"]) for size, row in starts.items()]},
            ),
        ],
        "nodes",
    )


if __name__ == "__main__":
    main()
