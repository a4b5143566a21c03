"""Is placement good? Tokens/s of whole fleets against simpler policies, and who wins as each term varies.

Fleets: 1 fast card to 2 slow ones (58 and 10 tokens/s measured), idle or with background load, and as many pods as
there are fast cards. Each pod is filtered, scored and bound through the real Desk, ties by chance as kube-scheduler
does; a pod gives the measured tokens/s of its card, less the share of it that was busy. Policies: round robin, least
loaded (lowest utilisation, then most free memory), and the best possible.

Terms: two nodes that differ in speed (share of the faster one on the x axis) and in one other term (y axis); the line
is where the slower node begins to win, from the real ranking, found by bisection.

    python benchmarks/extender_quality.py [--output FOLDER]
"""

import argparse
import json
import random
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import BenchCompleted, Device, DeviceTelemetry, NodeHardware, NodeTelemetry
from flexinfer.contracts.extender import PodObject
from flexinfer.contracts.kubernetes import KubeDelta
from flexinfer.core.fleet.fold import fold
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.hardware.device_class import device_class
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.offers import Offer
from flexinfer.core.placement.ranking import rank
from flexinfer.core.placement.roster import Asked
from flexinfer.core.placement.scoring import Weights
from flexinfer.core.placement.speeds import Speeds

NOW = 1_800_000_000.0
KEY = "llama3-8b-0123456789ab"
CARDS = {"fast": ("NVIDIA GeForce RTX 4090", "sm_89", 58.0), "slow": ("NVIDIA GeForce RTX 3060", "sm_86", 10.0)}
MEMORY = 24564
POINTS = tuple(range(10, -1, -1))


def card(node: str, kind: str) -> Device:
    product, arch, _ = CARDS[kind]
    return Device(index=0, uuid=f"GPU-{node}", vendor="NVIDIA", product=product, arch=arch, memory_mib=MEMORY)


def result(kind: str) -> BenchCompleted:
    return BenchCompleted(
        key=f"k-{kind}", namespace="d", model="m", workload=KEY, source="s", backend="vllm",
        device_class=device_class(card("x", kind), 1), tokens_per_second=CARDS[kind][2], iterations=5,
        duration_seconds=30.0,
    )  # fmt: skip


class Fleet:
    """``fast`` fast nodes and twice as many slow ones, busy as drawn from 0 to ``load`` percent."""

    def __init__(self, fast: int, load: float, seed: int) -> None:
        self.random = random.Random(seed)
        self.kinds = {f"fast-{n}": "fast" for n in range(fast)} | {f"slow-{n}": "slow" for n in range(2 * fast)}
        self.names = list(self.kinds)
        self.random.shuffle(self.names)
        self.util = {name: self.random.uniform(0, load) for name in self.names}

    def view(self) -> FleetView:
        view = FleetView()
        for name in self.names:
            mint = EventMint.start("agent", name, "boot", lambda: NOW)
            live = DeviceTelemetry(
                index=0, uuid=f"GPU-{name}", util_percent=self.util[name],
                memory_free_mib=int(MEMORY * (1 - self.util[name] / 200)),
            )  # fmt: skip
            fold(view, mint.mint(NodeHardware(node=name, devices=(card(name, self.kinds[name]),))), NOW)
            fold(view, mint.mint(NodeTelemetry(node=name, interval_seconds=3600.0, devices=(live,))), NOW)
        for kind in CARDS:
            fold(view, EventMint.start("bench", kind, "boot", lambda: NOW).mint(result(kind)), NOW)
        return view

    def given(self, node: str) -> float:
        """Tokens/s of one pod there."""
        return CARDS[self.kinds[node]][2] * (1 - self.util[node] / 100)


def extender(fleet: Fleet, pods: int) -> list[str]:
    view = fleet.view()
    desk = Desk(view, Weights())
    placed = []
    for number in range(pods):
        body = {
            "metadata": {
                "name": f"p{number}", "namespace": "d", "uid": f"u{number}",
                "annotations": {"flexinfer.ai/benchmark-key": KEY, "flexinfer.ai/gpu.vram-estimate-mb": "9000"},
            },
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        }  # fmt: skip
        pod = msgspec.convert(body, PodObject)
        passed = desk.filter(pod, Asked(fleet.names), NOW + number).passed
        scores = desk.prioritize(pod, Asked(passed), NOW + number).ranking.translated(POINTS)
        best = max(scores)
        node = fleet.random.choice([name for name, score in zip(passed, scores, strict=True) if score == best])
        placed.append(node)
        fold(
            view,
            KubeDelta(plural="pods", action="MODIFIED", object=body | {"spec": body["spec"] | {"nodeName": node}}),
            NOW,
        )
    return placed


def round_robin(fleet: Fleet, pods: int) -> list[str]:
    return fleet.names[:pods]


def least_loaded(fleet: Fleet, pods: int) -> list[str]:
    return sorted(fleet.names, key=lambda name: fleet.util[name])[:pods]


def best_possible(fleet: Fleet, pods: int) -> list[str]:
    return sorted(fleet.names, key=fleet.given, reverse=True)[:pods]


POLICIES = {"extender": extender, "round robin": round_robin, "least loaded": least_loaded, "best": best_possible}


def fleets(runs: int) -> list[dict[str, Any]]:
    """Tokens/s of all pods together, per policy, medians over ``runs`` fleets."""
    found = []
    for fast in (3, 10, 30):
        for load in (0.0, 30.0, 90.0):
            totals: dict[str, list[float]] = {name: [] for name in POLICIES}
            for seed in range(runs):
                for name, policy in POLICIES.items():
                    fleet = Fleet(fast, load, seed)
                    totals[name].append(sum(fleet.given(node) for node in policy(fleet, fast)))
            row: dict[str, Any] = {"fast": fast, "slow": 2 * fast, "pods": fast, "load_percent": load}
            row |= {name: round(statistics.median(values), 1) for name, values in totals.items()}
            ratios = [a / b for a, b in zip(totals["extender"], totals["round robin"], strict=True)]
            row["to_round_robin"] = round(statistics.median(ratios), 2)
            pairs = list(zip(totals["extender"], totals["least loaded"], strict=True))
            row["worst_to_least_loaded"] = round(min(a / b for a, b in pairs), 2)
            found.append(row)
    return found


TERMS = {
    "util": ("utilisation of the fast node, %", 100.0),
    "kv": ("KV-cache use of the fast node, %", 100.0),
    "cost": ("price of the fast node, times the slow one's", 10.0),
    "ratio": ("memory in use on the fast node, share", 1.0),
}


def slow_wins(share: float, term: str, amount: float) -> bool:
    fast = Offer("fast", 1.0, device_class="fast", ratio=1.0, cost=1.0)
    slow = Offer("slow", 1.0, device_class="slow", ratio=1.0, cost=1.0)
    worse = {"cost": 1.0 + amount} if term == "cost" else {"ratio": 1 - amount} if term == "ratio" else {term: amount}
    offers = {"fast": replace(fast, **worse), "slow": slow}
    speeds = Speeds(
        (msgspec.structs.replace(result("fast"), key=name, device_class=name, tokens_per_second=speed), 0.0)
        for name, speed in (("fast", 100.0), ("slow", max(share * 100, 0.01)))
    )
    ranking = rank(["fast", "slow"], offers, speeds, Weights())
    return ranking.sums[1] > ranking.sums[0]


def border(term: str) -> list[tuple[float, float | None]]:
    """(share of the slow node, how much worse the fast one must be for the slow one to win; None: never)."""
    found: list[tuple[float, float | None]] = []
    top = TERMS[term][1]
    for step in range(101):
        share = step / 100
        if not slow_wins(share, term, top):
            found.append((share, None))
            continue
        low, high = 0.0, top
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (low, middle) if slow_wins(share, term, middle) else (middle, high)
        found.append((share, round(high, 3)))
    return found


def plot(borders: dict[str, list[tuple[float, float | None]]]) -> str:
    """One panel per term; the shaded part is where the slower node wins."""
    size, gap = 220, 70
    side = 2 * (size + gap) + 20
    font = 'font-family="sans-serif" font-size="11"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{side}" height="{side}" {font}>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (term, line) in enumerate(borders.items()):
        left, top = gap + (number % 2) * (size + gap), 20 + (number // 2) * (size + gap)
        label, most = TERMS[term]
        points = [(left + share * size, top + size - value / most * size) for share, value in line if value is not None]
        parts.append(f'<rect x="{left}" y="{top}" width="{size}" height="{size}" fill="#e8eef7" stroke="#555"/>')
        if points:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            corners = f"{left + size},{top} {points[0][0]:.1f},{top}"
            parts.append(f'<polygon points="{path} {corners}" fill="#f2b880" stroke="#b35900"/>')
        parts.append(f'<text x="{left}" y="{top + size + 14}">0</text>')
        parts.append(f'<text x="{left + size}" y="{top + size + 14}" text-anchor="end">1</text>')
        parts.append(
            f'<text x="{left + size / 2}" y="{top + size + 28}" text-anchor="middle">speed of slow / fast</text>'
        )
        parts.append(f'<text x="{left - 6}" y="{top + 10}" text-anchor="end">{most:g}</text>')
        parts.append(
            f'<text transform="translate({left - 28} {top + size / 2}) rotate(-90)" text-anchor="middle">{label}</text>'
        )
        parts.append(f'<text x="{left + 8}" y="{top + size - 8}" fill="#335">fast wins</text>')
        if points:
            parts.append(f'<text x="{left + size - 8}" y="{top + 16}" text-anchor="end" fill="#630">slow wins</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--runs", type=int, default=15)
    command.add_argument("--output", type=Path)
    options = command.parse_args()
    rows = fleets(options.runs)
    for row in rows:
        print(row)
    borders = {term: border(term) for term in TERMS}
    first = {term: next((point for point in line if point[1] is not None), None) for term, line in borders.items()}
    print("slowest node that can still win, and how much worse the fast one must be then:", first)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "extender_quality.json").write_text(json.dumps({"fleets": rows, "borders": borders}) + "\n")
        (options.output / "extender_terms.svg").write_text(plot(borders))


if __name__ == "__main__":
    main()
