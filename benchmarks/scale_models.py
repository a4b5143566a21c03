"""10,000 models in the manager's view: memory, and what one event costs as they grow.

In this process, without bus, API or any I/O: each model is taken from creation to Running by the manager's own reducer
and planner, whose writes are answered as an API server would (manager_event_cost.py), and then single events of each
kind are folded and decided upon. Times are medians; sizes take turns. Memory is what the process grew by while the view
was filled, which includes the objects of the API (model, Deployment, Service, pod) that the manager's caches hold.

    python benchmarks/scale_models.py [--sizes 100 1000 10000] [--output FOLDER]

writes scale_models.json and scale_models.svg. Goal: the cost per event at the largest size at most 1.5 times that at
the smallest.
"""

import argparse
import gc
import json
import os
import time
from pathlib import Path
from typing import Any

from agent_footprint import resident_mb
from manager_event_cost import Paper, event_costs
from measuring import machine, show
from svg_charts import lines

SIZES = (100, 1000, 10_000)
GOALS = {"cost_ratio": 1.5}


def fill(size: int) -> tuple[dict[str, float], Paper]:
    """What a view of this many running models takes, and the view."""
    gc.collect()
    before, began = resident_mb(os.getpid()), time.process_time()
    paper = Paper(size)
    spent = time.process_time() - began
    return {
        "memory_mb": round(resident_mb(os.getpid()) - before, 1),
        "cpu_ms_per_model": round(1e3 * spent / size, 2),
    }, paper


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    command.add_argument("--output", type=Path)
    options = command.parse_args()
    sizes = sorted(options.sizes)
    filled: dict[str, dict[str, float]] = {}
    papers: dict[int, Paper] = {}
    for size in sizes:
        filled[str(size)], papers[size] = fill(size)
    found: dict[str, Any] = {
        "machine": machine(),
        "method": (__doc__ or "").strip(), "goals": GOALS, "filled": filled,
        "event_cost_us": event_costs(sizes, papers),
    }  # fmt: skip
    show(found)
    if options.output:
        (options.output / "scale_models.json").write_text(json.dumps(found, indent=1) + "\n")
        (options.output / "scale_models.svg").write_text(plot(found))


def plot(found: dict[str, Any]) -> str:
    """Cost per event and memory over the number of models."""
    costs = {
        kind: [(float(size), value) for size, value in row.items() if size != "ratio"]
        for kind, row in found["event_cost_us"].items()
    }
    memory = {"memory": [(float(size), row["memory_mb"]) for size, row in found["filled"].items()]}
    return lines([("µs per event", costs), ("MB of the view", memory)], "models")


if __name__ == "__main__":
    main()
