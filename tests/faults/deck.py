"""The faults of a walk as data, drawn from a seed alone: the same seed breaks the same things in the same order."""

import random
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

Kind = Literal[
    "kill", "restart", "freeze", "bus-restart", "bus-freeze", "bus-wipe", "api-restart", "api-freeze",
    "cut", "hold", "flap", "drop-stream", "drop-claim", "drop-pod", "drop-job", "drop-deployment", "kill-engine",
    "create", "delete", "scale", "update", "sleep",
]  # fmt: skip

PARTS = ("manager-a", "manager-b", "scheduler", "proxy-a", "proxy-b", "agent", "placer", "machine-a", "machine-b")
GRACEFUL = ("manager-a", "manager-b", "scheduler", "proxy-a", "proxy-b", "agent", "placer")
LINKS = (
    "manager-a-api", "manager-b-api", "scheduler-api", "machine-a-api", "machine-b-api", "placer-api",
    "manager-a-bus", "manager-b-bus", "scheduler-bus", "proxy-a-bus", "proxy-b-bus", "machine-a-bus", "machine-b-bus",
)  # fmt: skip
STREAMS = ("KV_flexinfer_nodes", "KV_flexinfer_bench", "KV_flexinfer_models", "KV_flexinfer_demand", "FLEXINFER_LOG")
SLOTS = ("m0", "m1", "m2", "m3")

WEIGHTS: dict[Kind, int] = {
    "kill": 12, "restart": 6, "freeze": 8, "bus-restart": 4, "bus-freeze": 3, "bus-wipe": 1, "api-restart": 3,
    "api-freeze": 3, "cut": 6, "hold": 6, "flap": 3, "drop-stream": 3, "drop-claim": 3, "drop-pod": 5, "drop-job": 2,
    "drop-deployment": 2, "kill-engine": 4, "create": 6, "delete": 5, "scale": 5, "update": 4, "sleep": 4,
}  # fmt: skip


class Fault(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``gap``: seconds after the one before. ``seconds``: how long it lasts, or how long what was killed stays away.
    ``number``: which of several, or a count; what it means is the kind's own."""

    kind: Kind
    gap: float
    target: str = ""
    seconds: float = 0.0
    number: int = 0
    way: Literal["up", "down", "both"] = "both"


def plan(seed: int, *, pace: float, longest: float) -> Iterator[Fault]:
    """For ever. ``pace``: mean seconds between two faults; ``longest``: seconds that a fault may last."""
    dice = random.Random(seed)
    kinds, weights = zip(*WEIGHTS.items(), strict=True)
    while True:
        [kind] = dice.choices(kinds, weights)
        # Every number is drawn for every kind, so that one kind's needs do not shift what follows.
        gap, length, number, way = dice.expovariate(1 / pace), dice.random(), dice.randrange(1000), dice.random()
        yield Fault(
            kind=kind,
            gap=round(min(gap, 5 * pace), 3),
            target=_target(kind, dice.randrange(1000)),
            seconds=round(_length(kind, length, longest), 3),
            number=number,
            way="up" if way < 0.3 else "down" if way < 0.6 else "both",
        )


def _target(kind: Kind, pick: int) -> str:
    among: dict[Kind, tuple[str, ...]] = {
        "kill": PARTS, "restart": GRACEFUL, "freeze": PARTS, "cut": LINKS, "hold": LINKS, "flap": LINKS,
        "drop-stream": STREAMS, "create": SLOTS, "delete": SLOTS, "scale": SLOTS, "update": SLOTS, "sleep": SLOTS,
        "drop-pod": SLOTS, "drop-deployment": SLOTS,
    }  # fmt: skip
    choice = among.get(kind, ("",))
    return choice[pick % len(choice)]


def _length(kind: Kind, draw: float, longest: float) -> float:
    if kind in {"freeze", "hold", "bus-freeze", "api-freeze"}:
        return 0.5 + draw * draw * longest
    if kind in {"kill", "restart", "bus-restart", "bus-wipe", "api-restart"}:
        return draw * longest / 4
    return 0.0
