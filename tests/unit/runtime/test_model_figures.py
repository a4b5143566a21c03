"""Series of models: there while the model is, gone with it, and back after a restart."""

from typing import Any

import pytest

from flexinfer.contracts.events import BenchCompleted
from flexinfer.contracts.kubernetes import KubeDelta
from flexinfer.core.lifecycle.fold import fold_delta
from flexinfer.core.lifecycle.fold_results import put_result
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.lifecycle.view import OWNER_UID, LifecycleView
from flexinfer.runtime.figures import Figures
from flexinfer.telemetry import metrics

MODEL = {
    "kind": "ModelDeployment",
    "metadata": {"name": "fig", "namespace": "d", "uid": "u1"},
    "spec": {"backend": "llamacpp", "model": "hf://o/r"},
}
SERIES = {"model": "fig", "backend": "llamacpp", "node": "n1"}


def delta(plural: str, obj: Any, action: Any = "ADDED") -> KubeDelta:
    return KubeDelta(plural=plural, action=action, object=obj)


@pytest.fixture
def view() -> LifecycleView:
    view = LifecycleView(Policy())
    put_result(
        view,
        BenchCompleted(
            key="k", namespace="d", model="fig", workload="w", source="s", backend="llamacpp", device_class="c",
            tokens_per_second=12.5, iterations=1, duration_seconds=3.0, node="n1",
        ),
        1.0,
    )  # fmt: skip
    return view


def told(figures: Figures, view: LifecycleView, fact: KubeDelta) -> None:
    fold_delta(view, fact, 1.0)
    figures.note(view, fact)


def test_a_result_shows_while_its_model_exists(view: LifecycleView) -> None:
    figures = Figures()
    figures.note(view, delta("nodes", {"metadata": {"name": "n1"}}))
    assert metrics.value_of("flexinfer_tokens_per_second", SERIES) == 0.0

    told(figures, view, delta("modeldeployments", MODEL))
    assert metrics.value_of("flexinfer_tokens_per_second", SERIES) == 12.5
    series = {"model": "fig", "device_class": "c"}
    assert metrics.value_of("flexinfer_benchmark_duration_seconds", series) == 3.0

    told(figures, view, delta("modeldeployments", MODEL, "DELETED"))
    assert metrics.value_of("flexinfer_tokens_per_second", SERIES) == 0.0
    assert b'model="fig"' not in metrics.expose()


def test_load_seconds_from_scheduled_to_ready(view: LifecycleView) -> None:
    figures = Figures()
    told(figures, view, delta("modeldeployments", MODEL))
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:07Z"},
    ]
    pod = {
        "metadata": {"name": "p", "namespace": "d", "uid": "p1", "labels": {OWNER_UID: "u1"}},
        "spec": {"nodeName": "n1"},
        "status": {"conditions": conditions},
    }
    told(figures, view, delta("pods", pod))
    series = {"model": "fig", "node": "n1"}
    assert metrics.value_of("flexinfer_model_load_seconds", series) == 7.0

    told(figures, view, delta("pods", pod, "DELETED"))
    assert metrics.value_of("flexinfer_model_load_seconds", series) == 0.0
