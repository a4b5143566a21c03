"""What the dashboard shows: the newest fact per key, recent decisions, phase histories and a ring of events."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import msgspec

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import (
    BenchCompleted,
    BenchFailed,
    BenchSample,
    BenchStarted,
    EventData,
    ModelEndpoint,
    ModelLoad,
    ModelPhase,
    NodeHardware,
    NodeStatus,
    NodeTelemetry,
    PlacementDecided,
)
from flexinfer.contracts.topics import TOPIC_OF, order_key
from flexinfer.core.fleet.view import OrderBook
from flexinfer.ports import BusFact, Snapshot

KEPT: dict[type[EventData], str] = {
    NodeHardware: "hardware", NodeTelemetry: "telemetry", NodeStatus: "status", ModelPhase: "phase",
    ModelEndpoint: "endpoint", ModelLoad: "load", BenchCompleted: "result",
}  # fmt: skip
RECENT_EVENTS = 500
RECENT_DECISIONS = 100
PHASE_HISTORY = 30
_RUNS_KEPT = 50

Record = dict[str, Any]


def key_of(data: EventData) -> str:
    """Subject tokens of a payload: the same for all facts that replace each other."""
    return order_key(data).partition(".v1.")[2]


def record_of(event: Event) -> Record:
    """One event as the page reads it."""
    return {
        "id": event.id, "type": event.type.removeprefix("ai.flexinfer."), "subject": event.subject,
        "source": event.source, "at": event.at, "data": msgspec.to_builtins(event.data),
    }  # fmt: skip


@dataclass(slots=True)
class Pending:
    """What changed since the last batch: newest value per key, events in order, how many were left out."""

    kept: dict[str, dict[str, Record | None]] = field(default_factory=dict)
    events: deque[Record] = field(default_factory=lambda: deque(maxlen=200))
    decisions: list[Record] = field(default_factory=list)
    seen: int = 0

    @property
    def empty(self) -> bool:
        """Nothing to send."""
        return not (self.kept or self.events or self.decisions)


@dataclass(slots=True)
class Board:
    """Folds bus facts; ``snapshot`` is the whole, ``drain`` what is new since the last drain."""

    kept: dict[str, dict[str, Record]] = field(default_factory=lambda: {name: {} for name in KEPT.values()})
    decisions: deque[Record] = field(default_factory=lambda: deque(maxlen=RECENT_DECISIONS))
    events: deque[Record] = field(default_factory=lambda: deque(maxlen=RECENT_EVENTS))
    phases: dict[str, deque[Record]] = field(default_factory=dict)
    runs: dict[str, Record] = field(default_factory=dict)
    total: int = 0
    newest: float = 0.0
    _order: OrderBook = field(default_factory=OrderBook)
    _pending: Pending = field(default_factory=Pending)

    def sink(self, fact: BusFact) -> None:
        """For ``Bus.follow``."""
        if isinstance(fact, Snapshot):
            self._replace(fact)
            return
        self._take(fact, live=True)

    def _replace(self, snapshot: Snapshot) -> None:
        present = {key_of(event.data) for event in snapshot.events}
        for data in snapshot.types:
            name = KEPT.get(data)
            if name is None or TOPIC_OF[data].bucket == "nodes":
                continue  # a node that is missing from a snapshot is suspected, not gone
            for key in [key for key in self.kept[name] if key not in present]:
                self._drop(name, key)
        for event in snapshot.events:
            self._take(event, live=False)

    def _take(self, event: Event, *, live: bool) -> None:
        if not self._order.accept(order_key(event.data), event):
            return
        record = record_of(event)
        self.newest = max(self.newest, event.at)
        self._remember(event.data, record)
        if live:
            self.total += 1
            self.events.append(record)
            self._pending.events.append(record)
            self._pending.seen += 1

    def _remember(self, data: EventData, record: Record) -> None:
        name = KEPT.get(type(data))
        if name is not None:
            key = key_of(data)
            if TOPIC_OF[type(data)].retracts(data):
                self._drop(name, key)
                self._order.forget(order_key(data))
            else:
                self.kept[name][key] = record
                self._pending.kept.setdefault(name, {})[key] = record
        match data:
            case PlacementDecided():
                self.decisions.append(record)
                self._pending.decisions.append(record)
            case ModelPhase():
                self._phase(f"{data.namespace}/{data.model}", data, record)
            case BenchStarted() | BenchSample() | BenchFailed() | BenchCompleted():
                self._run(data.key, data, record)
            case _:
                return

    def _phase(self, model: str, data: ModelPhase, record: Record) -> None:
        history = self.phases.setdefault(model, deque(maxlen=PHASE_HISTORY))
        if data.gone:
            self.phases.pop(model, None)
        elif not history or history[-1]["data"]["phase"] != data.phase:
            history.append(record)

    def _run(self, key: str, data: EventData, record: Record) -> None:
        if isinstance(data, BenchStarted):
            self.runs[key] = {"started": record, "samples": [], "ended": None}
            while len(self.runs) > _RUNS_KEPT:
                self.runs.pop(next(iter(self.runs)))
        run = self.runs.get(key)
        if run is None:
            return
        if isinstance(data, BenchSample):
            run["samples"] = [*run["samples"], record["data"]][-64:]
        elif not isinstance(data, BenchStarted):
            run["ended"] = record

    def _drop(self, name: str, key: str) -> None:
        self.kept[name].pop(key, None)
        self._pending.kept.setdefault(name, {})[key] = None

    @property
    def has_news(self) -> bool:
        """Whether a drain would say something new."""
        return not self._pending.empty

    def snapshot(self, now: float, notes: list[str]) -> bytes:
        """Everything, as one JSON document; ``notes`` are sentences for the banner."""
        return msgspec.json.encode(
            {
                "now": now, "total": self.total, "notes": notes, **self.kept, "decisions": list(self.decisions),
                "events": list(self.events), "phases": {k: list(v) for k, v in self.phases.items()}, "runs": self.runs,
            }
        )  # fmt: skip

    def drain(self, now: float, notes: list[str]) -> bytes:
        """What changed since the last call, as one JSON document."""
        pending, self._pending = self._pending, Pending()
        left_out = pending.seen - len(pending.events)
        models = {f"{r['data']['namespace']}/{r['data']['model']}" for r in pending.kept.get("phase", {}).values() if r}
        runs = {r["subject"] for r in pending.events if r["type"].startswith("bench.")}
        return msgspec.json.encode(
            {
                "now": now, "total": self.total, "notes": notes, **pending.kept, "decisions": pending.decisions,
                "events": list(pending.events), "leftOut": left_out,
                "phases": {m: list(self.phases[m]) for m in models if m in self.phases},
                "runs": {k: self.runs[k] for k in runs if k in self.runs},
            }
        )  # fmt: skip
