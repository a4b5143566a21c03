"""Sums kept ready between requests, and the prioritize answer from them.

Sums are normalised over the nodes asked about. A score board keeps them normalised over all nodes that pass, which
is the same for any request that includes a fastest and a dearest node, and says so when it is not.
"""

from dataclasses import dataclass, field
from typing import Any

from flexinfer.core.placement.boards import Asked, Board
from flexinfer.core.placement.offers import Offer, refusal
from flexinfer.core.placement.ranking import Ranking, summed
from flexinfer.core.placement.scoring import Scale, Weights, division
from flexinfer.core.placement.speeds import Speeds

ABSENT = -(1 << 80)  # sum of a node that does not pass


class _Sums(dict[str, int]):
    """Sum by node under the scale of its score board."""

    def __init__(self, owner: "ScoreBoard") -> None:
        super().__init__()
        self._owner = owner

    def __missing__(self, name: str) -> int:
        found = self[name] = self._owner.compute(name)
        return found


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


@dataclass(slots=True)
class _Census:
    """How many passing nodes there are of each class and price, and which they are."""

    classes: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    prices: dict[float | None, set[str]] = field(default_factory=dict)
    where: dict[str, tuple[tuple[str, str], float | None]] = field(default_factory=dict)

    def put(self, name: str, offer: Offer | None) -> None:
        """The node's present offer, None if it does not pass."""
        old = self.where.pop(name, None)
        if old is not None:
            self.classes[old[0]].discard(name)
            self.prices[old[1]].discard(name)
        if offer is not None:
            entry = ((offer.device_class, offer.driver_major), offer.cost)
            self.where[name] = entry
            self.classes.setdefault(entry[0], set()).add(name)
            self.prices.setdefault(entry[1], set()).add(name)


class ScoreBoard:
    """Sums of all passing nodes for one kind, memory need and workload, normalised over all of them.

    They hold for a request whose nodes have the same scale, which most have; ``scores`` tells when not.
    """

    def __init__(self, board: Board, per_device_mib: float, speeds: Speeds, weights: Weights) -> None:
        self.board = board
        self.speeds = speeds
        self._need = per_device_mib
        self._weights = weights
        self._sums = _Sums(self)
        self._scale = Scale()
        self._census = _Census()
        self._fastest: list[set[str]] = []
        self._seen = 0
        self._epoch = 0
        for name in board.offers:
            self._note(name)
        self._seen = board.changes.count
        self._rescale()

    def compute(self, name: str) -> int:
        """The sum of one node in scoring.UNIT; ABSENT if it does not pass."""
        offer = self.board.offers.get(name) or self.board.renew(name)
        if refusal(offer, self._need) is not None:
            return ABSENT
        return summed(offer, self.speeds, self._scale, self._weights)

    def scores(self, asked: Asked) -> Scores | None:
        """None when these nodes need a scale of their own, or one of them does not pass."""
        self._refresh()
        if not self._same_scale(asked):
            return None
        last: Scores | None = asked.memo.get(self)
        if last is None or last.epoch != self._epoch or not self._patch(last):
            sums = list(map(self._sums.__getitem__, asked.names))
            # Nodes seen for the first time just now may have moved the scale.
            if self.board.changes.count != self._seen:
                return self.scores(asked)
            losses: list[int] = []
            ranking = Ranking(asked.names, self.board.offers, self._scale, sums, losses)
            last = Scores(asked, ranking, losses, seen=self._seen, epoch=self._epoch)
            self._measure(last)
            asked.keep(self, last)
        return None if last.worst == ABSENT else last

    @staticmethod
    def _measure(last: Scores) -> None:
        sums = last.ranking.sums
        last.best, last.worst = max(sums, default=0), min(sums, default=0)
        constant, step = division(last.best, last.worst)
        last.losses[:] = [(constant - value) // step for value in sums]
        last.changed = None

    def _patch(self, last: Scores) -> bool:
        """Bring an earlier answer up to date; False if it is too old for that."""
        changed = self.board.changes.since(last.seen)
        if changed is None:
            return False
        last.seen = self.board.changes.count
        index, sums = last.asked.index, last.ranking.sums
        moved: list[int] = []
        extremes = False
        for name in set(changed) & index.keys():
            position, value = index[name], self._sums[name]
            old = sums[position]
            if value != old:
                sums[position] = value
                moved.append(position)
                extremes = extremes or old in {last.best, last.worst} or not last.worst <= value <= last.best
        if extremes and (max(sums), min(sums)) != (last.best, last.worst):
            self._measure(last)
            return True
        constant, step = division(last.best, last.worst)
        for position in moved:
            last.losses[position] = (constant - sums[position]) // step
        if last.changed is not None:
            last.changed.extend(moved)
        return True

    def _refresh(self) -> None:
        changed = self.board.changes.since(self._seen)
        names = set(self.board.offers) if changed is None else set(changed)
        self._seen = self.board.changes.count
        for name in names:
            self._note(name)
            self._sums.pop(name, None)
        if names:
            self._rescale()

    def _note(self, name: str) -> None:
        offer = self.board.offers[name]
        self._census.put(name, offer if refusal(offer, self._need) is None else None)

    def _rescale(self) -> None:
        measured: dict[tuple[str, str], float] = {}
        for one, nodes in self._census.classes.items():
            speed = self.speeds.of(*one) if nodes else None
            if speed is not None and not speed.estimated:
                measured[one] = speed.tokens_per_second
        best = max(measured.values(), default=None)
        dearest = max(
            (price for price, nodes in self._census.prices.items() if nodes and price is not None), default=None
        )
        scale = Scale(best, dearest)
        if scale != self._scale:
            self._scale = scale
            self._sums.clear()
            self._epoch += 1
        self._fastest = [self._census.classes[one] for one, tps in measured.items() if tps == best]

    def _same_scale(self, asked: Asked) -> bool:
        scale = self._scale
        if scale.best_tps is not None and all(nodes.isdisjoint(asked.names) for nodes in self._fastest):
            return False
        if scale.dearest is None:
            return True
        # An unpriced node gets the median of those asked about, which no board can know.
        return not self._census.prices.get(None) and not self._census.prices[scale.dearest].isdisjoint(asked.names)
