"""Facts as they arrive, into the fleet view: journaled first, then folded; what cannot be read is counted."""

import logging
from collections.abc import Callable

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.kubernetes import KubeDelta
from flexinfer.core.fleet.fold import UnreadableObject, fold, replace_objects, replace_state
from flexinfer.core.fleet.view import FleetView
from flexinfer.ports import BusFact, KubeFact, Relisted, Snapshot
from flexinfer.runtime.journal import Journal
from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

_FACTS = metrics.counter(
    "flexinfer_scheduler_facts_total", "Facts that reached the fleet view, by kind and whether they were news.",
    ("kind", "result"),
)  # fmt: skip


class FleetIntake:
    """Sinks for a bus subscription and for informers; both run on the event loop and never raise."""

    def __init__(self, view: FleetView, now: Callable[[], float], journal: Journal | None = None) -> None:
        self._view = view
        self._now = now
        self._journal = journal
        self.snapshots = 0

    def bus(self, fact: BusFact) -> None:
        """A snapshot or one event."""
        now = self._record(fact)
        if isinstance(fact, Snapshot):
            replace_state(self._view, fact.types, fact.events, now)
            self.snapshots += 1
            _FACTS.labels("snapshot", "news").inc()
            log.info("view holds %d nodes and %d results", len(self._view.nodes), len(self._view.results))
        else:
            self._count("event", news=fold(self._view, fact, now))

    def kube(self, fact: KubeFact) -> None:
        """A complete list or one change."""
        now = self._record(fact)
        try:
            if isinstance(fact, Relisted):
                for bad in replace_objects(self._view, fact.plural, fact.objects, now):
                    self._unreadable(bad)
                _FACTS.labels("list", "news").inc()
            else:
                self._count(fact.plural, news=fold(self._view, fact, now))
        except UnreadableObject as err:
            self._unreadable(err)

    def _record(self, fact: Event | Snapshot | KubeDelta | Relisted) -> float:
        now = self._now()
        if self._journal is not None:
            self._journal.write(now, fact)
        return now

    @staticmethod
    def _count(kind: str, *, news: bool) -> None:
        _FACTS.labels(kind, "news" if news else "repeat").inc()

    @staticmethod
    def _unreadable(err: UnreadableObject) -> None:
        _FACTS.labels("object", "unreadable").inc()
        log.warning("object ignored: %s", err)
