"""Offers kept ready between requests, renewed only where a fact changed, and the filter's answer from them.

A request over thousands of names then costs a few passes at the speed of dictionary look-ups. What a board answers
is what ``ranking`` computes from nothing; a test holds them together.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flexinfer.core.fleet.view import Feed, FleetView, NodeView
from flexinfer.core.placement.checks import Reason
from flexinfer.core.placement.demand import Kind
from flexinfer.core.placement.offers import Offer, offer_of, refusal

KEPT_MEMOS = 32


class Asked:
    """The nodes of a request, without repeats: kube-scheduler would sum up the scores of a name given twice.

    ``untouched``: there were none. ``memo`` holds what was derived from exactly these nodes.
    """

    __slots__ = ("_index", "_members", "memo", "names", "untouched")

    def __init__(self, names: Sequence[str]) -> None:
        members = set(names)
        self.untouched = len(members) == len(names)
        self.names: Sequence[str] = names if self.untouched else list(dict.fromkeys(names))
        self.memo: dict[Any, Any] = {}
        self._members: set[str] | None = members
        self._index: dict[str, int] | None = None

    @classmethod
    def distinct(cls, names: Sequence[str]) -> "Asked":
        """For names known to have no repeats."""
        found = cls(())
        found.names = names
        found._members = None
        return found

    def keep(self, key: Any, value: Any) -> None:
        """Remember something derived; a full memory starts again."""
        if len(self.memo) >= KEPT_MEMOS:
            self.memo.clear()
        self.memo[key] = value

    @property
    def members(self) -> set[str]:
        """The names as a set."""
        if self._members is None:
            self._members = set(self.names)
        return self._members

    @property
    def index(self) -> dict[str, int]:
        """Position by name."""
        if self._index is None:
            self._index = {name: position for position, name in enumerate(self.names)}
        return self._index


class Board:
    """Offers of all nodes for one kind of demand. Call ``refresh`` before reading."""

    def __init__(self, view: FleetView, kind: Kind) -> None:
        self.kind = kind
        self.offers: dict[str, Offer] = {}
        self.capacities: dict[str, float] = {}  # of ``offers``
        self.changes = Feed()
        self._known: set[str] = set()  # the keys of ``offers``: sets compare with sets fastest
        self._view = view
        self._seen = view.changes.count
        self._now = 0.0

    def refresh(self, now: float) -> None:
        """Renew the offers of nodes that changed."""
        self._now = now
        changed = self._view.changes.since(self._seen)
        self._seen = self._view.changes.count
        for name in self._known.intersection(changed) if changed is not None else self._known:
            self._renew(name)

    def capacities_of(self, asked: Asked) -> list[float]:
        """MiB that fit on each of the demanded devices, for each name; OUT where nothing is offered."""
        try:
            return list(map(self.capacities.__getitem__, asked.names))
        except KeyError:
            for name in asked.members - self._known:
                self._known.add(name)
                self._renew(name)
            return list(map(self.capacities.__getitem__, asked.names))

    def _renew(self, name: str) -> None:
        node = self._view.nodes.get(name) or NodeView(name)
        old = self.offers.get(name)
        offer = self.offers[name] = offer_of(node, self.kind, self._now)
        self.capacities[name] = offer.capacity
        if old is None or not _alike(old, offer):
            self.changes.add(name)


def _alike(left: Offer, right: Offer) -> bool:
    """Equal but for the age."""
    return (
        left.capacity == right.capacity
        and left.util == right.util
        and left.kv == right.kv
        and left.ratio == right.ratio
        and left.reason is right.reason
        and left.cost == right.cost
        and left.installed == right.installed
        and left.device_class == right.device_class
        and left.driver_major == right.driver_major
    )


@dataclass(slots=True)
class Verdicts:
    """Of a filter call. ``survivors``: those that passed, in the order asked. ``seen``: as of which change of the
    board."""

    survivors: Asked
    failed: dict[str, Reason]
    seen: int
    encoded: Any = None

    @property
    def passed(self) -> Sequence[str]:
        """Names of the survivors."""
        return self.survivors.names

    @property
    def counts(self) -> dict[str, int]:
        """Sentence → number of nodes rejected with it, most frequent first."""
        return {reason.text: number for reason, number in self.reasons.items()}

    @property
    def reasons(self) -> dict[Reason, int]:
        """The same by reason."""
        found = Counter(self.failed.values())
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0].text)))


def verdicts(board: Board, asked: Asked, per_device_mib: float) -> Verdicts:
    """Who passes. The last answer for the same names holds as long as no verdict among them changed."""
    key = (board, per_device_mib)
    last: Verdicts | None = asked.memo.get(key)
    if last is not None and _holds(last, board, asked, per_device_mib):
        return last
    names = asked.names
    capacities = board.capacities_of(asked)
    seen = board.changes.count
    if min(capacities, default=per_device_mib) >= per_device_mib:
        found = Verdicts(asked, {}, seen)
    else:
        rows = zip(names, capacities, strict=True)
        survivors = Asked.distinct([name for name, capacity in rows if capacity >= per_device_mib])
        # kube-scheduler asks for scores of exactly these next.
        survivors.keep(key, Verdicts(survivors, {}, seen))
        out = [name for name, capacity in zip(names, capacities, strict=True) if capacity < per_device_mib]
        offers = board.offers
        found = Verdicts(
            survivors, {name: reason for name in out if (reason := refusal(offers[name], per_device_mib))}, seen
        )
    asked.keep(key, found)
    return found


def _holds(last: Verdicts, board: Board, asked: Asked, per_device_mib: float) -> bool:
    changed = board.changes.since(last.seen)
    if changed is None:
        return False
    for name in changed:
        old, new = last.failed.get(name), refusal(board.offers[name], per_device_mib)
        if old is not new and (old is not None or name in asked.members):
            return False
    last.seen = board.changes.count
    return True
