"""The sum that ranks nodes, and the score 0..10 kube-scheduler gets.

``sum = tps * w - util * w - cost * w - kv * w + ratio * w + cache * w``, the ratio on 0..1 and all others on 0..100, so
speed usually leads and headroom decides between equals. Sums are compared as integers: the order of nodes then
changes nothing, and a score is one division.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from msgspec import UnsetType

from flexinfer.contracts.events import CachedModel, Term
from flexinfer.contracts.extender import MAX_SCORE
from flexinfer.core.placement.offers import Offer
from flexinfer.core.placement.speeds import Speed, Speeds

UNMEASURED = 50.0  # neither helped nor hurt: half of the best
PARTS = 10_000  # of a point, to which sums are rounded: small enough to matter to nobody, and to divide fast
UNIT = 2 * MAX_SCORE * PARTS  # one point of a sum; the factor makes halves of a tenth of a spread whole numbers
MIN_SPREAD = 20 * UNIT  # below it differences are noise and stay small
MAX_WEIGHT = 1e6

# Terms as explanations name them, and the field of Weights of each.
TERMS = {
    "tps": "tps", "util": "util", "cost": "cost", "kvCache": "kv_cache", "vramFree": "vram_free", "cache": "cache",
}  # fmt: skip
SUBTRACTED = frozenset({"util", "cost", "kvCache"})
OFF = frozenset({"cache"})  # by default: not told of unless somebody gave a weight


@dataclass(frozen=True, slots=True)
class Weights:
    """Of the terms; negative ones would reward load and are refused with ValueError."""

    tps: float = 0.7
    util: float = 0.2
    cost: float = 0.1
    kv_cache: float = 0.3
    vram_free: float = 10.0
    cache: float = 0.0

    def __post_init__(self) -> None:
        for name in TERMS.values():
            check_weight(name, getattr(self, name))

    def told(self) -> dict[str, float]:
        """By the names of terms; those that are off are left out."""
        found = {name: float(getattr(self, field)) for name, field in TERMS.items()}
        return {name: weight for name, weight in found.items() if weight or name not in OFF}


def check_weight(name: str, value: float) -> None:
    """Raises ValueError for what is no number from 0 to MAX_WEIGHT."""
    if not 0 <= value <= MAX_WEIGHT:
        raise ValueError(f"weight {name} is {value}; it must be a number from 0 to {MAX_WEIGHT:.0f}")


@dataclass(frozen=True, slots=True)
class Scale:
    """What a set of candidates is held against. ``best_tps`` None: nobody measured; ``dearest`` None: no prices;
    ``entries``: the weights asked for, as nodes' caches name them."""

    best_tps: float | None = None
    dearest: float | None = None
    unpriced_share: float = 0.0
    entries: frozenset[str] = frozenset()


def scale_of(candidates: Sequence[Offer], speeds: Speeds, entries: frozenset[str] = frozenset()) -> Scale:
    """Over the nodes asked about."""
    classes = {(offer.device_class, offer.driver_major) for offer in candidates}
    found = [speeds.of(*one) for one in classes]
    measured = [speed.tokens_per_second for speed in found if speed is not None and not speed.estimated]
    prices = [offer.cost for offer in candidates if offer.cost is not None]
    dearest = max(prices, default=None)
    middle = median(100 * price / dearest for price in prices) if dearest else 0.0
    return Scale(max(measured, default=None), dearest, middle, entries)


def tps_share(speed: Speed | None, scale: Scale) -> float:
    """Speed as a share of the best measured, 0..100."""
    if scale.best_tps is None or speed is None:
        return UNMEASURED
    return min(100 * speed.tokens_per_second / scale.best_tps, 100.0)


def cost_share(cost: float | None, scale: Scale) -> float:
    """Price as a share of the dearest, 0..100; the median share where there is none."""
    if not scale.dearest:
        return 0.0
    return scale.unpriced_share if cost is None else 100 * cost / scale.dearest


def cache_share(cached: tuple[CachedModel, ...] | UnsetType, entries: frozenset[str]) -> float:
    """100 where all weights asked for are in the node's cache already, else 0; a part saves no waiting."""
    if not entries or isinstance(cached, UnsetType):
        return 0.0
    return 100.0 if entries <= {model.entry for model in cached} else 0.0


def total(offer: Offer, speed: Speed | None, scale: Scale, weights: Weights) -> float:
    """The sum of one node."""
    return (
        weights.tps * tps_share(speed, scale)
        - weights.util * offer.util
        - weights.cost * cost_share(offer.cost, scale)
        - weights.kv_cache * offer.kv
        + weights.vram_free * offer.ratio
        + weights.cache * cache_share(offer.cached, scale.entries)
    )


def exact(value: float) -> int:
    """A sum in UNIT."""
    return round(value * PARTS) * (UNIT // PARTS)


def division(best: int, worst: int) -> tuple[int, int]:
    """``(constant, step)`` of ``loss = (constant - sum) // step``: one point for each tenth of the spread.

    Halves are rounded against the node. The spread counts as at least MIN_SPREAD: a lone candidate or equals lose
    nothing, noise of under a point is a tie.
    """
    tenth = max(best - worst, MIN_SPREAD) // MAX_SCORE
    return best + tenth // 2, tenth


def points(loss: int) -> int:
    """The score 0..10 of a loss."""
    return max(0, min(MAX_SCORE, MAX_SCORE - loss))


def terms(
    offer: Offer, speed: Speed | None, scale: Scale, weights: Weights, ages: tuple[float | None, float | None]
) -> tuple[Term, ...]:
    """The parts of ``total``, signed; added in this order they give exactly the sum. ``ages``: of telemetry and of
    the result, in seconds."""
    age, speed_age = ages
    note = offer.note
    found = (
        _term("tps", tps_share(speed, scale), weights.tps, speed_age, tps_note(speed, scale)),
        _term("util", offer.util, -weights.util, age, note),
        _term("cost", cost_share(offer.cost, scale), -weights.cost, None, cost_note(offer.cost, scale)),
        _term("kvCache", offer.kv, -weights.kv_cache, age, note),
        _term("vramFree", offer.ratio, weights.vram_free, age, note),
    )
    if not weights.cache and not scale.entries:
        return found
    share = cache_share(offer.cached, scale.entries)
    return (*found, _term("cache", share, weights.cache, None, cache_note(offer.cached, scale.entries)))


def _term(name: str, value: float, signed: float, age: float | None, note: str) -> Term:
    # + 0.0 turns -0.0 into 0.0
    return Term(
        name=name, value=value, weight=abs(signed), contribution=signed * value + 0.0, age_seconds=age, note=note
    )


def tps_note(speed: Speed | None, scale: Scale) -> str:
    """Tokens/s behind the share, and where they come from."""
    if scale.best_tps is None:
        return "nobody measured: half for all"
    if speed is None:
        return "not measured on this device class: half of the best"
    text = f"{speed.tokens_per_second:.1f} tokens/s"
    return f"{text}, {speed.note}" if speed.note else text


_SPEED = re.compile(r"([0-9]+\.[0-9]) tokens/s")


def told_speed(note: str) -> float | None:
    """Tokens/s that a note of ``tps_note`` tells; None for a node that nobody measured.

    >>> told_speed("58.0 tokens/s, estimated from another class"), told_speed("nobody measured: half for all")
    (58.0, None)
    """
    found = _SPEED.match(note)
    return float(found[1]) if found else None


def cost_note(cost: float | None, scale: Scale) -> str:
    """Why the share is not the node's own price."""
    if scale.dearest is None:
        return "no node has a price"
    return "no price: the median of the others" if cost is None else ""


def cache_note(cached: tuple[CachedModel, ...] | UnsetType, entries: frozenset[str]) -> str:
    """Why the share is 0."""
    if not entries:
        return "the pod names no weights"
    if isinstance(cached, UnsetType):
        return "not known: this node shares no cache"
    here = len(entries & {model.entry for model in cached})
    return "" if here == len(entries) else f"{here} of {len(entries)} here" if here else "not here"
