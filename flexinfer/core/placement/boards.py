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

    __slots__ = ("_index", "members", "memo", "names", "untouched")

    def __init__(self, names: Sequence[str]) -> None:
        self.members = set(names)
        self.untouched = len(self.members) == len(names)
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


class Board:
    """Offers of all nodes for one kind of demand. Call ``refresh`` before reading."""

    def __init__(self, view: FleetView, kind: Kind) -> None:
        self.kind = kind
        self.offers: dict[str, Offer] = {}
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

    def admit(self, asked: Asked) -> None:
        """Make offers of nodes never asked about before."""
        if not asked.members.issubset(self._known):
            for name in asked.members - self._known:
                self._known.add(name)
                self._renew(name)

    def _renew(self, name: str) -> None:
        node = self._view.nodes.get(name) or NodeView(name)
        old = self.offers.get(name)
        offer = self.offers[name] = offer_of(node, self.kind, self._now)
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
    """Of a filter call, names in the order asked. ``seen``: as of which change of its screen."""

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


class Screen:
    """Which nodes of a board do not pass for one need of memory, and why. ``changes`` names those that turned."""

    def __init__(self, board: Board, per_device_mib: float) -> None:
        self.board = board
        self.need = per_device_mib
        self.failing: dict[str, Reason] = {}
        self.changes = Feed()
        self._seen = -1

    def refresh(self) -> None:
        """Follow the board."""
        offers = self.board.offers
        changed = self.board.changes.since(self._seen) if self._seen >= 0 else None
        self._seen = self.board.changes.count
        if changed is None:
            need = self.need
            found = {name: reason for name, offer in offers.items() if (reason := refusal(offer, need))}
            turned = {
                name for name in found.keys() | self.failing.keys() if found.get(name) is not self.failing.get(name)
            }
            self.failing = found
            for name in turned:
                self.changes.add(name)
            return
        for name in changed:
            self._note(name, refusal(offers[name], self.need))

    def _note(self, name: str, reason: Reason | None) -> None:
        if self.failing.get(name) is reason:
            return
        if reason is None:
            del self.failing[name]
        else:
            self.failing[name] = reason
        self.changes.add(name)

    def verdicts(self, asked: Asked) -> Verdicts:
        """Who passes; the last answer for the same names holds as long as none of them turned."""
        self.board.admit(asked)
        self.refresh()
        last: Verdicts | None = asked.memo.get(self)
        if last is not None:
            turned = self.changes.since(last.seen)
            if turned is not None and asked.members.isdisjoint(turned):
                last.seen = self.changes.count
                return last
        failing = self.failing
        out = asked.members.intersection(failing)
        if out:
            passed: Sequence[str] = [name for name in asked.names if name not in out]
            found = Verdicts(passed, {name: failing[name] for name in asked.names if name in out}, self.changes.count)
        else:
            found = Verdicts(asked.names, {}, self.changes.count)
        asked.keep(self, found)
        return found
