"""One demand against many nodes: who passes, who ranks where. The plain form; boards give the same, faster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from flexinfer.contracts.extender import MAX_SCORE
from flexinfer.core.placement.offers import Offer
from flexinfer.core.placement.scoring import Scale, Weights, division, exact, scale_of, total
from flexinfer.core.placement.speeds import Speeds

T = TypeVar("T")

ABSENT = -(1 << 62)  # sum of a node that does not pass


class Offers(Protocol):
    """By position."""

    def __getitem__(self, row: int, /) -> Offer: ...


@dataclass(slots=True)
class Ranking:
    """Nodes in the order asked with their sums in scoring.UNIT, ABSENT for those that do not pass.

    ``rows``: where each is in ``known`` (names) and ``offers``. ``best`` and ``worst`` are over those that pass.
    """

    known: Sequence[str]
    offers: Offers
    rows: NDArray[np.intp]
    scale: Scale
    sums: NDArray[np.int64]
    best: int = 0
    worst: int = 0

    def measure(self) -> None:
        """Find best and worst."""
        if not len(self.sums):
            return
        self.worst, self.best = int(self.sums.min()), int(self.sums.max())
        if self.worst == ABSENT:
            passing = self.sums[self.sums != ABSENT]
            self.worst = int(passing.min()) if len(passing) else 0
        self.best = max(self.best, self.worst)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def names(self) -> list[str]:
        """Of the nodes, in the order asked."""
        return [self.known[row] for row in self.rows.tolist()]

    def name(self, position: int) -> str:
        """Of one node."""
        return self.known[int(self.rows[position])]

    def losses(self, positions: NDArray[np.intp] | None = None) -> NDArray[Any]:
        """Points lost by each node, or by some of them, 0..10."""
        constant, step = division(self.best, self.worst)
        sums = self.sums if positions is None else self.sums.take(positions)
        found: NDArray[np.int64] = (constant - sums) // step
        # What does not pass is far below the worst.
        return np.minimum(found, MAX_SCORE, out=found)

    def translated(self, table: Sequence[T]) -> list[T]:
        """For each node the entry of ``table`` at the points it loses."""
        return [table[loss] for loss in self.losses().tolist()]

    def lost(self, position: int) -> int:
        """Points lost by one node."""
        constant, step = division(self.best, self.worst)
        return min((constant - int(self.sums[position])) // step, MAX_SCORE)

    def passing(self) -> "Ranking":
        """The same without nodes that do not pass."""
        kept = self.sums != ABSENT
        if kept.all():
            return self
        return Ranking(
            self.known, self.offers, self.rows[kept], self.scale, self.sums[kept], self.best, self.worst
        )  # fmt: skip

    def compact(self) -> "Ranking":
        """The same with the names and offers of its own nodes only."""
        rows = self.rows.tolist()
        return Ranking(
            [self.known[row] for row in rows], [self.offers[row] for row in rows], np.arange(len(rows)),
            self.scale, self.sums, self.best, self.worst,
        )  # fmt: skip

    def order(self, limit: int) -> list[int]:
        """Positions of the best ``limit``, best first; equal sums by name."""
        found = np.arange(len(self.sums))
        if len(found) > limit:
            cut = np.partition(self.sums, -limit)[-limit]
            found = (self.sums >= cut).nonzero()[0]
        names = [self.known[row] for row in self.rows.take(found).tolist()]
        ordered = sorted(zip((-self.sums.take(found)).tolist(), names, found.tolist(), strict=True))
        return [position for _, _, position in ordered[:limit]]

    def leader(self, ranks: NDArray[np.intp], rows: NDArray[np.intp]) -> int:
        """Position of the best node, the first by name among equals; ``ranks``: the order by name of all in the
        roster, ``rows``: where these nodes are in it."""
        best = (self.sums == self.best).nonzero()[0]
        return int(best[ranks.take(rows.take(best)).argmin()])


def rank(
    names: Sequence[str],
    offers: Mapping[str, Offer],
    speeds: Speeds,
    weights: Weights,
    entries: frozenset[str] = frozenset(),
) -> Ranking:
    """Sums over exactly these nodes, which all pass."""
    candidates = [offers[name] for name in names]
    scale = scale_of(candidates, speeds, entries)
    sums = [exact(_sum_of(offer, speeds, scale, weights)) for offer in candidates]
    found = Ranking(names, candidates, np.arange(len(sums)), scale, np.array(sums, dtype=np.int64))
    found.measure()
    return found


def _sum_of(offer: Offer, speeds: Speeds, scale: Scale, weights: Weights) -> float:
    return total(offer, speeds.of(offer.device_class, offer.driver_major), scale, weights)
