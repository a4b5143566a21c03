"""Offers kept ready between requests, renewed only where a fact changed, and the filter's answer from them.

A request over thousands of names then costs a few passes at the speed of dictionary look-ups. What a board answers
is what ``ranking`` computes from nothing; a test holds them together.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from flexinfer.contracts.events import NodeHardware
from flexinfer.core.fleet.view import Feed, FleetView, NodeView
from flexinfer.core.placement.checks import Reason
from flexinfer.core.placement.demand import Kind
from flexinfer.core.placement.offers import OUT, Fit, Offer, fit_of, offer_of, refusal
from flexinfer.core.placement.roster import Asked, Roster


class Board:
    """Offers of all nodes of a roster for one kind of demand. Call ``refresh`` before reading.

    ``capacities``: of the offers, by position in the roster. ``asked_at``: when a request last needed it.
    """

    def __init__(self, view: FleetView, roster: Roster, kind: Kind) -> None:
        self.kind = kind
        self.roster = roster
        self.offers: dict[str, Offer] = {}
        self.capacities: list[float] = []
        self.changes = Feed()
        self.asked_at = -inf
        self._view = view
        self._seen = view.changes.count
        self._fits: dict[str, tuple[NodeHardware | None, Fit | Reason | None]] = {}

    def refresh(self, now: float) -> None:
        """Renew the offers of nodes that changed, make those of nodes new to the roster."""
        changed = self._view.changes.since(self._seen)
        self._seen = self._view.changes.count
        for name in list(self.offers) if changed is None else set(changed):
            if name in self.offers:
                self._renew(name, now)
        for name in self.roster.names[len(self.capacities) :]:
            self.capacities.append(OUT)
            self._renew(name, now)

    def _renew(self, name: str, now: float) -> None:
        node = self._view.nodes.get(name) or NodeView(name)
        old = self.offers.get(name)
        hardware, fit = self._fits.get(name, (None, None))
        if fit is None or hardware is not node.hardware:
            fit = fit_of(node.hardware, self.kind) if self.kind.devices else None
            self._fits[name] = (node.hardware, fit)
        offer = self.offers[name] = offer_of(node, self.kind, now, fit=fit)
        self.capacities[self.roster.index[name]] = offer.capacity
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
    keeps = [capacity >= per_device_mib for capacity in asked.pick(board.capacities)]
    seen = board.changes.count
    if False in keeps:
        survivors, out = asked.parted(keeps)
        # kube-scheduler asks for scores of exactly these next.
        survivors.keep(key, Verdicts(survivors, {}, seen))
        offers = board.offers
        failed = {name: reason for name in out if (reason := refusal(offers[name], per_device_mib))}
        found = Verdicts(survivors, failed, seen)
    else:
        found = Verdicts(asked, {}, seen)
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
