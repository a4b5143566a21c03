"""Replay an extender's tape through the real reducers: the same facts give the same answers and decisions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from flexinfer.adapters.web.extender import ExtenderApp, Process
from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import PlacementDecided
from flexinfer.contracts.kubernetes import CONFIGMAPS, KubeDelta
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.explanation import parse_weights
from flexinfer.core.placement.scoring import TERMS, Weights
from flexinfer.core.placement.shadow import overridden
from flexinfer.ports import Relisted, Snapshot
from flexinfer.runtime.journal import Fact, Tape, Tick, Webhook
from flexinfer.runtime.placement.intake import FleetIntake


@dataclass(slots=True)
class Replayed:
    """``answers``: (phase, body) for each request; ``decisions`` in the order they were taken."""

    answers: list[tuple[str, bytes]] = field(default_factory=list)
    decisions: list[PlacementDecided] = field(default_factory=list)


def weights_of(settings: dict[str, Any]) -> Weights:
    """The weights in a tape's header; those of the defaults where it tells none."""
    names = {field: f"weight_{field}" for field in TERMS.values()}
    return Weights(**{field: float(settings[key]) for field, key in names.items() if key in settings})


def shadow_of(settings: dict[str, Any]) -> Weights | None:
    """The weights tried beside them, if the tape was recorded with any."""
    changes = parse_weights([str(settings.get("shadow_weights", ""))])
    return overridden(weights_of(settings), changes) if changes else None


class SchedulerReplay:
    """One extender made of its tape. Requests the view was too cold for are answered as they were: with an error."""

    def __init__(self, settings: dict[str, Any]) -> None:
        prefix = settings.get("label_prefix")
        self.view = FleetView(prefix=prefix) if isinstance(prefix, str) else FleetView()
        seconds = float(settings.get("reservation_ttl", 5.0))
        self.desk = Desk(self.view, weights_of(settings), seconds, shadow_of(settings))
        self._at = 0.0
        self._lists: set[str] = set()
        self._intake = FleetIntake(self.view, lambda: self._at)
        process = Process(self._cold, lambda: (True, {}), lambda: self._at)
        self._app = ExtenderApp(self.desk, process, 1 << 30)

    def _cold(self) -> str | None:
        if not self._intake.snapshots and not self.view.degraded:
            return "no snapshot of the bus state yet"
        missing = {"nodes", "pods"} - self._lists
        return f"the list of {min(missing).capitalize()} is not complete yet" if missing else None

    def feed(self, at: float, fact: Fact) -> tuple[str, bytes] | None:
        """One line of a tape; the answer if it was a request."""
        self._at = at
        match fact:
            case Webhook(path=phase, body=body):
                return phase, self._app.answer(phase, body.encode(), at)[0]
            case Tick():
                self.desk.flush(at)
            case Relisted(plural=CONFIGMAPS.plural, objects=objects):
                self._intake.degrade(objects)
            case Relisted() | KubeDelta():
                if isinstance(fact, Relisted):
                    self._lists.add(fact.plural)
                self._intake.kube(fact)
            case Event() | Snapshot():
                self._intake.bus(fact)
        return None

    def decided(self) -> Iterator[PlacementDecided]:
        """What was decided since the last call."""
        while (found := self.desk.take()) is not None:
            yield found


def replay(tape: Tape) -> Replayed:
    """The whole tape."""
    scheduler = SchedulerReplay(tape.header.settings)
    found = Replayed()
    for at, fact in tape.facts:
        answer = scheduler.feed(at, fact)
        if answer is not None:
            found.answers.append(answer)
        found.decisions.extend(scheduler.decided())
    return found
