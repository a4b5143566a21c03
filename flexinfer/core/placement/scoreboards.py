"""Sums kept ready between requests, and the prioritize answer from them.

Sums are normalised over the nodes asked about. A score board keeps them normalised over all nodes that pass, which
is the same for any request that includes a fastest and a dearest node, and says so when it is not.
"""

from dataclasses import dataclass, field
from typing import Any

from flexinfer.contracts.extender import MAX_SCORE
from flexinfer.core.placement.boards import Asked, Screen
from flexinfer.core.placement.offers import Offer
from flexinfer.core.placement.ranking import Ranking, summed
from flexinfer.core.placement.scoring import Scale, Weights, division
from flexinfer.core.placement.speeds import Speeds

ABSENT = -(1 << 62)  # sum of a node that does not pass


@dataclass(slots=True)
class Scores:
    """Answer of a prioritize call: points lost by each node, in the order of ``asked``.

    ``changed``: positions that differ from when the caller last emptied it; None: all.
    """

    asked: Asked
    ranking: Ranking
    losses: list[int]
    best: int = 0
    worst: int = 0
    seen: int = 0
    epoch: int = 0
    changed: list[int] | None = None
    encoded: Any = None

    def passing(self) -> Ranking:
        """The ranking of this moment, without nodes that do not pass; a copy, for it changes with the next facts."""
        found = self.ranking
        names, sums, losses = found.names, found.sums, self.losses
        if self.worst == ABSENT or ABSENT in sums:
            kept = [position for position, value in enumerate(sums) if value != ABSENT]
            names = [names[position] for position in kept]
            sums, losses = [sums[position] for position in kept], [losses[position] for position in kept]
            return Ranking(names, found.offers, found.scale, sums, losses)
        return Ranking(names, found.offers, found.scale, sums.copy(), losses.copy())


def _extremes(sums: list[int]) -> tuple[int, int]:
    """Highest and lowest sum of nodes that pass."""
    worst = min(sums, default=0)
    if worst == ABSENT:
        worst = min((value for value in sums if value != ABSENT), default=ABSENT)
    return max(sums, default=0), worst


@dataclass(slots=True)
class _Census:
    """Passing nodes by class and by price."""

    classes: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    prices: dict[float | None, set[str]] = field(default_factory=dict)
    where: dict[str, tuple[tuple[str, str], float | None]] = field(default_factory=dict)

    def put(self, name: str, offer: Offer | None) -> bool:
        """The node's present offer, None if it does not pass; tells whether class or price changed."""
        old = self.where.get(name)
        new = None if offer is None else ((offer.device_class, offer.driver_major), offer.cost)
        if new == old:
            return False
        if old is not None:
            self.classes[old[0]].discard(name)
            self.prices[old[1]].discard(name)
            del self.where[name]
        if new is not None:
            self.where[name] = new
            self.classes.setdefault(new[0], set()).add(name)
            self.prices.setdefault(new[1], set()).add(name)
        return True


class ScoreBoard:
    """Sums of all nodes for one kind, memory need and workload, normalised over those that pass."""

    def __init__(self, screen: Screen, speeds: Speeds, weights: Weights) -> None:
        self.screen = screen
        self.speeds = speeds
        self._board = screen.board
        self._weights = weights
        self._sums: dict[str, int] = {}
        self._scale = Scale()
        self._census = _Census()
        self._fastest: list[set[str]] = []
        self._seen = -1
        self._epoch = 0

    def scores(self, asked: Asked) -> Scores | None:
        """None when these nodes need a scale of their own. A node that does not pass loses all points."""
        self._board.admit(asked)
        self.screen.refresh()
        self._refresh()
        if not self._same_scale(asked):
            return None
        last: Scores | None = asked.memo.get(self)
        if last is None or last.epoch != self._epoch or not self._patch(last):
            sums = list(map(self._sums.__getitem__, asked.names))
            losses: list[int] = []
            ranking = Ranking(asked.names, self._board.offers, self._scale, sums, losses)
            last = Scores(asked, ranking, losses, seen=self._seen, epoch=self._epoch)
            _measure(last)
            asked.keep(self, last)
        return last

    def _patch(self, last: Scores) -> bool:
        """Bring an earlier answer up to date; False if it is too old for that."""
        changed = self._board.changes.since(last.seen)
        if changed is None:
            return False
        last.seen = self._board.changes.count
        index, sums = last.asked.index, last.ranking.sums
        moved: list[int] = []
        extremes = False
        for name in last.asked.members.intersection(changed):
            position, value = index[name], self._sums[name]
            old = sums[position]
            if value != old:
                sums[position] = value
                moved.append(position)
                extremes = extremes or old in {last.best, last.worst} or not last.worst <= value <= last.best
        if extremes and _extremes(sums) != (last.best, last.worst):
            _measure(last)
            return True
        constant, step = division(last.best, last.worst)
        for position in moved:
            value = sums[position]
            last.losses[position] = MAX_SCORE if value == ABSENT else (constant - value) // step
        if last.changed is not None:
            last.changed.extend(moved)
        return True

    def _refresh(self) -> None:
        changed = self._board.changes.since(self._seen) if self._seen >= 0 else None
        names = self._board.offers.keys() if changed is None else set(changed)
        self._seen = self._board.changes.count
        offers, failing = self._board.offers, self.screen.failing
        moved = [name for name in names if self._census.put(name, None if name in failing else offers[name])]
        if not (moved and self._rescale()):
            self._sum_up(names)

    def _sum_up(self, names: Any) -> None:
        offers, failing, sums = self._board.offers, self.screen.failing, self._sums
        for name in names:
            sums[name] = ABSENT if name in failing else summed(offers[name], self.speeds, self._scale, self._weights)

    def _rescale(self) -> bool:
        """Find the fastest and the dearest again; True if every sum was made anew."""
        measured: dict[tuple[str, str], float] = {}
        for one, nodes in self._census.classes.items():
            speed = self.speeds.of(*one) if nodes else None
            if speed is not None and not speed.estimated:
                measured[one] = speed.tokens_per_second
        best = max(measured.values(), default=None)
        priced = [price for price, nodes in self._census.prices.items() if nodes and price is not None]
        scale = Scale(best, max(priced, default=None))
        self._fastest = [self._census.classes[one] for one, tps in measured.items() if tps == best]
        if scale == self._scale:
            return False
        self._scale = scale
        self._epoch += 1
        self._sum_up(self._board.offers)
        return True

    def _same_scale(self, asked: Asked) -> bool:
        scale = self._scale
        if scale.best_tps is not None and all(asked.members.isdisjoint(nodes) for nodes in self._fastest):
            return False
        if scale.dearest is None:
            return True
        # An unpriced node gets the median of those asked about, which no board can know.
        prices = self._census.prices
        return not prices.get(None) and not asked.members.isdisjoint(prices[scale.dearest])


def _measure(last: Scores) -> None:
    sums = last.ranking.sums
    last.best, last.worst = _extremes(sums)
    constant, step = division(last.best, last.worst)
    if ABSENT in sums:
        last.losses[:] = [MAX_SCORE if value == ABSENT else (constant - value) // step for value in sums]
    else:
        last.losses[:] = [(constant - value) // step for value in sums]
    last.changed = None
