"""Offers kept ready between requests, renewed only where a fact changed, and the filter's answer from them.

A request over thousands of names then costs a few passes at the speed of dictionary look-ups. What a board answers
is what ``ranking`` computes from nothing; a test holds them together.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
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

    __slots__ = ("_index", "memo", "names", "untouched")

    def __init__(self, names: Sequence[str]) -> None:
        self.untouched = len(set(names)) == len(names)
        self.names: Sequence[str] = names if self.untouched else list(dict.fromkeys(names))
        self.memo: dict[Any, Any] = {}
        self._index: dict[str, int] | None = None

    def keep(self, key: Any, value: Any) -> None:
        """Remember something derived; a full memory starts again."""
        if len(self.memo) >= KEPT_MEMOS:
            self.memo.clear()
        self.memo[key] = value

    @property
    def index(self) -> dict[str, int]:
        """Position by name."""
        if self._index is None:
            self._index = {name: position for position, name in enumerate(self.names)}
        return self._index


class _Capacities(dict[str, float]):
    """Capacity by node; a node not asked about before gets its offer on the way."""

    def __init__(self, board: "Board") -> None:
        super().__init__()
        self._board = board

    def __missing__(self, name: str) -> float:
        return self._board.renew(name).capacity


class Board:
    """Offers of all nodes for one kind of demand. Call ``refresh`` before reading."""

    def __init__(self, view: FleetView, kind: Kind) -> None:
        self.kind = kind
        self.offers: dict[str, Offer] = {}
        self.capacities = _Capacities(self)
        self.changes = Feed()
        self._view = view
        self._seen = view.changes.count
        self._now = 0.0

    def refresh(self, now: float) -> None:
        """Renew the offers of nodes that changed."""
        self._now = now
        changed = self._view.changes.since(self._seen)
        self._seen = self._view.changes.count
        for name in self.offers.keys() & changed if changed is not None else list(self.offers):
            self.renew(name)

    def renew(self, name: str) -> Offer:
        """The offer of one node, made now."""
        node = self._view.nodes.get(name) or NodeView(name)
        old = self.offers.get(name)
        offer = self.offers[name] = offer_of(node, self.kind, self._now)
        self.capacities[name] = offer.capacity
        if old is None or not _alike(old, offer):
            self.changes.add(name)
        return offer


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
    """Of a filter call. ``everyone`` passed, or ``passed`` and ``failed`` part the names asked, in their order."""

    everyone: bool
    passed: Sequence[str]
    failed: dict[str, Reason]
    seen: int
    encoded: Any = None

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
    """Who passes; the last answer for the same names holds as long as no verdict changed."""
    key = ("verdicts", board.kind, per_device_mib)
    last: Verdicts | None = asked.memo.get(key)
    if last is not None and _holds(last, board, asked, per_device_mib):
        return last
    capacities, offers = board.capacities, board.offers
    names = asked.names
    if min(map(capacities.__getitem__, names), default=inf) >= per_device_mib:
        found = Verdicts(True, names, {}, board.changes.count)  # noqa: FBT003 - the first field, named there
    else:
        passed = [name for name in names if capacities[name] >= per_device_mib]
        out = [name for name in names if capacities[name] < per_device_mib]
        failed = {name: reason for name in out if (reason := refusal(offers[name], per_device_mib))}
        found = Verdicts(False, passed, failed, board.changes.count)  # noqa: FBT003 - see above
    asked.keep(key, found)
    return found


def _holds(last: Verdicts, board: Board, asked: Asked, per_device_mib: float) -> bool:
    changed = board.changes.since(last.seen)
    if changed is None:
        return False
    for name in changed:
        if name in asked.index and refusal(board.offers[name], per_device_mib) is not last.failed.get(name):
            return False
    last.seen = board.changes.count
    return True
