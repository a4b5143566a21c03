"""A second set of weights, evaluated beside the real one on the same inputs and never acted on."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import UnsetType

from flexinfer.contracts.events import PlacementDecided, ShadowRanking
from flexinfer.core.placement.boards import Board
from flexinfer.core.placement.names import Rows
from flexinfer.core.placement.ranking import Ranking
from flexinfer.core.placement.scoring import TERMS, UNIT, Weights
from flexinfer.core.placement.speeds import Speeds
from flexinfer.core.placement.sums import summed

SHOWN = 5


def overridden(weights: Weights, changes: dict[str, float]) -> Weights:
    """``weights`` with some replaced, by term name. Raises ValueError for an unknown term or a senseless weight."""
    unknown = [name for name in changes if name not in TERMS]
    if unknown:
        raise ValueError(f"no term {unknown[0]!r}; terms are {', '.join(TERMS)}")
    values = {part: getattr(weights, part) for part in TERMS.values()}
    return Weights(**(values | {TERMS[name]: value for name, value in changes.items()}))


def shadowed(
    board: Board, rows: Rows, speeds: Speeds, weights: Weights, entries: frozenset[str], leader: int
) -> ShadowRanking:
    """What ``weights`` say about the nodes at ``rows``, of which the real ranking put the one at ``leader`` first."""
    scale, sums = summed(board, rows, speeds, weights, entries)
    ranking = Ranking(board.roster.names, (), rows, scale, sums)
    ranking.measure()
    behind = ranking.best - int(sums[leader])
    # Among equals the real leader is as good as any.
    best = leader if behind == 0 else ranking.leader(board.roster.ranks(), rows)
    return ShadowRanking(
        weights=weights.told(), node=ranking.name(best), behind=behind / UNIT, lost=ranking.lost(leader)
    )


@dataclass(slots=True)
class Comparison:
    """How often the other weights would have led elsewhere, over decisions that have a shadow."""

    decisions: int = 0
    moved: int = 0
    behind: float = 0.0
    lost: int = 0
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)
    weights: set[str] = field(default_factory=set)

    def add(self, decided: PlacementDecided) -> None:
        """One more decision; those without a shadow do not count."""
        shadow = decided.shadow
        if isinstance(shadow, UnsetType) or not decided.candidates:
            return
        self.decisions += 1
        self.weights.add(" ".join(f"{name} {value:g}" for name, value in shadow.weights.items()))
        leader = decided.candidates[0].node
        if shadow.node != leader:
            self.moved += 1
            self.behind += shadow.behind
            self.lost += shadow.lost
            self.moves[leader, shadow.node] += 1

    def lines(self) -> list[str]:
        """As a person reads it."""
        if not self.decisions:
            return ["no decision in the log has a shadow; start the scheduler with --shadow-weights tps=1,util=0"]
        found = [f"shadow weights: {'; '.join(sorted(self.weights))}"]
        share = 100 * self.moved / self.decisions
        found.append(f"{self.moved} of {self.decisions} decisions ({share:.0f} %) would have led to another node")
        if self.moved:
            behind, lost = self.behind / self.moved, self.lost / self.moved
            found.append(f"there the node that led is {behind:.1f} behind in its sum and {lost:.1f} points of score")
        for (leader, other), count in sorted(self.moves.items(), key=lambda pair: (-pair[1], pair[0]))[:SHOWN]:
            found.append(f"{count} × {other} instead of {leader}")
        return found


def compare(decisions: Iterable[PlacementDecided]) -> Comparison:
    """Over these."""
    found = Comparison()
    for decided in decisions:
        found.add(decided)
    return found
