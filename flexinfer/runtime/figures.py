"""Metrics about models that short-lived or foreign processes cannot export themselves."""

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import BenchCompleted
from flexinfer.contracts.kubernetes import KubeDelta
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.objects import condition, deleting, labels, meta, name_of, parse_time
from flexinfer.core.lifecycle.view import BENCH_KEY, OWNER_UID, LifecycleView
from flexinfer.runtime.lifecycle import Fact
from flexinfer.telemetry import metrics

_SPEED = metrics.gauge(
    "flexinfer_tokens_per_second",
    "Measured speed of a model on the node that measured it.",
    ("model", "backend", "node"),
)
_DURATION = metrics.gauge(
    "flexinfer_benchmark_duration_seconds", "How long the last benchmark took.", ("model", "device_class")
)
_LOAD = metrics.gauge(
    "flexinfer_model_load_seconds", "Time from a pod being scheduled to its engine being ready.", ("model", "node")
)


class Figures:
    """Keeps series of what exists and drops those of what is gone."""

    def __init__(self) -> None:
        self._loads: dict[tuple[str, str], tuple[str, str]] = {}

    def note(self, view: LifecycleView, fact: Fact) -> None:
        """Called after each fold."""
        if isinstance(fact, Event) and isinstance(fact.data, BenchCompleted):
            self._result(fact.data)
        elif isinstance(fact, KubeDelta) and fact.plural == "pods" and BENCH_KEY not in labels(fact.object):
            self._pod(view, fact)

    @staticmethod
    def _result(result: BenchCompleted) -> None:
        _SPEED.labels(model=result.model, backend=result.backend, node=result.node or "").set(result.tokens_per_second)
        _DURATION.labels(model=result.model, device_class=result.device_class).set(result.duration_seconds)

    def _pod(self, view: LifecycleView, fact: KubeDelta) -> None:
        pod, name = fact.object, name_of(fact.object)
        if fact.action == "DELETED" or deleting(pod):
            series = self._loads.pop(name, None)
            if series and series not in self._loads.values():
                metrics.forget(_LOAD, *series)
            return
        key = view.by_uid.get(labels(pod).get(OWNER_UID, ""))
        ready = condition(pod, "Ready")
        node = str((pod.get("spec") or {}).get("nodeName") or "")
        if key is None or name in self._loads or not node or not ready or ready.get("status") != "True":
            return
        began = parse_time((condition(pod, "PodScheduled") or {}).get("lastTransitionTime"))
        began = began or parse_time(meta(pod).get("creationTimestamp"))
        ended = parse_time(ready.get("lastTransitionTime"))
        state = view.models.get(key)
        if began is None or ended is None or state is None or not isinstance(state.wanted, Description):
            return
        self._loads[name] = (key.name, node)
        _LOAD.labels(model=key.name, node=node).set(max(ended - began, 0.0))
