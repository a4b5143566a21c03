"""The manager's reducers behind one ``evolve``: facts of the ports to the folds of the core."""

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.kubernetes import KubeDelta
from flexinfer.core.lifecycle.description import ModelKey
from flexinfer.core.lifecycle.fold import fold_delta, fold_done, fold_list, fold_refusal
from flexinfer.core.lifecycle.fold_events import fold_event, fold_snapshot
from flexinfer.core.lifecycle.view import LifecycleView
from flexinfer.ports import Relisted, Snapshot
from flexinfer.runtime.interpreter import Outcome

Fact = Event | Snapshot | KubeDelta | Relisted | Outcome


def evolve(view: LifecycleView, fact: Fact, at: float) -> set[ModelKey]:
    """Fold one fact; the keys whose decisions may change."""
    match fact:
        case Event():
            return fold_event(view, fact, at)
        case Snapshot(types=types, events=events):
            return fold_snapshot(view, types, events, at)
        case KubeDelta():
            return fold_delta(view, fact, at)
        case Relisted(plural=plural, objects=objects):
            return fold_list(view, plural, objects, at)
        case Outcome(key=key, refusal=refusal) if refusal is not None:
            return fold_refusal(view, key, refusal, at)
        case Outcome(key=key, effect=effect, result=result):
            return fold_done(view, key, effect, result, at)
