"""One demand against many nodes: who passes, who ranks where. The plain form; boards give the same, faster."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import compress

from flexinfer.core.fleet.units import NOBODY
from flexinfer.core.fleet.view import FleetView, NodeView
from flexinfer.core.placement.checks import Reason
from flexinfer.core.placement.demand import Demand
from flexinfer.core.placement.offers import Offer, offer_of, refusal
from flexinfer.core.placement.scoring import Scale, Weights, division, exact, scale_of, total
from flexinfer.core.placement.speeds import Speeds


@dataclass(slots=True)
class Ranking:
    """Passing nodes in the order asked, with their sums (scoring.UNIT) and points lost, parallel lists."""

    names: Sequence[str]
    offers: Mapping[str, Offer]
    scale: Scale
    sums: list[int]
    losses: list[int]

    @property
    def best(self) -> int:
        """Highest sum."""
        return max(self.sums, default=0)

    @property
    def worst(self) -> int:
        """Lowest sum."""
        return min(self.sums, default=0)

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
    """Sums and losses over exactly these nodes."""
    scale = scale_of([offers[name] for name in names], speeds)
    sums = [summed(offers[name], speeds, scale, weights) for name in names]
    constant, step = division(max(sums, default=0), min(sums, default=0))
    return Ranking(names, offers, scale, sums, [(constant - value) // step for value in sums])


def summed(offer: Offer, speeds: Speeds, scale: Scale, weights: Weights) -> int:
    """The sum of one node in scoring.UNIT."""
    return exact(total(offer, speeds.of(offer.device_class, offer.driver_major), scale, weights))
