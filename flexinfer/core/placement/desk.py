"""The extender's decisions over one fleet view: filter, prioritize, preempt, and what was decided for whom.

One desk per replica, no leader: every replica folds the same facts and rebuilds reservations from the Pod watch.
"""

from collections import OrderedDict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from flexinfer.contracts.events import PlacementDecided, ShadowRanking
from flexinfer.contracts.extender import PodObject
from flexinfer.core.fleet import claims
from flexinfer.core.fleet.claims import PodRef
from flexinfer.core.fleet.fold import tick
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.placement.boards import Board, Verdicts, verdicts
from flexinfer.core.placement.demand import PROCESSOR, Demand, Kind, demand_of
from flexinfer.core.placement.explanation import MAX_CANDIDATES, Attempt, Outcome, candidates_of, decision
from flexinfer.core.placement.offers import verdict
from flexinfer.core.placement.ranking import Ranking
from flexinfer.core.placement.roster import Asked, Roster
from flexinfer.core.placement.scoring import Weights
from flexinfer.core.placement.shadow import shadowed
from flexinfer.core.placement.speeds import Speeds, speeds_of
from flexinfer.core.placement.sums import Scores, ranked, scored

KEPT_DECISIONS = 300
KEPT_CANDIDATES = 200_000
KEPT_BOARDS = 32
KEPT_DEMANDS = 64
KEPT_WARM = 4
WARM_SECONDS = 600.0
MAX_OPEN = 1000
MAX_NAMES = 100_000  # beyond it the names of nodes long gone, or never there, are forgotten with the rest
UNANSWERED_SECONDS = 2.0


@dataclass(slots=True)
class Pending:
    """A decision taken but not yet written up; its ranking is of that moment."""

    attempt: Attempt
    ranking: Ranking | None
    speeds: Speeds
    message: str = ""
    shadow: ShadowRanking | UnsetType = UNSET
    written: PlacementDecided | None = None


@dataclass(slots=True)
class Decided:
    """A decision written up, with its ranking while that is kept."""

    attempt: Attempt
    payload: PlacementDecided
    ranking: Ranking | None
    speeds: Speeds


class Desk:
    """Pure: time comes in with each call, decisions wait in ``take`` for somebody to publish."""

    def __init__(
        self, view: FleetView, weights: Weights, reserve_seconds: float = 5.0, shadow: Weights | None = None
    ) -> None:
        """``shadow``: weights to evaluate beside the real ones and to record, never to act on."""
        self.view = view
        self.weights = weights
        self.coalesced = 0
        self._reserve_seconds = reserve_seconds
        self._shadow = shadow
        self._roster = Roster()
        self._boards: OrderedDict[Kind, Board] = OrderedDict()
        self._demands: OrderedDict[str, tuple[PodObject, Demand]] = OrderedDict()
        self._speeds: dict[str, Speeds] = {}
        self._speeds_version = -1
        self._open: OrderedDict[str, Attempt] = OrderedDict()
        self._pending: OrderedDict[str, Pending] = OrderedDict()
        self._decided: OrderedDict[tuple[str, str], Decided] = OrderedDict()
        self._ranked: OrderedDict[tuple[str, str], int] = OrderedDict()  # candidates of those with a ranking
        self._kept_candidates = 0

    @property
    def roster(self) -> Roster:
        """The numbers of node names; another one once it has grown past MAX_NAMES."""
        return self._roster

    def filter(self, pod: PodObject, asked: Asked, now: float) -> Verdicts:
        """Who passes. Decided at once when nobody or one does, because prioritize is not asked then."""
        demand, board = self._begin(pod, asked, now)
        found = verdicts(board, asked, demand.per_device_mib)
        attempt = self._attempt(pod, demand, len(asked), found.counts, now)
        earlier = self._open.pop(attempt.pod.uid, None)
        if earlier is not None:
            self._unanswered(earlier)
        if len(found.survivors) > 1:
            self._open[attempt.pod.uid] = attempt
            if len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
        else:
            self._decide(attempt, board, found.survivors)
        return found

    def prioritize(self, pod: PodObject, asked: Asked, now: float) -> Scores:
        """Points lost by each node; the best node is reserved for the pod."""
        demand, board = self._begin(pod, asked, now)
        passing = verdicts(board, asked, demand.per_device_mib)
        attempt = self._open.pop(pod.metadata.uid, None)
        if attempt is None or attempt.demand != demand:
            attempt = self._attempt(pod, demand, len(asked), passing.counts, now)
        return scored(passing, self._decide(attempt, board, passing.survivors))

    def preempt(self, pod: PodObject, victims: Mapping[str, AbstractSet[str]], now: float) -> list[str]:
        """The nodes that would pass the filter once their victims (pod uids) are gone."""
        tick(self.view, now)
        demand = demand_of(pod)
        mine = {pod.metadata.uid}
        return [name for name, uids in victims.items() if verdict(self.view, name, demand, now, mine | uids) is None]

    def overdue(self, now: float) -> bool:
        """An attempt waits for a prioritize call that will not come."""
        return bool(self._open) and now - next(iter(self._open.values())).at >= UNANSWERED_SECONDS

    def flush(self, now: float) -> None:
        """Decide attempts whose prioritize call never came."""
        while self.overdue(now):
            _, attempt = self._open.popitem(last=False)
            self._unanswered(attempt)

    def keep_up(self, now: float) -> None:
        """Renew what is kept for the demands asked for last, so that the next request does not have to."""
        for board in islice(reversed(self._boards.values()), KEPT_WARM):
            if now - board.asked_at < WARM_SECONDS:
                board.refresh(now)

    def warm(self, now: float) -> None:
        """Make ready for the likeliest demands: one device of each vendor in the fleet, and the processor."""
        tick(self.view, now)
        vendors = {
            device.vendor for node in self.view.nodes.values() if node.hardware for device in node.hardware.devices
        }
        self._roster.positions(list(self.view.nodes))
        self._roster.prepare()
        for kind in (PROCESSOR, *(Kind(vendor, 1) for vendor in sorted(vendors))):
            self._board(kind).refresh(now)

    def take(self) -> PlacementDecided | None:
        """The oldest decision not yet published."""
        if not self._pending:
            return None
        _, pending = self._pending.popitem(last=False)
        return self._write(pending)

    @property
    def waiting(self) -> int:
        """Decisions not yet published."""
        return len(self._pending)

    def explain(self, namespace: str, pod: str) -> PlacementDecided | None:
        """The last decision about a pod, with every candidate while they are kept."""
        for pending in list(self._pending.values()):
            if (pending.attempt.pod.namespace, pending.attempt.pod.name) == (namespace, pod):
                self._write(pending)
        found = self._decided.get((namespace, pod))
        if found is None:
            return None
        if found.ranking is None:
            return found.payload
        count = len(found.ranking)
        every = candidates_of(found.ranking, found.speeds, self.weights, found.attempt.at, count)
        return replace(found.payload, candidates=every)

    def _begin(self, pod: PodObject, asked: Asked, now: float) -> tuple[Demand, Board]:
        tick(self.view, now)
        uid = pod.metadata.uid
        held = self.view.claimed_on.get(uid)
        if held is not None and not self.view.nodes[held].claims[uid].bound:
            # A new attempt: what the last one reserved must not count against it.
            claims.release(self.view, uid)
        demand = self._demand(pod)
        if len(self._roster) > MAX_NAMES:
            self._roster = Roster()
            self._boards.clear()
        board = self._board(demand.kind)
        board.asked_at = now
        asked.enrol(self._roster)
        board.refresh(now)
        return demand, board

    def _demand(self, pod: PodObject) -> Demand:
        """Read once: kube-scheduler asks about each pod at least twice."""
        known = self._demands.get(pod.metadata.uid)
        if known is not None and known[0] == pod:
            return known[1]
        found = demand_of(pod)
        self._demands[pod.metadata.uid] = (pod, found)
        _shrink(self._demands, KEPT_DEMANDS)
        return found

    def _board(self, kind: Kind) -> Board:
        found = self._boards.get(kind)
        if found is None:
            found = self._boards[kind] = Board(self.view, self._roster, kind)
            _shrink(self._boards, KEPT_BOARDS)
        self._boards.move_to_end(kind)
        return found

    def _attempt(
        self, pod: PodObject, demand: Demand, considered: int, counts: Mapping[str, int], now: float
    ) -> Attempt:
        ref = PodRef(pod.metadata.uid, pod.metadata.namespace, pod.metadata.name)
        digest = f"{self.view.digest:016x}"
        return Attempt(ref, demand, considered, counts, now, digest, self.view.degraded)

    def _decide(self, attempt: Attempt, board: Board, asked: Asked) -> Ranking:
        """Rank those that pass, keep the decision as it is now, and reserve its leader."""
        speeds = self._speeds_for(attempt.demand)
        entries = attempt.demand.entries
        ranking = ranked(board, asked, speeds, self.weights, entries)
        pending = Pending(attempt, ranking, speeds)
        self._put(pending)
        if not len(ranking):
            return ranking
        leader = ranking.leader(self._roster.ranks(), asked.rows)
        if self._shadow is not None and len(ranking) > 1:
            pending.shadow = shadowed(board, asked.rows, speeds, self._shadow, entries, leader)
        if attempt.pod.uid:
            until = attempt.at + self._reserve_seconds
            claims.reserve(self.view, ranking.name(leader), attempt.pod, attempt.demand.ask, until)
        return ranking

    def _unanswered(self, attempt: Attempt) -> None:
        self._put(Pending(attempt, None, Speeds(()), "the scheduler did not ask for a ranking"))

    def _put(self, pending: Pending) -> None:
        uid = pending.attempt.pod.uid
        if self._pending.pop(uid, None) is not None:
            self.coalesced += 1
        self._pending[uid] = pending
        if len(self._pending) > MAX_OPEN:
            self._pending.popitem(last=False)
            self.coalesced += 1

    def _write(self, pending: Pending) -> PlacementDecided:
        if pending.written is not None:
            return pending.written
        attempt = pending.attempt
        ranking = pending.ranking
        shown = candidates_of(ranking, pending.speeds, self.weights, attempt.at, MAX_CANDIDATES) if ranking else ()
        outcome: Outcome = "ranked" if len(shown) > 1 or pending.message else "single" if shown else "rejected"
        payload = decision(attempt, outcome, shown, ranking if shown else None, pending.message, pending.shadow)
        pending.written = payload
        decided = Decided(attempt, payload, ranking, pending.speeds)
        key = (payload.namespace, payload.pod)
        self._forget(key)
        self._decided[key] = decided
        if ranking is not None:
            self._ranked[key] = len(ranking)
            self._kept_candidates += len(ranking)
        while self._kept_candidates > KEPT_CANDIDATES:
            oldest, count = self._ranked.popitem(last=False)
            self._kept_candidates -= count
            self._decided[oldest].ranking = None
        if len(self._decided) > KEPT_DECISIONS:
            self._forget(next(iter(self._decided)))
        return payload

    def _forget(self, key: tuple[str, str]) -> None:
        self._decided.pop(key, None)
        self._kept_candidates -= self._ranked.pop(key, 0)

    def _speeds_for(self, demand: Demand) -> Speeds:
        if self._speeds_version != self.view.results_version:
            self._speeds.clear()
            self._speeds_version = self.view.results_version
        found = self._speeds.get(demand.workload)
        if found is None:
            if len(self._speeds) > KEPT_DECISIONS:
                self._speeds.clear()
            found = self._speeds[demand.workload] = speeds_of(self.view, demand.workload)
        return found


def _shrink(kept: OrderedDict[Any, Any], limit: int) -> None:
    while len(kept) > limit:
        kept.popitem(last=False)
