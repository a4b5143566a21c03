"""Tells of engines that serve slower than they were measured: metric, Kubernetes Event, bus event.

Every manager follows, so that the next leader knows how long an engine has been slow; only the leader speaks.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from flexinfer.contracts.events import BenchCompleted, BenchDrifted, EventData, NodeHardware, NodeTelemetry
from flexinfer.contracts.kubernetes import PODS, Object
from flexinfer.contracts.labels import POD_BENCHMARK_KEY, POD_MODEL
from flexinfer.core.benchmark.watch import DriftWatch, Served
from flexinfer.core.effects import Effect, Note, Publish
from flexinfer.core.lifecycle.description import ModelKey
from flexinfer.ports import BusFact, KubeFact, Relisted, Snapshot
from flexinfer.telemetry import metrics

FOLLOWED: tuple[type[EventData], ...] = (NodeHardware, NodeTelemetry, BenchCompleted)
DRIFT = ModelKey("", "", "drift")  # what the interpreter's log calls our effects
MODEL_LABEL = "app.kubernetes.io/instance"
_KEPT = 1000

_RATIO = metrics.gauge(
    "flexinfer_benchmark_drift_ratio",
    "Tokens/s an engine gives / tokens/s it was measured with at the same number of requests.",
    ("namespace", "model", "node"),
)


class DriftWatcher:
    """Two sinks, and ``run`` for the leader. ``perform`` carries out one effect."""

    def __init__(self, perform: Callable[[Effect], Awaitable[object]]) -> None:
        self.watch = DriftWatch()
        self._perform = perform
        self._changes: deque[BenchDrifted] = deque(maxlen=_KEPT)
        self._news = asyncio.Event()
        self._leading = False
        self._series: dict[str, frozenset[tuple[str, str]]] = {}  # node → (namespace, model)

    def bus(self, fact: BusFact) -> None:
        """Sink for FOLLOWED."""
        for event in fact.events if isinstance(fact, Snapshot) else (fact,):
            changes = self.watch.fold(event)
            if isinstance(event.data, NodeTelemetry):
                self._export(event.data.node)
            if changes and self._leading:
                self._changes.extend(changes)
                self._news.set()

    def kube(self, fact: KubeFact) -> None:
        """Sink for Pods."""
        if isinstance(fact, Relisted):
            self.watch.pods = {}
            for pod in fact.objects:
                self._pod(pod)
        elif fact.action == "DELETED":
            self.watch.pods.pop((fact.namespace, fact.name), None)
        else:
            self._pod(fact.object)

    def _pod(self, pod: Object) -> None:
        meta = pod.get("metadata", {})
        notes = meta.get("annotations") or {}
        workload = notes.get(POD_BENCHMARK_KEY, "")
        if workload:
            model = (meta.get("labels") or {}).get(MODEL_LABEL) or notes.get(POD_MODEL) or meta.get("name", "")
            self.watch.pods[str(meta.get("namespace", "")), str(meta.get("name", ""))] = Served(workload, model)

    def _export(self, node: str) -> None:
        ratios = self.watch.ratios(node)
        for (namespace, model), ratio in ratios.items():
            _RATIO.labels(namespace=namespace, model=model, node=node).set(ratio)
        for namespace, model in self._series.get(node, frozenset()) - ratios.keys():
            metrics.forget(_RATIO, namespace, model, node)
        self._series[node] = frozenset(ratios)
        if not ratios:
            del self._series[node]

    async def run(self) -> None:
        """Speak until cancelled."""
        self._leading = True
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while self._changes:
                    for effect in effects(self._changes.popleft()):
                        await self._perform(effect)
        finally:
            self._leading = False


def effects(change: BenchDrifted) -> tuple[Effect, ...]:
    """What is said about one change: to everybody on the bus, and to people on the pod."""
    pod = {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {"namespace": change.namespace, "name": change.pod},
    }
    if change.drifted:
        text = (
            f"{change.tokens_per_second:.1f} tokens/s on node {change.node}, {change.ratio:.0%} of the measured "
            f"{change.expected_tokens_per_second:.1f} for 5 minutes"
        )
        return Publish(change), Note(pod, "Warning", "BenchmarkDrift", text)
    return Publish(change), Note(
        pod, "Normal", "BenchmarkDriftOver", f"as fast as measured again on node {change.node}"
    )
