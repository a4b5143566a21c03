"""A decision as data: what was asked, who ranked where by which terms, who was out and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from flexinfer.contracts.events import Candidate, PlacementDecided, ShadowRanking, Term
from flexinfer.core.fleet.claims import PodRef
from flexinfer.core.placement.demand import Demand
from flexinfer.core.placement.ranking import Ranking
from flexinfer.core.placement.scoring import (
    SUBTRACTED,
    UNIT,
    Weights,
    check_weight,
    division,
    exact,
    points,
    terms,
)
from flexinfer.core.placement.speeds import Speeds

MAX_CANDIDATES = 20
MAX_BYTES = 32 * 1024

Outcome = Literal["ranked", "single", "rejected", "error"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One scheduling attempt of one pod. ``counts``: sentence → nodes rejected with it."""

    pod: PodRef
    demand: Demand
    considered: int
    counts: Mapping[str, int]
    at: float
    digest: str
    degraded: bool = False


def candidates_of(ranking: Ranking, speeds: Speeds, weights: Weights, now: float, limit: int) -> tuple[Candidate, ...]:
    """The best ``limit`` with all their terms, ages as of ``now``."""
    found: list[Candidate] = []
    order = ranking.order(limit)
    losses = ranking.losses(np.array(order, dtype=np.intp)).tolist()
    for row, loss in zip(ranking.rows.take(order).tolist() if order else (), losses, strict=True):
        offer = ranking.offers[row]
        speed = speeds.of(offer.device_class, offer.driver_major)
        measured_at = speeds.observed_at(speed.key) if speed else None
        ages = (_age(offer.telemetry_at, now), _age(measured_at, now))
        parts = terms(offer, speed, ranking.scale, weights, ages)
        found.append(Candidate(node=offer.node, score=points(loss), sum=sum_of(parts), terms=parts))
    return tuple(found)


def _age(at: float | None, now: float) -> float | None:
    return None if at is None else max(now - at, 0.0)


def decision(
    attempt: Attempt,
    outcome: Outcome,
    candidates: Sequence[Candidate],
    ranking: Ranking | None,
    message: str = "",
    shadow: ShadowRanking | UnsetType = UNSET,
) -> PlacementDecided:
    """The payload of a decision event, cut to MAX_BYTES by leaving out the lowest candidates."""
    found = PlacementDecided(
        namespace=attempt.pod.namespace or "default",
        pod=attempt.pod.name or "unnamed",
        pod_uid=attempt.pod.uid,
        outcome=outcome,
        demand=attempt.demand.describe(),
        candidates=tuple(candidates[:MAX_CANDIDATES]),
        considered=attempt.considered,
        reasons=dict(attempt.counts),
        model=attempt.demand.model,
        best_sum=ranking.best / UNIT if ranking else None,
        worst_sum=ranking.worst / UNIT if ranking else None,
        view_digest=attempt.digest,
        degraded=attempt.degraded,
        message=message,
        shadow=shadow,
    )
    while len(msgspec.json.encode(found)) > MAX_BYTES and found.candidates:
        found = replace(found, candidates=found.candidates[: len(found.candidates) // 2])
    return found


def sentence(decided: PlacementDecided) -> str:
    """The essential in one line, for the Kubernetes Event on the pod."""
    rejected = sum(decided.reasons.values())
    why = "; ".join(f"{count} {text.removeprefix('flexinfer: ')}" for text, count in decided.reasons.items())
    mode = " (degraded: the bus is away, labels only)" if decided.degraded else ""
    if not decided.candidates:
        return f"no node of {decided.considered} fits: {why or decided.message}{mode}"
    first, *others = decided.candidates
    text = f"{first.node} leads {len(decided.candidates)} of {decided.considered} nodes with {_words(first)}"
    if len(decided.candidates) >= MAX_CANDIDATES:
        text = f"{first.node} leads {decided.considered - rejected} of {decided.considered} nodes with {_words(first)}"
    if others:
        text += f"; next {others[0].node} with {_words(others[0])}"
    return text + (f"; out: {why}" if why else "") + mode


def _words(candidate: Candidate) -> str:
    by_name = {term.name: term for term in candidate.terms}
    parts = [f"score {candidate.score}", f"sum {candidate.sum:.1f}"]
    speed = by_name.get("tps")
    if speed is not None:
        parts.append(speed.note)
    for name, text, factor in (("util", "% busy", 1.0), ("vramFree", "% memory free", 100.0)):
        if name in by_name:
            parts.append(f"{by_name[name].value * factor:.0f}{text}")
    return f"{parts[0]} ({', '.join(part for part in parts[1:] if part)})"


def parse_weights(texts: Sequence[str]) -> dict[str, float]:
    """``weights.tps=1`` and more, each or several separated by commas. Raises ValueError.

    >>> parse_weights(["weights.tps=1,weights.cost=0"])
    {'tps': 1.0, 'cost': 0.0}
    """
    found: dict[str, float] = {}
    for text in ",".join(texts).split(","):
        if not text:
            continue
        name, equals, value = text.partition("=")
        try:
            found[name.removeprefix("weights.").strip()] = float(value)
        except ValueError:
            raise ValueError(f"{text!r} is no weight; write weights.tps=1") from None
        if not equals:
            raise ValueError(f"{text!r} is no weight; write weights.tps=1")
    return found


def what_if(decided: PlacementDecided, weights: Mapping[str, float]) -> PlacementDecided:
    """The same recorded terms under other weights, by term name: tps, util, cost, kvCache, vramFree.

    Only recorded candidates can be ranked again: with more than MAX_CANDIDATES the worst of all is not among them,
    which the message says. Raises ValueError for an unknown term or a weight that is no number of 0 or more.
    """
    names = {term.name for candidate in decided.candidates for term in candidate.terms}
    for name, value in weights.items():
        if names and name not in names:
            raise ValueError(f"no term {name!r}; terms are {', '.join(sorted(names))}")
        check_weight(name, value)
    changed = [replace(c, terms=tuple(_reweighted(term, weights) for term in c.terms)) for c in decided.candidates]
    sums = [sum_of(candidate.terms) for candidate in changed]
    best, worst = max(sums, default=0.0), min(sums, default=0.0)
    constant, step = division(exact(best), exact(worst))
    ranked = [
        replace(candidate, sum=value, score=points((constant - exact(value)) // step))
        for candidate, value in zip(changed, sums, strict=True)
    ]
    ranked.sort(key=lambda candidate: (-candidate.sum, candidate.node))
    complete = decided.considered - sum(decided.reasons.values()) <= len(ranked)
    return replace(
        decided,
        candidates=tuple(ranked),
        best_sum=best if ranked else None,
        worst_sum=worst if ranked else None,
        message="" if complete else f"ranked again: the {len(ranked)} recorded candidates only",
    )


def _reweighted(term: Term, weights: Mapping[str, float]) -> Term:
    weight = weights.get(term.name, term.weight)
    sign = -1.0 if term.name in SUBTRACTED else 1.0
    return replace(term, weight=weight, contribution=sign * (weight * term.value) + 0.0)


def sum_of(parts: Sequence[Term]) -> float:
    """The terms added up in their order."""
    found = 0.0
    for term in parts:
        found += term.contribution
    return found
