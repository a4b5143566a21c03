"""What the dashboard shows: the newest fact per key, recent decisions, phase histories and a ring of events."""

from collections import deque
from copy import copy
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct

from flexinfer.adapters.web.dashboard.notes import Health
from flexinfer.adapters.web.dashboard.records import KEPT, Record, key_of, listed, record_of
from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import (
    BenchCompleted,
    BenchFailed,
    BenchSample,
    BenchStarted,
    EventData,
    ModelPhase,
    PlacementDecided,
)
from flexinfer.contracts.topics import DEMAND_TTL_SECONDS, TOPIC_OF, order_key
from flexinfer.core.fleet.view import OrderBook
from flexinfer.ports import BusFact, Snapshot

RECENT_EVENTS = 500
RECENT_DECISIONS = 100
BATCH_EVENTS = 200
PHASE_HISTORY = 30
RUNS_KEPT = 50
SAMPLES_KEPT = 64
KEYS_KEPT = 20_000  # per kind: a bus that invents names costs the oldest ones, never the process
SILENT_SECONDS = 86_400.0  # a node that said nothing for a day, missing from the bus, is no longer drawn

_encode = msgspec.json.Encoder().encode


class Run(Struct, frozen=True, kw_only=True):
    """One benchmark run as far as it was seen."""

    started: Record
    samples: tuple[BenchSample, ...] = ()
    ended: Record | None = None


class Step(Struct, frozen=True, kw_only=True):
    """A phase a model entered at ``at``."""

    at: float
    phase: str
    reason: str
    message: str


@dataclass(slots=True)
class Pending:
    """What changed since the last batch: newest value per key, events in order, how many were left out."""

    kept: dict[str, dict[str, Record | None]] = field(default_factory=dict)
    events: deque[Record] = field(default_factory=lambda: deque(maxlen=BATCH_EVENTS))
    decisions: deque[Record] = field(default_factory=lambda: deque(maxlen=RECENT_DECISIONS))
    models: set[str] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)
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
    phases: dict[str, deque[Step]] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    health: Health = field(default_factory=Health)
    total: int = 0
    _missing: set[str] = field(default_factory=set)
    _order: OrderBook = field(default_factory=OrderBook)
    _pending: Pending = field(default_factory=Pending)

    def take(self, fact: BusFact, received: float | None = None, *, live: bool = True) -> None:
        """Fold one fact that came at ``received`` (None: when it says it was observed).

        ``live`` false: it belongs to the past and is not in the list of events.
        """
        if isinstance(fact, Snapshot):
            self._replace(fact)
        else:
            self._fold(fact, received, live=live)

    def _replace(self, snapshot: Snapshot) -> None:
        present = {key_of(event.data) for event in snapshot.events}
        for data in snapshot.types:
            name = KEPT.get(data)
            if name is None:
                continue
            absent = [key for key in self.kept[name] if key not in present]
            if TOPIC_OF[data].bucket == "nodes":  # a node that is missing from a snapshot is suspected, not gone
                self._missing.update(absent)
                continue
            for key in absent:
                self._drop(name, key)
        self._missing -= present
        for event in snapshot.events:
            self._fold(event, None, live=False)

    def _fold(self, event: Event, received: float | None, *, live: bool) -> None:
        if not self._order.accept(order_key(event.data), event) or self._decided(event):
            return
        record = record_of(event, received)
        self.health.note(event, record.heard)
        self._remember(event.data, record)
        if live:
            shown = listed(record)
            self.total += 1
            self.events.append(shown)
            self._pending.events.append(shown)
            self._pending.seen += 1

    def _decided(self, event: Event) -> bool:
        return isinstance(event.data, PlacementDecided) and any(record.id == event.id for record in self.decisions)

    def _remember(self, data: EventData, record: Record) -> None:
        name = KEPT.get(type(data))
        if name is not None:
            self._keep(name, data, record)
        match data:
            case PlacementDecided():
                self.decisions.append(record)
                self._pending.decisions.append(record)
                self._order.forget(order_key(data))  # pods come and go for ever
            case ModelPhase():
                self._phase(f"{data.namespace}/{data.model}", data, record.at)
            case BenchStarted() | BenchSample() | BenchFailed() | BenchCompleted():
                self._run(data.key, data, record)
            case _:
                return

    def _keep(self, name: str, data: EventData, record: Record) -> None:
        key = key_of(data)
        if TOPIC_OF[type(data)].retracts(data):
            self._drop(name, key)
            self._order.forget(order_key(data))
            return
        held = self.kept[name]
        held.pop(key, None)  # so that the dictionary is in order of news
        held[key] = record
        self._missing.discard(key)
        self._pending.kept.setdefault(name, {})[key] = record
        if len(held) > KEYS_KEPT:
            self._drop(name, next(iter(held)))

    def _phase(self, model: str, data: ModelPhase, at: float) -> None:
        history = self.phases.setdefault(model, deque(maxlen=PHASE_HISTORY))
        if data.gone:
            self.phases.pop(model, None)
        elif not history or history[-1].phase != data.phase:
            history.append(Step(at=at, phase=data.phase, reason=data.reason, message=data.message))
            self._pending.models.add(model)

    def _run(self, key: str, data: EventData, record: Record) -> None:
        if isinstance(data, BenchStarted):
            self.runs.pop(key, None)
            self.runs[key] = Run(started=record)
            while len(self.runs) > RUNS_KEPT:
                self.runs.pop(next(iter(self.runs)))
        run = self.runs.get(key)
        if run is None:
            return
        if isinstance(data, BenchSample):
            samples = (*run.samples, data)[-SAMPLES_KEPT:]
            self.runs[key] = Run(started=run.started, samples=samples, ended=run.ended)
        elif not isinstance(data, BenchStarted):
            self.runs[key] = Run(started=run.started, samples=run.samples, ended=record)
        self._pending.runs.add(key)

    def _drop(self, name: str, key: str) -> None:
        self.kept[name].pop(key, None)
        self._pending.kept.setdefault(name, {})[key] = None

    def forget(self, now: float) -> None:
        """Leave out what is gone without saying so: loads of dead proxies, nodes away from the bus for a day."""
        self.health.forget(now)
        for name, seconds in (("load", DEMAND_TTL_SECONDS), *((n, SILENT_SECONDS) for n in _NODE_KINDS)):
            held = self.kept[name]
            gone = [key for key, record in held.items() if now - record.heard > seconds]
            for key in gone:
                if name == "load" or key in self._missing:
                    self._drop(name, key)

    @property
    def has_news(self) -> bool:
        """Whether a drain would say something new."""
        return not self._pending.empty

    def snapshot(self, now: float, notes: list[str]) -> bytes:
        """Everything, as one JSON document; ``notes`` are sentences for the banner."""
        return _encode(
            {
                "now": now, "total": self.total, "notes": notes, **self.kept, "decisions": list(self.decisions),
                "events": list(self.events), "phases": {k: list(v) for k, v in self.phases.items()}, "runs": self.runs,
            }
        )  # fmt: skip

    def drain(self, now: float, notes: list[str]) -> bytes:
        """What changed since the last call, as one JSON document. An event that is also the newest value of its key
        is sent once: the list of events then says ``{"ref": [kind, key]}``."""
        pending, self._pending = self._pending, Pending()
        places = {id(r): (name, key) for name, held in pending.kept.items() for key, r in held.items() if r is not None}
        events = [{"ref": places[id(r)]} if id(r) in places else r for r in pending.events]
        return _encode(
            {
                "now": now, "total": self.total, "notes": notes, **pending.kept, "decisions": list(pending.decisions),
                "events": events, "leftOut": pending.seen - len(pending.events),
                "phases": {m: list(self.phases[m]) for m in pending.models if m in self.phases},
                "runs": {k: self.runs[k] for k in pending.runs if k in self.runs},
            }
        )  # fmt: skip

    def clear_news(self) -> None:
        """Nobody looks: the next drain starts here."""
        self._pending = Pending()

    def copy(self) -> "Board":
        """A second board that stands where this one does."""
        order = OrderBook({key: copy(value) for key, value in self._order.seen.items()})
        return Board(
            kept={name: dict(held) for name, held in self.kept.items()}, decisions=self.decisions.copy(),
            events=self.events.copy(), phases={k: v.copy() for k, v in self.phases.items()}, runs=dict(self.runs),
            health=self.health.copy(), total=self.total, _missing=set(self._missing), _order=order,
        )  # fmt: skip


_NODE_KINDS = tuple(name for data, name in KEPT.items() if TOPIC_OF[data].bucket == "nodes")
