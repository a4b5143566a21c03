"""Facts as they arrive, into the fleet view: journaled first, then folded; what cannot be read is counted."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.kubernetes import CONFIGMAPS, NODES, PODS, KubeDelta, Object
from flexinfer.core.fleet.fold import UnreadableObject, fold, replace_objects, replace_state
from flexinfer.core.fleet.projections import assume_node, assume_results
from flexinfer.core.fleet.view import FleetView
from flexinfer.ports import BusFact, KubeFact, Relisted, Snapshot
from flexinfer.runtime.journal import Journal
from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

_FACTS = metrics.counter(
    "flexinfer_scheduler_facts_total", "Facts that reached the fleet view, by kind and whether they were news.",
    ("kind", "result"),
)  # fmt: skip
# Looking a label set up costs more than counting; these are counted at every event.
_COUNTERS = {
    (kind, news): _FACTS.labels(kind, "news" if news else "repeat")
    for kind in ("event", NODES.plural, PODS.plural)
    for news in (True, False)
}
DEGRADED = metrics.gauge(
    "flexinfer_scheduler_degraded", "1 while placement reads labels and annotations because the bus cannot be reached."
)


class FleetIntake:
    """Sinks for a bus subscription and for informers; both run on the event loop and never raise."""

    def __init__(
        self,
        view: FleetView,
        now: Callable[[], float],
        journal: Journal | None = None,
        changed: Callable[[float], None] | None = None,
    ) -> None:
        """``changed`` is called with the time after each event that was news. Pods are not told: a burst of them
        touches one node several times between two requests."""
        self._view = view
        self._changed = changed
        self._now = now
        self._journal = journal
        self._nodes: dict[str, Object] = {}
        self.snapshots = 0
        self.warm = asyncio.Event()  # the view holds the fleet, from the bus or from its projections

    def bus(self, fact: BusFact) -> None:
        """A snapshot or one event."""
        now = self._record(fact)
        if isinstance(fact, Snapshot):
            replace_state(self._view, fact.types, fact.events, now)
            self.snapshots += 1
            self.warm.set()
            DEGRADED.set(0)
            _FACTS.labels("snapshot", "news").inc()
            log.info("view holds %d nodes and %d results", len(self._view.nodes), len(self._view.results))
        else:
            news = fold(self._view, fact, now)
            self._count("event", news=news)
            if news and self._changed is not None:
                self._changed(now)

    def kube(self, fact: KubeFact) -> None:
        """A complete list or one change."""
        now = self._record(fact)
        self._remember(fact, now)
        try:
            if isinstance(fact, Relisted):
                for bad in replace_objects(self._view, fact.plural, fact.objects, now):
                    self._unreadable(bad)
                _FACTS.labels("list", "news").inc()
            else:
                self._count(fact.plural, news=fold(self._view, fact, now))
        except UnreadableObject as err:
            self._unreadable(err)

    def degrade(self, configmaps: Sequence[Object]) -> None:
        """No bus: take what labels, annotations and recorded results tell, until the next snapshot."""
        now = self._record(Relisted(CONFIGMAPS.plural, tuple(configmaps)))
        self._view.degraded = True
        self.warm.set()
        DEGRADED.set(1)
        for node in self._nodes.values():
            assume_node(self._view, node, now)
        unreadable = assume_results(self._view, configmaps)
        _FACTS.labels("record", "unreadable").inc(unreadable)
        log.warning(
            "degraded: no state from the bus; %d nodes by their labels, %d recorded results",
            len(self._nodes),
            len(self._view.results),
        )

    def _remember(self, fact: KubeFact, now: float) -> None:
        """Node objects, which degraded mode reads; the informer holds the same ones."""
        if fact.plural != NODES.plural:
            return
        if isinstance(fact, Relisted):
            self._nodes = {str(node.get("metadata", {}).get("name")): node for node in fact.objects}
        elif fact.action == "DELETED":
            self._nodes.pop(fact.name, None)
        else:
            self._nodes[fact.name] = fact.object
        if self._view.degraded:
            for node in fact.objects if isinstance(fact, Relisted) else (fact.object,):
                assume_node(self._view, node, now)

    def _record(self, fact: Event | Snapshot | KubeDelta | Relisted) -> float:
        now = self._now()
        if self._journal is not None:
            self._journal.write(now, fact)
        return now

    @staticmethod
    def _count(kind: str, *, news: bool) -> None:
        _COUNTERS[kind, news].inc()

    @staticmethod
    def _unreadable(err: UnreadableObject) -> None:
        _FACTS.labels("object", "unreadable").inc()
        log.warning("object ignored: %s", err)
