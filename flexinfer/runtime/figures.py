"""Metrics about models that short-lived or foreign processes cannot export themselves."""

from typing import Any

from flexinfer.contracts.kubernetes import PODS, KubeDelta, Object
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.objects import condition, deleting, labels, meta, name_of, parse_time
from flexinfer.core.lifecycle.view import BENCH_KEY, OWNER_UID, LifecycleView
from flexinfer.ports import Relisted
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


def _renew(gauge: Any, before: dict[tuple[str, ...], float], now: dict[tuple[str, ...], float]) -> None:
    for series in before.keys() - now.keys():
        metrics.forget(gauge, *series)
    for series, value in now.items():
        gauge.labels(*series).set(value)


class Figures:
    """Keeps series of what exists and drops those of what is gone."""

    def __init__(self) -> None:
        self._loads: dict[tuple[str, str], tuple[str, str]] = {}
        self._speeds: dict[tuple[str, ...], float] = {}
        self._durations: dict[tuple[str, ...], float] = {}
        self._seen: tuple[int, int] = (-1, -1)

    def note(self, view: LifecycleView, fact: Fact) -> None:
        """Called after each fold."""
        state = (view.fleet.version, len(view.by_name))
        if state != self._seen:
            self._seen = state
            self._results(view)
        if isinstance(fact, Relisted) and fact.plural == PODS.plural:
            for pod in fact.objects:
                self._pod(view, pod, gone=False)
        elif isinstance(fact, KubeDelta) and fact.plural == PODS.plural:
            self._pod(view, fact.object, gone=fact.action == "DELETED")

    def _results(self, view: LifecycleView) -> None:
        """Results outlive their models; their series do not."""
        known = [r for r in view.fleet.results.values() if (r.namespace, r.model) in view.by_name]
        speeds: dict[tuple[str, ...], float] = {(r.model, r.backend, r.node or ""): r.tokens_per_second for r in known}
        durations: dict[tuple[str, ...], float] = {(r.model, r.device_class): r.duration_seconds for r in known}
        _renew(_SPEED, self._speeds, speeds)
        _renew(_DURATION, self._durations, durations)
        self._speeds, self._durations = speeds, durations

    def _pod(self, view: LifecycleView, pod: Object, *, gone: bool) -> None:
        name = name_of(pod)
        if gone or deleting(pod):
            series = self._loads.pop(name, None)
            if series and series not in self._loads.values():
                metrics.forget(_LOAD, *series)
            return
        key = view.by_uid.get(labels(pod).get(OWNER_UID, "")) if BENCH_KEY not in labels(pod) else None
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
