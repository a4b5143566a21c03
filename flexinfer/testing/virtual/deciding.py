"""The extender in simulated time: its own reducers and wire, fed by a virtual fleet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from flexinfer.adapters.web.extender import ExtenderApp, Process
from flexinfer.config.scheduler import SchedulerSettings
from flexinfer.contracts.events import PlacementDecided
from flexinfer.contracts.kubernetes import Object
from flexinfer.core.fleet.fold import STATE_TYPES
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.scoring import Weights
from flexinfer.ports import Bus, Clock, KubeFact
from flexinfer.runtime.journal import Journal, Tick, Webhook, header_of
from flexinfer.runtime.placement.intake import FleetIntake

MAX_BODY = 64 << 20


@dataclass(frozen=True, slots=True)
class Placement:
    """Answers about one pod. ``scores`` (0..10) of the nodes that passed; ``rejected``: sentence by node."""

    scores: dict[str, int]
    rejected: dict[str, str]
    decided: PlacementDecided | None

    @property
    def best(self) -> str | None:
        """The node with the highest score, the first by name among equals; None if none passed."""
        return min(self.scores, key=lambda node: (-self.scores[node], node), default=None)


class SimulatedExtender:
    """View, desk and HTTP answers of ``flexinfer-sched``, without the HTTP."""

    def __init__(self, clock: Clock, journal: Journal | None) -> None:
        self.view = FleetView()
        self.desk = Desk(self.view, Weights())
        self.decisions: list[PlacementDecided] = []
        self.tape = journal.path if journal else None
        self._clock = clock
        self._journal = journal
        self.intake = FleetIntake(self.view, clock.now, journal, self.desk.keep_up)
        process = Process(lambda: None, lambda: (True, {}), clock.now)
        self._app = ExtenderApp(self.desk, process, MAX_BODY)
        self._nodes: list[str] = []

    @classmethod
    async def start(
        cls, bus: Bus, clock: Clock, watch: Callable[[Callable[[KubeFact], None]], None], record: Path | None
    ) -> "SimulatedExtender":
        """Warm when it returns."""
        journal = None
        if record is not None:
            settings = SchedulerSettings(reservation_ttl=5.0)
            journal = Journal.open(record, header_of("scheduler", "simulated", clock.now(), settings))
        extender = cls(clock, journal)
        watch(extender.intake.kube)
        await bus.follow(STATE_TYPES, extender.intake.bus)
        return extender

    def place(self, pod: Object, nodes: Sequence[str] | None = None) -> Placement:
        """Filter and prioritize ``nodes`` (None: all) for a pod, as kube-scheduler would ask."""
        names = sorted(self.view.nodes) if nodes is None else list(nodes)
        passed = self._ask("filter", {"Pod": pod, "Nodes": None, "NodeNames": names})
        fitting = passed.get("NodeNames") or []
        scores = self._ask("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": fitting}) if fitting else []
        rejected = {**(passed.get("FailedNodes") or {}), **(passed.get("FailedAndUnresolvableNodes") or {})}
        decided = self._flush()
        return Placement({row["Host"]: row["Score"] for row in scores}, rejected, decided)

    def close(self) -> None:
        """Close the tape."""
        if self._journal:
            self._journal.close()

    def _ask(self, phase: str, body: dict[str, Any]) -> Any:
        raw, now = msgspec.json.encode(body), self._clock.now()
        if self._journal:
            self._journal.write(now, Webhook(path=phase, body=raw.decode()))
        return msgspec.json.decode(self._app.answer(phase, raw, now)[0])

    def _flush(self) -> PlacementDecided | None:
        now = self._clock.now()
        if self._journal:
            self._journal.write(now, Tick())
        self.desk.flush(now)
        decided = None
        while (found := self.desk.take()) is not None:
            decided = found
            self.decisions.append(found)
        return decided
