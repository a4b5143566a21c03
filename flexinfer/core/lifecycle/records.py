"""The record of results: ConfigMaps that outlive the bus, the manager and the models."""

from msgspec.structs import replace

from flexinfer.contracts.events import ModelEndpoint
from flexinfer.contracts.kubernetes import CONFIGMAPS, Object
from flexinfer.contracts.labels import BENCHMARK_APP_LABEL, BENCHMARK_CONFIGMAP
from flexinfer.core.effects import Create, Decision, Effect, Patch, Publish
from flexinfer.core.lifecycle.fold_results import record_of
from flexinfer.core.lifecycle.naming import MANAGED_BY
from flexinfer.core.lifecycle.objects import deleting
from flexinfer.core.lifecycle.view import LifecycleView

SHARD_BYTES = 900_000  # a ConfigMap may hold 1 MiB, and other tools add annotations


def plan_records(view: LifecycleView) -> Decision:
    """Write what the record lacks, publish what the bus lacks, retract what belongs to nothing any more."""
    return Decision((*_record(view), *_republish(view), *_orphans(view)))


def _record(view: LifecycleView) -> list[Effect]:
    sizes: dict[str, int] = {}
    fresh: dict[str, dict[str, str]] = {}
    for key in sorted(view.unrecorded):
        text = record_of(view, key)
        name = next((name for name, shard in view.records.items() if key in (shard.get("data") or {})), "")
        if name and view.records[name]["data"][key] == text:
            continue
        if not name:
            sizes = sizes or {name: _size(shard) for name, shard in view.records.items()}
            name = _roomy(sizes, len(key) + len(text))
            sizes[name] = sizes.get(name, 0) + len(key) + len(text)
        fresh.setdefault(name, {})[key] = text
    return [_write(view, name, data) for name, data in fresh.items()]


def _size(shard: Object) -> int:
    return sum(len(key) + len(text) for key, text in (shard.get("data") or {}).items())


def _roomy(sizes: dict[str, int], more: int) -> str:
    number = 1
    while True:
        name = BENCHMARK_CONFIGMAP if number == 1 else f"{BENCHMARK_CONFIGMAP}-{number}"
        if sizes.get(name, 0) + more <= SHARD_BYTES:
            return name
        number += 1


def _write(view: LifecycleView, name: str, data: dict[str, str]) -> Effect:
    if name in view.records and not deleting(view.records[name]):
        return Patch(CONFIGMAPS, view.policy.namespace, name, {"data": data})
    labels = {
        "app": BENCHMARK_APP_LABEL,
        "app.kubernetes.io/managed-by": MANAGED_BY,
        "app.kubernetes.io/part-of": "flexinfer",
    }
    meta = {"name": name, "namespace": view.policy.namespace, "labels": labels}
    return Create(CONFIGMAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})


def _republish(view: LifecycleView) -> list[Effect]:
    """Results the bus does not hold: it was wiped, or never heard of them."""
    if not (view.fleet_seen and view.bus_up):
        return []
    return [
        Publish(view.fleet.results[key], view.measured_at.get(key))
        for key in sorted(view.fleet.results.keys() - view.on_bus.keys())
    ]


def _orphans(view: LifecycleView) -> list[Effect]:
    """Endpoints and phases an earlier manager left behind for objects and Jobs that are gone."""
    if not {"models", "modeldeployments", "jobs"} <= view.listed:
        return []
    effects: list[Effect] = []
    for name in sorted(view.suspects):
        event, phase = view.endpoints.get(name), view.phases.get(name)
        if event is not None and name not in (view.jobs if event.hidden else view.by_name):
            gone = ModelEndpoint(
                namespace=name[0], model=name[1], backend=event.backend, hidden=event.hidden, gone=True
            )
            effects.append(Publish(gone))
        if phase is not None and name not in view.by_name:
            effects.append(Publish(replace(phase, gone=True)))
    return effects
