"""One demand against many nodes: who passes, who ranks where. The plain form; boards give the same, faster."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import compress
from typing import TypeVar

from flexinfer.contracts.extender import MAX_SCORE
from flexinfer.core.fleet.units import NOBODY
from flexinfer.core.fleet.view import FleetView, NodeView
from flexinfer.core.placement.checks import Reason
from flexinfer.core.placement.demand import Demand
from flexinfer.core.placement.offers import Offer, offer_of, refusal
from flexinfer.core.placement.scoring import Scale, Weights, division, exact, scale_of, total
from flexinfer.core.placement.speeds import Speeds

T = TypeVar("T")

ABSENT = -(1 << 62)  # sum of a node that does not pass


@dataclass(slots=True)
class Ranking:
    """Nodes in the order asked with their sums in scoring.UNIT, ABSENT for those that do not pass.

    ``best`` and ``worst`` are over the others.
    """

    names: Sequence[str]
    offers: Mapping[str, Offer]
    scale: Scale
    sums: list[int]
    best: int = 0
    worst: int = 0

    def measure(self) -> None:
        """Find best and worst again."""
        self.worst = min(self.sums, default=0)
        if self.worst == ABSENT:
            self.worst = min((value for value in self.sums if value != ABSENT), default=0)
        self.best = max(max(self.sums, default=0), self.worst)

    def translated(self, table: Sequence[T]) -> list[T]:
        """For each node the entry of ``table`` at the points it loses, 0..10."""
        constant, step = division(self.best, self.worst)
        if ABSENT in self.sums:
            return [table[MAX_SCORE if value == ABSENT else (constant - value) // step] for value in self.sums]
        return [table[(constant - value) // step] for value in self.sums]

    def lost(self, position: int) -> int:
        """Points lost by one node."""
        constant, step = division(self.best, self.worst)
        value = self.sums[position]
        return MAX_SCORE if value == ABSENT else (constant - value) // step

    def passing(self) -> "Ranking":
        """A copy without nodes that do not pass."""
        names, sums = self.names, self.sums
        if ABSENT in sums:
            kept = [position for position, value in enumerate(sums) if value != ABSENT]
            return Ranking(
                [names[n] for n in kept], self.offers, self.scale, [sums[n] for n in kept], self.best, self.worst
            )
        return Ranking(names, self.offers, self.scale, sums.copy(), self.best, self.worst)

    def order(self, limit: int) -> list[int]:
        """Positions of the best ``limit``, best first; equal sums by name."""
        found: Iterable[int] = range(len(self.sums))
        if len(self.sums) > limit:
            cut = sorted(self.sums)[-limit]
            found = [position for position, value in enumerate(self.sums) if value >= cut]
        return sorted(found, key=lambda i: (-self.sums[i], self.names[i]))[:limit]

    def leader(self) -> str:
        """The best node, the first by name among equals."""
        best = max(self.sums)
        if self.sums.count(best) == 1:
            return self.names[self.sums.index(best)]
        return min(compress(self.names, map(best.__eq__, self.sums)))


def verdict(
    view: FleetView, name: str, demand: Demand, now: float, without: AbstractSet[str] = NOBODY
) -> Reason | None:
    """Why one node is out, None if it passes; a node nobody reported passes only demands without accelerators."""
    node = view.nodes.get(name) or NodeView(name)
    return refusal(offer_of(node, demand.kind, now, without), demand.per_device_mib)


def rank(names: Sequence[str], offers: Mapping[str, Offer], speeds: Speeds, weights: Weights) -> Ranking:
    """Sums over exactly these nodes, which all pass."""
    scale = scale_of([offers[name] for name in names], speeds)
    found = Ranking(names, offers, scale, [summed(offers[name], speeds, scale, weights) for name in names])
    found.measure()
    return found


def summed(offer: Offer, speeds: Speeds, scale: Scale, weights: Weights) -> int:
    """The sum of one node in scoring.UNIT."""
    return exact(total(offer, speeds.of(offer.device_class, offer.driver_major), scale, weights))
