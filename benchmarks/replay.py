"""Events per second through the fleet reducer at 5,000 nodes, and from a tape's bytes to its last decision.

Run: python benchmarks/replay.py [--output FILE]. No bus, no processes; half a minute. The goal is 50,000 folds per
second. Reading is measured beside it, because a replay from disk also decodes: its figure is lines per second.
"""

import argparse
import gc
import json
import platform
import statistics
import tempfile
import time
from pathlib import Path

from flexinfer.contracts.envelope import Event, EventMint
from flexinfer.contracts.events import Device, DeviceTelemetry, NodeHardware, NodeTelemetry
from flexinfer.core.fleet.fold import STATE_TYPES, fold, replace_state
from flexinfer.core.fleet.view import FleetView
from flexinfer.ports import Snapshot
from flexinfer.runtime.journal import Header, encode_line
from flexinfer.testing.replay import load, replay

NODES = 5000
ROUNDS = 20  # telemetry events per node
REPEATS = 5
TAPE_ROUNDS = 4
GOAL = 50_000
START = 1_800_000_000.0


class Fleet:
    """Agents with two cards each that tell hardware once and telemetry every two seconds."""

    def __init__(self) -> None:
        self.now = START
        self._mints = [EventMint.start("agent", f"n{i}", "boot-1", lambda: self.now) for i in range(NODES)]

    def hardware(self) -> list[Event]:
        """One event per node."""
        cards = tuple(
            Device(index=i, uuid=f"GPU-{i}", vendor="NVIDIA", product="NVIDIA L4", arch="sm_89", memory_mib=23034)
            for i in range(2)
        )
        return [mint.mint(NodeHardware(node=mint.instance, devices=cards)) for mint in self._mints]

    def telemetry(self, number: int) -> list[Event]:
        """One event per node, two seconds after the last ones."""
        self.now = START + 2.0 * number
        return [mint.mint(self._figures(mint.instance, number + i)) for i, mint in enumerate(self._mints)]

    @staticmethod
    def _figures(node: str, number: int) -> NodeTelemetry:
        devices = tuple(
            DeviceTelemetry(
                index=i, uuid=f"GPU-{i}", util_percent=float(number * 7 % 100), memory_used_mib=number * 31 % 20000,
                memory_free_mib=23034 - number * 31 % 20000,
            )
            for i in range(2)
        )  # fmt: skip
        return NodeTelemetry(node=node, interval_seconds=2.0, devices=devices)


def folds(hardware: list[Event], rounds: list[list[Event]]) -> float:
    """Events per second, decoded events into a view that knows every node."""
    view = FleetView()
    replace_state(view, STATE_TYPES, hardware, START)
    gc.collect()
    began = time.perf_counter()
    for number, events in enumerate(rounds, 1):
        now = START + 2.0 * number
        for event in events:
            fold(view, event, now)
    return sum(map(len, rounds)) / (time.perf_counter() - began)


def from_disk(hardware: list[Event], rounds: list[list[Event]], folder: Path) -> dict[str, float]:
    """Lines per second: reading and decoding, then folding through the extender's replay."""
    path = folder / "tape.jsonl"
    header = Header(tape="flexinfer", version=1, component="scheduler", instance="bench", release="0", started=START)
    lines = [json.dumps({f: getattr(header, f) for f in header.__struct_fields__}).encode()]
    lines.append(encode_line(START, Snapshot(STATE_TYPES, tuple(hardware), 1)))
    for number, events in enumerate(rounds, 1):
        lines += [encode_line(START + 2.0 * number, event) for event in events]
    path.write_bytes(b"\n".join(lines) + b"\n")
    began = time.perf_counter()
    tape = load(path)
    read = time.perf_counter()
    for _ in replay(tape):
        pass
    done = time.perf_counter()
    count = len(tape.facts)
    return {
        "lines": count,
        "bytes_per_line": path.stat().st_size // count,
        "read_lines_per_second": round(count / (read - began)),
        "replayed_facts_per_second": round(count / (done - read)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    output = parser.parse_args().output
    fleet = Fleet()
    hardware = fleet.hardware()
    rounds = [fleet.telemetry(number) for number in range(1, ROUNDS + 1)]
    found = [folds(hardware, rounds) for _ in range(REPEATS)]
    with tempfile.TemporaryDirectory() as folder:
        disk = from_disk(hardware, rounds[:TAPE_ROUNDS], Path(folder))
    result = {
        "nodes": NODES,
        "events_per_run": NODES * ROUNDS,
        "goal_folds_per_second": GOAL,
        "folds_per_second": {
            "median": round(statistics.median(found)),
            "least": round(min(found)),
            "most": round(max(found)),
            "runs": REPEATS,
        },
        "from_disk": disk,
        "python": platform.python_version(),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if output:
        output.write_text(text + "\n")


if __name__ == "__main__":
    main()
