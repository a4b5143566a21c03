"""What one event costs the manager to fold and to decide upon, by how many models there are. No I/O."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import (
    BenchCompleted,
    Cpu,
    Device,
    DeviceTelemetry,
    EngineTelemetry,
    EventData,
    ModelDemand,
    ModelLoad,
    NodeHardware,
    NodeTelemetry,
)
from flexinfer.contracts.kubernetes import MODELDEPLOYMENTS, KubeDelta, Object
from flexinfer.core.effects import Apply, Note, Patch, Publish
from flexinfer.core.lifecycle.description import ModelKey
from flexinfer.core.lifecycle.fold import fold_delta, fold_done, fold_list
from flexinfer.core.lifecycle.fold_events import fold_event, fold_snapshot
from flexinfer.core.lifecycle.plan import NEEDED, plan
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.lifecycle.view import LifecycleView

REPEATS = 400
NOW = 1_700_000_000.0
SPEC: Object = {
    "backend": "llamacpp", "model": "file:///models/tiny-1b.gguf", "image": "engine:1",
    "gpu": {"vendor": "nvidia", "count": 1}, "benchmark": {"enabled": False},
}  # fmt: skip


class Paper:
    """A view with ``models`` running models on a fleet of a fixed size, and nothing left to do."""

    def __init__(self, models: int, nodes: int = 50) -> None:
        self.view = LifecycleView(Policy(), "boot")
        self.view.bus_up = True
        self.mint = EventMint.start("agent", "n", "b", lambda: self.now)
        self.now = NOW
        self._numbers = iter(range(1, 1_000_000_000))
        fold_snapshot(self.view, (NodeHardware, BenchCompleted, ModelLoad), (), NOW)
        for number in range(nodes):
            self.event(hardware(f"node-{number}"))
        for plural in NEEDED | {"persistentvolumeclaims"}:
            fold_list(self.view, plural, [node(f"node-{n}") for n in range(nodes)] if plural == "nodes" else [], NOW)
        for number in range(models):
            self.start(f"m{number:04d}", f"node-{number % nodes}")

    def event(self, data: EventData) -> set[ModelKey]:
        return fold_event(self.view, self.mint.mint(data), self.now)

    def decide(self, keys: set[ModelKey]) -> None:
        for key in keys:
            plan(self.view, key, self.now)

    def start(self, name: str, where: str) -> None:
        """Through the manager's own decisions to Running."""
        key = ModelKey(MODELDEPLOYMENTS.kind, "default", name)
        meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z"}  # fmt: skip
        self._put("modeldeployments", {"apiVersion": MODELDEPLOYMENTS.api_version, "kind": MODELDEPLOYMENTS.kind,
                                       "metadata": meta, "spec": SPEC})  # fmt: skip
        for _ in range(10):
            decision = plan(self.view, key, self.now)
            if not decision.effects:
                break
            for effect in decision.effects:
                fold_done(self.view, key, effect, self._written(key, effect), self.now)
            deployment = self.view.deployments.get(("default", name))
            if deployment is not None and not deployment.get("status"):
                self._run(deployment, where)

    def _written(self, key: ModelKey, effect: object) -> Object | None:
        if isinstance(effect, Publish | Note):
            return None
        if isinstance(effect, Apply):
            body = effect.body
            return {**body, "metadata": {**body["metadata"], "uid": f"{effect.resource.plural}-{key.name}",
                                         "generation": 1, "resourceVersion": str(next(self._numbers))}}  # fmt: skip
        assert isinstance(effect, Patch), effect
        found = self.view.models[key].object
        meta = {**found["metadata"], **effect.body.get("metadata", {}), "resourceVersion": str(next(self._numbers))}
        return {**found, "metadata": meta, **({"status": effect.body["status"]} if effect.subresource else {})}

    def _run(self, deployment: Object, where: str) -> None:
        name = deployment["metadata"]["name"]
        ready = {"type": "Ready", "status": "True"}
        template = deployment["spec"]["template"]
        self._put("pods", {
            "metadata": {**template["metadata"], "name": f"{name}-pod", "namespace": "default", "uid": f"pod-{name}"},
            "spec": {**template["spec"], "nodeName": where},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [ready]},
        })  # fmt: skip
        status = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "conditions": [
            {"type": "Available", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}  # fmt: skip
        self._put("deployments", {**deployment, "status": status})

    def _put(self, plural: str, obj: Object) -> None:
        meta = {**obj["metadata"], "resourceVersion": str(next(self._numbers))}
        fold_delta(self.view, KubeDelta(plural=plural, action="MODIFIED", object={**obj, "metadata": meta}), self.now)


def hardware(name: str) -> NodeHardware:
    devices = tuple(
        Device(index=n, uuid=f"{name}-{n}", vendor="NVIDIA", product="NVIDIA GeForce RTX 4090", arch="sm_89",
               memory_mib=24564)
        for n in range(8)
    )  # fmt: skip
    return NodeHardware(node=name, devices=devices, cpu=Cpu(model="X", threads=64, memory_mib=512_000))


def node(name: str) -> Object:
    return {"metadata": {"name": name, "uid": name, "labels": {}}, "spec": {}}


def telemetry(number: int) -> NodeTelemetry:
    device = DeviceTelemetry(index=0, uuid="node-1-0", util_percent=float(number % 90), memory_free_mib=20000)
    engine = EngineTelemetry(pod="m0001-pod", namespace="default", requests_running=1, requests_waiting=0)
    return NodeTelemetry(node="node-1", interval_seconds=2.0, devices=(device,), engines=(engine,))


KINDS: dict[str, Callable[[int], EventData]] = {
    "telemetry": telemetry,
    "hardware heartbeat": lambda _number: hardware("node-1"),
    "load": lambda n: ModelLoad(namespace="default", model="m0001", proxy="p", outstanding=n % 2),
    "demand": lambda n: ModelDemand(namespace="default", model="m0001", proxy="p", waiting=n % 2),
    "result of another model": lambda n: BenchCompleted(
        key="other-0123456789ab", namespace="default", model="other", workload="other", source="s", backend="vllm",
        device_class="c", tokens_per_second=10.0 + n % 7, iterations=1, duration_seconds=1.0,
    ),
}  # fmt: skip


def event_costs(sizes: Sequence[int], filled: Mapping[int, Paper] | None = None) -> dict[str, Any]:
    """Median microseconds by kind of event and number of models, in turn so that all see the same machine.

    ``filled``: the views, if they are at hand.
    """
    papers = filled or {models: Paper(models) for models in sizes}
    gc.collect()
    gc.freeze()
    found: dict[str, Any] = {}
    for kind, make in KINDS.items():
        times: dict[int, list[float]] = {models: [] for models in sizes}
        for number in range(REPEATS):
            for models, paper in papers.items():
                paper.now += 1.0
                event = paper.mint.mint(make(number))
                began = time.process_time()
                paper.decide(fold_event(paper.view, event, paper.now))
                times[models].append((time.process_time() - began) * 1e6)
        # Some kinds alternate between two values, which cost differently: two in a row count as one.
        pairs = {
            models: [sum(two) / 2 for two in zip(*[iter(taken)] * 2, strict=True)] for models, taken in times.items()
        }
        medians = {str(models): round(statistics.median(taken), 1) for models, taken in pairs.items()}
        low, high = (medians[str(models)] for models in (min(sizes), max(sizes)))
        found[kind] = {**medians, "ratio": round(high / low, 2)}
    gc.unfreeze()
    return found


if __name__ == "__main__":
    for name, cost in event_costs((10, 1000)).items():
        print(f"{name}: {cost}")
