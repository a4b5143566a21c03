"""Runs the scripts that need nothing beyond the project and writes benchmarks/results/<name>.json.

    python -m benchmarks [NAME ...]

The comparisons with peers need programs of their own and say in their docstrings how to run them.
"""

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
    "benchmarker_overhead": ("--output", "FILE"),
    "agent_footprint": ("--output", "FILE"),
    "proxy": ("--rounds", "3", "--output", "FILE"),
    "replay": ("--output", "FILE"),
    "dashboard": ("--output", "FILE"),
    "manager_models": ("--output", "FILE"),
    "control_plane_idle": ("--output", "FILE"),
}


def main() -> int:
    """Exit code: that of the first script that failed."""
    names = sys.argv[1:] or list(SCRIPTS)
    unknown = [name for name in names if name not in SCRIPTS]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; there are {', '.join(SCRIPTS)}")
        return 2
    RESULTS.mkdir(exist_ok=True)
    for name in names:
        places = {"FILE": str(RESULTS / f"{name}.json"), "FOLDER": str(RESULTS)}
        args = [places.get(arg, arg) for arg in SCRIPTS[name]]
        print(f"== {name}", flush=True)
        began = time.monotonic()
        done = subprocess.run([sys.executable, str(HERE / f"{name}.py"), *args], check=False)
        print(f"== {name} took {time.monotonic() - began:.0f} s", flush=True)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
