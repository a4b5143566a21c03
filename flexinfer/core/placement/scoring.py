"""The sum that ranks nodes, and the score 0..10 kube-scheduler gets.

``sum = tps * w - util * w - cost * w - kv * w + ratio * w`` with ``tps``, ``util``, ``cost`` and ``kv`` on 0..100
and the ratio on 0..1, so speed usually leads and headroom decides between equals.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from flexinfer.contracts.events import Term
from flexinfer.contracts.extender import MAX_SCORE
from flexinfer.core.placement.figures import Figures

UNMEASURED = 50.0  # neither helped nor hurt: half of the best
MIN_SPREAD = 20.0  # below it differences are noise and stay small


@dataclass(frozen=True, slots=True)
class Weights:
    """Of the terms; negative ones would reward load and are refused with ValueError."""

    tps: float = 0.7
    util: float = 0.2
    cost: float = 0.1
    kv_cache: float = 0.3
    vram_free: float = 10.0

    def __post_init__(self) -> None:
        for name in ("tps", "util", "cost", "kv_cache", "vram_free"):
            value = getattr(self, name)
            if not 0 <= value < 1e6:
                raise ValueError(f"weight {name} is {value}; it must be a number of 0 or more")


@dataclass(frozen=True, slots=True)
class Scale:
    """What a set of candidates is normalised by. ``best_tps`` None: nobody measured; ``dearest`` None: no prices."""

    best_tps: float | None
    dearest: float | None
    unpriced_share: float


def scale_of(candidates: Sequence[Figures]) -> Scale:
    """Over the nodes asked about."""
    measured = [c.speed.tokens_per_second for c in candidates if c.speed is not None and not c.speed.estimated]
    prices = [c.cost for c in candidates if c.cost is not None]
    dearest = max(prices, default=None)
    middle = median(100 * price / dearest for price in prices) if dearest else 0.0
    return Scale(max(measured, default=None), dearest, middle)


def tps_share(candidate: Figures, scale: Scale) -> float:
    """Speed as a share of the best measured, 0..100."""
    if scale.best_tps is None or candidate.speed is None:
        return UNMEASURED
    return min(100 * candidate.speed.tokens_per_second / scale.best_tps, 100.0)


def cost_share(candidate: Figures, scale: Scale) -> float:
    """Price as a share of the dearest, 0..100; the median share where there is none."""
    if not scale.dearest:
        return 0.0
    return scale.unpriced_share if candidate.cost is None else 100 * candidate.cost / scale.dearest


def total(candidate: Figures, scale: Scale, weights: Weights) -> float:
    """The sum of one node."""
    return (
        weights.tps * tps_share(candidate, scale)
        - weights.util * candidate.util
        - weights.cost * cost_share(candidate, scale)
        - weights.kv_cache * candidate.kv
        + weights.vram_free * candidate.ratio
    )


def score(value: float, best: float, worst: float) -> int:
    """0..10: ten for the best, one less for each tenth of the spread, which counts as at least MIN_SPREAD."""
    return max(0, min(MAX_SCORE, MAX_SCORE - round(MAX_SCORE * (best - value) / max(best - worst, MIN_SPREAD))))


def terms(candidate: Figures, scale: Scale, weights: Weights, now: float, speed_at: float | None) -> tuple[Term, ...]:
    """The parts of ``total``, signed; added in this order they give exactly the sum."""
    age = None if candidate.telemetry_at is None else max(now - candidate.telemetry_at, 0.0)
    speed_age = None if speed_at is None else max(now - speed_at, 0.0)
    parts = (
        ("tps", tps_share(candidate, scale), weights.tps, 1.0, speed_age, tps_note(candidate, scale)),
        ("util", candidate.util, weights.util, -1.0, age, candidate.note),
        ("cost", cost_share(candidate, scale), weights.cost, -1.0, None, cost_note(candidate, scale)),
        ("kvCache", candidate.kv, weights.kv_cache, -1.0, age, candidate.note),
        ("vramFree", candidate.ratio, weights.vram_free, 1.0, age, candidate.note),
    )
    return tuple(
        Term(
            name=name,
            value=value,
            weight=weight,
            contribution=sign * (weight * value) + 0.0,  # + 0.0 turns -0.0 into 0.0
            age_seconds=old,
            note=note,
        )
        for name, value, weight, sign, old, note in parts
    )


def tps_note(candidate: Figures, scale: Scale) -> str:
    """Tokens/s behind the share, and where they come from."""
    if scale.best_tps is None:
        return "nobody measured: half for all"
    speed = candidate.speed
    if speed is None:
        return "not measured on this device class: half of the best"
    text = f"{speed.tokens_per_second:.1f} tokens/s"
    return f"{text}, {speed.note}" if speed.note else text


def cost_note(candidate: Figures, scale: Scale) -> str:
    """Why the share is not the node's own price."""
    if scale.dearest is None:
        return "no node has a price"
    return "no price: the median of the others" if candidate.cost is None else ""
