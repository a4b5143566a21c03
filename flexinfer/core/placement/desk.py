"""The extender's decisions over one fleet view: filter, prioritize, preempt, and what was decided for whom.

One desk per replica, no leader: every replica folds the same facts and rebuilds reservations from the Pod watch.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from flexinfer.contracts.events import PlacementDecided
from flexinfer.contracts.extender import PodObject
from flexinfer.core.fleet import claims
from flexinfer.core.fleet.claims import PodRef
from flexinfer.core.fleet.fold import tick
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.placement.checks import Reason
from flexinfer.core.placement.demand import Demand, demand_of
from flexinfer.core.placement.explanation import MAX_CANDIDATES, Attempt, Outcome, candidates_of, decision
from flexinfer.core.placement.figures import Figures, speeds_of
from flexinfer.core.placement.ranking import Ranking, Verdicts, rank, unique, verdict
from flexinfer.core.placement.scoring import Weights
from flexinfer.core.placement.speeds import Speeds

KEPT_DECISIONS = 300
KEPT_CANDIDATES = 200_000
MAX_OPEN = 1000
UNANSWERED_SECONDS = 2.0


@dataclass(slots=True)
class Decided:
    """A decision with everything needed to show all its candidates later."""

    attempt: Attempt
    payload: PlacementDecided
    ranking: Ranking | None
    speeds: Speeds


class Desk:
    """Pure: time comes in with each call, decisions pile up in ``outbox`` for somebody to publish."""

    def __init__(self, view: FleetView, weights: Weights, reserve_seconds: float = 5.0) -> None:
        self.view = view
        self.weights = weights
        self.outbox: deque[PlacementDecided] = deque(maxlen=MAX_OPEN)
        self._reserve_seconds = reserve_seconds
        self._open: OrderedDict[str, Attempt] = OrderedDict()
        self._decided: OrderedDict[tuple[str, str], Decided] = OrderedDict()
        self._speeds: dict[str, Speeds] = {}
        self._speeds_version = -1

    def filter(self, pod: PodObject, names: Sequence[str], now: float) -> Verdicts:
        """Who passes. Decided at once when nobody or one does, because prioritize is not asked then."""
        tick(self.view, now)
        demand = demand_of(pod)
        found, figures = self._judged(pod, demand, unique(names), now)
        attempt = self._attempt(pod, demand, len(found.passed) + len(found.failed), found.counts, now)
        earlier = self._open.pop(attempt.pod.uid, None)
        if earlier is not None:
            self._unanswered(earlier)
        if len(found.passed) > 1:
            self._open[attempt.pod.uid] = attempt
            while len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
            return found
        self._decide(attempt, rank(figures, self.weights), now)
        return found

    def prioritize(self, pod: PodObject, names: Sequence[str], now: float) -> list[tuple[str, int]]:
        """``(node, score)`` for each name; the best is reserved for the pod."""
        tick(self.view, now)
        demand = demand_of(pod)
        asked = unique(names)
        found, figures = self._judged(pod, demand, asked, now)
        ranking = rank(figures, self.weights)
        scores = {candidate.node: given for candidate, given in zip(figures, ranking.scores, strict=True)}
        attempt = self._open.pop(pod.metadata.uid, None)
        if attempt is None or attempt.demand != demand:
            attempt = self._attempt(pod, demand, len(asked), found.counts, now)
        self._decide(attempt, ranking, now)
        return [(name, scores.get(name, 0)) for name in asked]

    def preempt(self, pod: PodObject, victims: Mapping[str, AbstractSet[str]], now: float) -> list[str]:
        """The nodes that would pass the filter once their victims (pod uids) are gone."""
        tick(self.view, now)
        demand = demand_of(pod)
        speeds = self._speeds_for(demand)
        mine = {pod.metadata.uid}
        return [
            name
            for name, uids in victims.items()
            if isinstance(verdict(self.view, name, demand, speeds, now, mine | uids), Figures)
        ]

    def flush(self, now: float) -> None:
        """Decide attempts whose prioritize call never came."""
        tick(self.view, now)
        while self._open:
            uid, attempt = next(iter(self._open.items()))
            if now - attempt.at < UNANSWERED_SECONDS:
                return
            del self._open[uid]
            self._unanswered(attempt)

    def explain(self, namespace: str, pod: str) -> PlacementDecided | None:
        """The last decision about a pod, with every candidate while they are kept."""
        found = self._decided.get((namespace, pod))
        if found is None:
            return None
        if found.ranking is None:
            return found.payload
        every = candidates_of(
            found.ranking, found.speeds, self.weights, found.attempt.at, len(found.ranking.candidates)
        )
        return PlacementDecided(
            **{name: getattr(found.payload, name) for name in found.payload.__struct_fields__} | {"candidates": every}
        )

    def _unanswered(self, attempt: Attempt) -> None:
        payload = decision(attempt, "ranked", (), None, "the scheduler did not ask for a ranking")
        self._keep(Decided(attempt, payload, None, Speeds(())))

    def _judged(
        self, pod: PodObject, demand: Demand, names: Sequence[str], now: float
    ) -> tuple[Verdicts, list[Figures]]:
        speeds = self._speeds_for(demand)
        without = frozenset({pod.metadata.uid})
        found = Verdicts()
        figures: list[Figures] = []
        for name in names:
            answer = verdict(self.view, name, demand, speeds, now, without)
            if isinstance(answer, Reason):
                found.failed[name] = answer
            else:
                found.passed.append(name)
                figures.append(answer)
        return found, figures

    def _attempt(
        self, pod: PodObject, demand: Demand, considered: int, counts: Mapping[str, int], now: float
    ) -> Attempt:
        ref = PodRef(pod.metadata.uid, pod.metadata.namespace, pod.metadata.name)
        digest = f"{self.view.digest:016x}"
        return Attempt(ref, demand, considered, counts, now, digest, self.view.degraded)

    def _decide(self, attempt: Attempt, ranking: Ranking, now: float) -> None:
        speeds = self._speeds_for(attempt.demand)
        shown = candidates_of(ranking, speeds, self.weights, now, MAX_CANDIDATES)
        outcome: Outcome = "ranked" if len(shown) > 1 else "single" if shown else "rejected"
        payload = decision(attempt, outcome, shown, ranking if shown else None)
        if shown and attempt.pod.uid:
            until = now + self._reserve_seconds
            claims.reserve(self.view, shown[0].node, attempt.pod, attempt.demand.ask, until)
        self._keep(Decided(attempt, payload, ranking, speeds))

    def _keep(self, decided: Decided) -> None:
        key = (decided.payload.namespace, decided.payload.pod)
        self._decided.pop(key, None)
        self._decided[key] = decided
        self.outbox.append(decided.payload)
        if len(self._decided) > KEPT_DECISIONS:
            self._decided.popitem(last=False)
        kept = 0
        for old in reversed(self._decided.values()):
            kept += len(old.ranking.candidates) if old.ranking else 0
            if kept > KEPT_CANDIDATES:
                old.ranking = None

    def _speeds_for(self, demand: Demand) -> Speeds:
        if self._speeds_version != self.view.results_version:
            self._speeds.clear()
            self._speeds_version = self.view.results_version
        found = self._speeds.get(demand.workload)
        if found is None:
            if len(self._speeds) > KEPT_DECISIONS:
                self._speeds.clear()
            found = self._speeds[demand.workload] = speeds_of(self.view, demand)
        return found
