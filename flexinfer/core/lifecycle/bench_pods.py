"""Pods of a benchmark, and the running replica that may stand in for them."""

from flexinfer.contracts.events import Endpoint
from flexinfer.contracts.kubernetes import Object
from flexinfer.contracts.labels import POD_BENCHMARK_KEY
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.fold_results import BENCH_CONTAINER, outdated_since
from flexinfer.core.lifecycle.job import IN_PLACE, Run
from flexinfer.core.lifecycle.objects import annotations, condition, deleting, holds, labels, name_of, status
from flexinfer.core.lifecycle.pods import CONTAINER, port_of
from flexinfer.core.lifecycle.view import BENCH_KEY, LifecycleView


def bench_pods(view: LifecycleView, wanted: Description, run: Run) -> list[Object]:
    """Pods of one run that are not on their way out."""
    found = (pod for pod in view.pods_of(wanted.uid) if labels(pod).get(BENCH_KEY) == run.key)
    return [pod for pod in found if not deleting(pod)]


def unplaced(pods: list[Object]) -> bool:
    """There are pods, and none has found a node."""
    return bool(pods) and all((condition(pod, "PodScheduled") or {}).get("status") == "False" for pod in pods)


def engine_ready(pod: Object) -> bool:
    """The engine answers and the bench process has not ended."""
    if deleting(pod) or status(pod).get("phase") in {"Succeeded", "Failed"} or not status(pod).get("podIP"):
        return False
    for entry in status(pod).get("containerStatuses") or []:
        if entry.get("name") == BENCH_CONTAINER and (entry.get("state") or {}).get("terminated"):
            return False
    engines = [e for e in status(pod).get("initContainerStatuses") or [] if e.get("name") == CONTAINER]
    return any(entry.get("started") and entry.get("ready") for entry in engines)


def running_replica(view: LifecycleView, wanted: Description, run: Run) -> str:
    """A replica of the very version and class the run is about: its device may be the only one. Empty if none."""
    for pod in sorted(view.pods_of(wanted.uid), key=name_of):
        if BENCH_KEY in labels(pod) or deleting(pod) or not holds(pod, "Ready"):
            continue
        spec = pod.get("spec") or {}
        same = annotations(pod).get(POD_BENCHMARK_KEY) == wanted.workload and any(
            container.get("image") == run.image for container in spec.get("containers") or []
        )
        if same and spec.get("nodeName") in run.option.nodes:
            return name_of(pod)[1]
    return ""


def instances_of(view: LifecycleView, wanted: Description, run: Run, job: Object | None) -> tuple[Endpoint, ...]:
    """What the hidden alias of a run points at: its own engine, or the replica that is measured in place."""
    measured = run.key in view.fleet.results and outdated_since(view, run.key) is None
    if job is None or deleting(job) or measured:
        return ()
    target = annotations(job).get(IN_PLACE, "")
    started = [pod for pod in bench_pods(view, wanted, run) if engine_ready(pod)]
    running = [
        pod
        for pod in view.pods_of(wanted.uid)
        if target and name_of(pod)[1] == target and holds(pod, "Ready") and not deleting(pod)
    ]
    return tuple(
        Endpoint(
            url=f"http://{status(pod)['podIP']}:{port_of(wanted)}",
            pod=name_of(pod)[1],
            node=str((pod.get("spec") or {}).get("nodeName") or "") or None,
            device_class=run.option.device_class,
        )
        for pod in sorted([*started, *running], key=name_of)
    )
