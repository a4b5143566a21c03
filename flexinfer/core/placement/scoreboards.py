"""Sums kept ready between requests, and the prioritize answer from them.

Sums are normalised over the nodes asked about, by the fastest and the dearest among them. There are few of either,
so a score board keeps a table of sums for each scale that was asked for of late.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from flexinfer.core.placement.boards import Board
from flexinfer.core.placement.offers import Offer
from flexinfer.core.placement.ranking import ABSENT, Ranking, summed
from flexinfer.core.placement.roster import Asked
from flexinfer.core.placement.scoring import Scale, Weights
from flexinfer.core.placement.speeds import Speeds

KEPT_TABLES = 4


@dataclass(slots=True)
class Scores:
    """Answer of a prioritize call, in the order of ``asked``.

    ``changed``: positions that differ from when the caller last emptied it; None: all.
    """

    asked: Asked
    ranking: Ranking
    seen: int = 0
    changed: list[int] | None = None
    encoded: Any = None


@dataclass(slots=True)
class _Census:
    """Nodes with an offer, by class and by price."""

    classes: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    prices: dict[float | None, set[str]] = field(default_factory=dict)
    where: dict[str, tuple[tuple[str, str], float | None]] = field(default_factory=dict)

    def put(self, name: str, offer: Offer) -> bool:
        """The node's present offer; tells whether class or price changed, or whether it has one."""
        old = self.where.get(name)
        new = None if offer.reason else ((offer.device_class, offer.driver_major), offer.cost)
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


@dataclass(slots=True)
class _Table:
    """Sums of all nodes under one scale, by position in the roster. ``seen``: as of which change of the board."""

    sums: list[int]
    seen: int


class ScoreBoard:
    """Sums of all nodes for one kind of demand and one workload."""

    def __init__(self, board: Board, speeds: Speeds, weights: Weights) -> None:
        self.board = board
        self.speeds = speeds
        self._weights = weights
        self._census = _Census()
        self._tables: OrderedDict[Scale, _Table] = OrderedDict()
        self._fastest: list[tuple[float, set[str]]] = []  # highest first
        self._dearest: list[tuple[float, set[str]]] = []
        self._seen = -1

    def scores(self, asked: Asked, failed: Collection[str] = ()) -> Scores | None:
        """None when priced and unpriced nodes are mixed: an unpriced one gets the median of those asked about, which
        no table can know. ``failed``: nodes that do not pass."""
        self._refresh()
        # The first name found in a set settles it, so that this seldom walks far.
        scale = self._scale_of(asked.members.difference(failed) if failed else asked.names)
        if scale is None:
            return None
        table = self._table(scale)
        key = (self, scale)
        last: Scores | None = asked.memo.get(key)
        if not failed and last is not None and self._patch(last, table):
            return last
        sums = list(asked.pick(table.sums))
        for name in failed:
            sums[asked.index[name]] = ABSENT
        ranking = Ranking(asked.names, self.board.offers, scale, sums)
        ranking.measure()
        found = Scores(asked, ranking, table.seen)
        if not failed:
            asked.keep(key, found)
        return found

    def keep_up(self) -> None:
        """Sum up what changed, under the scale asked for last."""
        self._refresh()
        if self._tables:
            self._table(next(reversed(self._tables)))

    def _patch(self, last: Scores, table: _Table) -> bool:
        """Bring an earlier answer up to date; False if it is too old for that."""
        changed = self.board.changes.since(last.seen)
        if changed is None:
            return False
        last.seen = table.seen
        if not changed:
            return True
        ranking = last.ranking
        index, sums, roster = last.asked.index, ranking.sums, self.board.roster.index
        before = (ranking.best, ranking.worst)
        moved: list[int] = []
        for name in last.asked.members.intersection(changed):
            position, value = index[name], table.sums[roster[name]]
            old = sums[position]
            if value != old:
                sums[position] = value
                moved.append(position)
                if old in before or not ranking.worst <= value <= ranking.best:
                    ranking.measure()
        if (ranking.best, ranking.worst) != before:
            last.changed = None
        elif last.changed is not None:
            last.changed.extend(moved)
        return True

    def _refresh(self) -> None:
        changed = self.board.changes.since(self._seen) if self._seen >= 0 else None
        offers = self.board.offers
        self._seen = self.board.changes.count
        moved = [self._census.put(name, offers[name]) for name in (offers if changed is None else set(changed))]
        if any(moved):
            self._order()

    def _order(self) -> None:
        """Find out again who is fast and who is dear."""
        fastest: list[tuple[float, set[str]]] = []
        for one, nodes in self._census.classes.items():
            speed = self.speeds.of(*one) if nodes else None
            if speed is not None and not speed.estimated:
                fastest.append((speed.tokens_per_second, nodes))
        self._fastest = sorted(fastest, key=lambda pair: pair[0], reverse=True)
        priced = [(price, nodes) for price, nodes in self._census.prices.items() if nodes and price is not None]
        self._dearest = sorted(priced, key=lambda pair: pair[0], reverse=True)

    def _scale_of(self, names: Collection[str]) -> Scale | None:
        best = next((speed for speed, nodes in self._fastest if not nodes.isdisjoint(names)), None)
        dearest = next((price for price, nodes in self._dearest if not nodes.isdisjoint(names)), None)
        if dearest is not None and not self._census.prices.get(None, frozenset()).isdisjoint(names):
            return None
        return Scale(best, dearest)

    def _table(self, scale: Scale) -> _Table:
        table = self._tables.get(scale)
        changed = self.board.changes.since(table.seen) if table else None
        if table is None or changed is None:
            table = self._tables[scale] = _Table([], 0)
            changed = list(self.board.offers)
            if len(self._tables) > KEPT_TABLES:
                self._tables.popitem(last=False)
        self._tables.move_to_end(scale)
        table.seen = self.board.changes.count
        offers, sums, index = self.board.offers, table.sums, self.board.roster.index
        sums.extend([ABSENT] * (len(index) - len(sums)))
        for name in changed:
            offer = offers[name]
            sums[index[name]] = ABSENT if offer.reason else summed(offer, self.speeds, scale, self._weights)
        return table
