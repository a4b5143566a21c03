"""One demand against many nodes: who passes, who ranks where."""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from flexinfer.core.fleet.units import NOBODY
from flexinfer.core.fleet.view import FleetView, NodeView
from flexinfer.core.placement.checks import NO_FACTS, Reason
from flexinfer.core.placement.demand import Demand
from flexinfer.core.placement.figures import Figures, judge
from flexinfer.core.placement.scoring import Scale, Weights, scale_of, score, total
from flexinfer.core.placement.speeds import Speeds


@dataclass(slots=True)
class Verdicts:
    """Of a filter call, names in the order asked."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, Reason] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Sentence → number of nodes rejected with it, most frequent first."""
        found: dict[str, int] = {}
        for reason in self.failed.values():
            found[reason.text] = found.get(reason.text, 0) + 1
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


@dataclass(slots=True)
class Ranking:
    """Candidates with their sums and scores, parallel lists, in the order asked."""

    candidates: list[Figures]
    scale: Scale
    sums: list[float]
    scores: list[int]

    @property
    def best(self) -> float:
        """Highest sum."""
        return max(self.sums, default=0.0)

    @property
    def worst(self) -> float:
        """Lowest sum."""
        return min(self.sums, default=0.0)

    def order(self) -> list[int]:
        """Positions from best to worst; equal sums by name."""
        return sorted(range(len(self.sums)), key=lambda i: (-self.sums[i], self.candidates[i].node))


def verdict(
    view: FleetView, name: str, demand: Demand, speeds: Speeds, now: float, without: AbstractSet[str] = NOBODY
) -> Figures | Reason:
    """One node by name; a node nobody reported passes only demands without accelerators."""
    node = view.nodes.get(name)
    if node is None:
        if demand.ask.devices:
            return NO_FACTS
        node = NodeView(name)
    return judge(node, demand, speeds, now, without)


def rank(candidates: Sequence[Figures], weights: Weights) -> Ranking:
    """Sums and scores over exactly these candidates."""
    scale = scale_of(candidates)
    sums = [total(candidate, scale, weights) for candidate in candidates]
    best, worst = max(sums, default=0.0), min(sums, default=0.0)
    return Ranking(list(candidates), scale, sums, [score(value, best, worst) for value in sums])


def unique(names: Iterable[str]) -> list[str]:
    """Without repeats, in order: kube-scheduler sums up the scores of a name given twice."""
    return list(dict.fromkeys(names))
