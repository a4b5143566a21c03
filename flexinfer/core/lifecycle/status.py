"""Status, phase event and Kubernetes Events of a model, written only when something changed."""

from dataclasses import dataclass, field
from typing import Any

from flexinfer.contracts.events import Condition, ModelPhase
from flexinfer.contracts.kubernetes import Object
from flexinfer.core.effects import Effect, Note, Patch, Publish
from flexinfer.core.lifecycle.assess import Verdict
from flexinfer.core.lifecycle.conditions import merged
from flexinfer.core.lifecycle.description import ModelKey
from flexinfer.core.lifecycle.naming import RESOURCES, selector_text
from flexinfer.core.lifecycle.objects import condition as condition_of
from flexinfer.core.lifecycle.objects import meta, status
from flexinfer.core.lifecycle.phases import advance, phase_of
from flexinfer.core.lifecycle.view import LifecycleView, ModelState

_PATIENT = frozenset({"Accepted", "WaitingForHardware"})  # reasons to be Pending that need nobody to act


@dataclass(frozen=True, slots=True)
class Figures:
    """The parts of a status that are no conditions."""

    replicas: int = 0
    ready: int = 0
    endpoints: list[dict[str, Any]] = field(default_factory=list)
    benchmarks: list[dict[str, Any]] = field(default_factory=list)
    speed: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a status says."""

    verdict: Verdict
    conditions: tuple[Condition, ...]
    figures: Figures = field(default_factory=Figures)


def plan_status(view: LifecycleView, key: ModelKey, state: ModelState, report: Report, now: float) -> list[Effect]:
    """Effects that make the stored status, the bus and the Events say what was found. Raises IllegalTransition."""
    verdict, conditions, figures = report.verdict, report.conditions, report.figures
    previous = phase_of(status(state.object).get("phase"))
    if previous is None and verdict.phase not in {"Pending", "Failed", "Terminating"}:
        verdict = Verdict("Pending", "Accepted", "accepted")
    changed = advance(previous, verdict.phase)
    generation = int(meta(state.object).get("generation") or 0)
    found = {
        "phase": verdict.phase,
        "conditions": merged(state.object, conditions, generation, now),
        "replicas": figures.replicas,
        "readyReplicas": figures.ready,
        "selector": selector_text(key),
        "endpoints": figures.endpoints,
        "benchmarks": figures.benchmarks,
        "tokensPerSecond": "" if figures.speed is None else f"{figures.speed:.1f}",
        "observedGeneration": generation,
    }
    effects: list[Effect] = []
    if not _same(status(state.object), found):
        patch = Patch(RESOURCES[key.kind], key.namespace, key.name, {"status": found}, "status")
        effects.append(patch)
    event = ModelPhase(
        namespace=key.namespace,
        model=key.name,
        kind=key.kind,
        phase=verdict.phase,
        reason=verdict.reason,
        message=verdict.message,
        previous=previous if changed else _previous(view, key),
        conditions=conditions,
        replicas=figures.replicas,
        ready_replicas=figures.ready,
    )
    if view.phases.get((key.namespace, key.name)) != event:
        effects.append(Publish(event))
    told = (condition_of(state.object, "Available") or {}).get("reason", verdict.reason)
    if changed or (told != verdict.reason and verdict.phase in {"Pending", "Failed"}):
        text = f"{previous} → {verdict.phase}: {verdict.message}" if previous and changed else verdict.message
        calm = verdict.phase != "Failed" and (verdict.phase != "Pending" or verdict.reason in _PATIENT)
        effects.append(Note(state.object, "Normal" if calm else "Warning", verdict.reason, text))
    return effects + _placed(state, conditions)


def _placed(state: ModelState, conditions: tuple[Condition, ...]) -> list[Effect]:
    """The placement, said once when it is known."""
    before = (condition_of(state.object, "NodeSelected") or {}).get("status")
    return [
        Note(state.object, "Normal", "NodeSelected", one.message)
        for one in conditions
        if one.type == "NodeSelected" and one.status == "True" and before != "True"
    ]


def _previous(view: LifecycleView, key: ModelKey) -> Any:
    known = view.phases.get((key.namespace, key.name))
    return known.previous if known else None


def _same(stored: Object, found: dict[str, Any]) -> bool:
    """Equal as far as the API keeps it: empty parts may be missing there."""
    return all((stored.get(name) or None) == (value or None) for name, value in found.items())
