"""Runs the scripts that need nothing beyond the project, writes benchmarks/results/<name>.json and docs/numbers.md.

    python -m benchmarks [NAME ...]     all, or these, and then the page
    python -m benchmarks --page         the page alone, from the results that are there

The comparisons with peers need programs of their own and say in their docstrings how to run them.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results"
# script -> arguments; FILE stands for its result file, FOLDER for the results folder
SCRIPTS: dict[str, tuple[str, ...]] = {
    "bus": ("--json", "FILE"),
    "extender": ("--output", "FOLDER"),
    "extender_latency": ("--output", "FILE"),
    "extender_warm": ("--output", "FILE"),
    "extender_quality": ("--output", "FOLDER"),
    "placement_best": ("--output", "FOLDER"),
    "scale_agents": ("--output", "FILE"),
    "scale_fleet": ("--output", "FOLDER"),
    "scale_models": ("--output", "FOLDER"),
    "scale_log": ("--output", "FILE"),
    "benchmarker_overhead": ("--output", "FILE"),
    "agent_footprint": ("--output", "FILE"),
    "proxy": ("--rounds", "3", "--output", "FILE"),
    "replay": ("--output", "FILE"),
    "dashboard": ("--output", "FILE"),
    "manager_models": ("--output", "FILE"),
    "control_plane_idle": ("--output", "FILE"),
}


def write_page() -> int:
    """Exit code of the generator."""
    return subprocess.run([sys.executable, str(HERE / "numbers_page.py")], check=False).returncode


def main() -> int:
    """Exit code: that of the first script that failed."""
    names = sys.argv[1:] or list(SCRIPTS)
    if names == ["--page"]:
        return write_page()
    unknown = [name for name in names if name not in SCRIPTS]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; there are {', '.join(SCRIPTS)}")
        return 2
    RESULTS.mkdir(exist_ok=True)
    for name in names:
        places = {"FILE": str(RESULTS / f"{name}.json"), "FOLDER": str(RESULTS)}
        args = [places.get(arg, arg) for arg in SCRIPTS[name]]
        print(f"== {name}, load {os.getloadavg()[0]:.1f}", flush=True)
        began = time.monotonic()
        done = subprocess.run([sys.executable, str(HERE / f"{name}.py"), *args], check=False)
        print(f"== {name} took {time.monotonic() - began:.0f} s", flush=True)
        if done.returncode:
            return done.returncode
    return write_page()


if __name__ == "__main__":
    sys.exit(main())
