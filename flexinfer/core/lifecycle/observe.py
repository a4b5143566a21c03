"""What the cluster shows of one model: its pods, who serves, and what is wrong in words a person can act on."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flexinfer.contracts.events import Endpoint
from flexinfer.contracts.kubernetes import Object
from flexinfer.core.hardware.device_class import cpu_class, device_class
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.engines import CPU
from flexinfer.core.lifecycle.fetching.failures import CONTAINER as FETCH_CONTAINER
from flexinfer.core.lifecycle.fetching.failures import decode
from flexinfer.core.lifecycle.mounting import unmounted
from flexinfer.core.lifecycle.objects import condition, containers, deleting, holds, labels, name_of, status
from flexinfer.core.lifecycle.pods import Placement, port_of
from flexinfer.core.lifecycle.view import BENCH_KEY, LifecycleView

CRASHES = 3  # restarts after which an engine counts as broken even between two back-offs


@dataclass(frozen=True, slots=True)
class Trouble:
    """A CamelCase reason and a sentence. ``final``: waiting will not help, the user must change something."""

    reason: str
    message: str
    final: bool


@dataclass(frozen=True, slots=True)
class Observation:
    """``pods`` are the engine pods that count as replicas, ``endpoints`` those that serve."""

    pods: tuple[Object, ...]
    endpoints: tuple[Endpoint, ...]
    trouble: Trouble | None
    scheduled: tuple[Object, ...]

    @property
    def ready(self) -> int:
        """Replicas that take new requests."""
        return sum(1 for endpoint in self.endpoints if endpoint.state == "ready")


def observe(
    view: LifecycleView, wanted: Description, place: Placement, deployment: Object | None, speeds: dict[str, float]
) -> Observation:
    """The engine pods of a model. ``speeds``: measured tokens per second by device class."""
    everything = [pod for pod in view.pods_of(wanted.uid) if BENCH_KEY not in labels(pod)]
    everything.sort(key=name_of)
    live = tuple(pod for pod in everything if status(pod).get("phase") not in {"Succeeded", "Failed"})
    endpoints = tuple(
        _endpoint(view, wanted, place, pod, speeds) for pod in live if holds(pod, "Ready") and status(pod).get("podIP")
    )
    staying = tuple(pod for pod in live if not deleting(pod))
    scheduled = tuple(pod for pod in staying if (pod.get("spec") or {}).get("nodeName"))
    waiting = [Trouble(*why, final=False) for pod in staying if (why := unmounted(view, wanted, pod))]
    return Observation(staying, endpoints, find_trouble(staying, deployment, waiting), scheduled)


def _endpoint(
    view: LifecycleView, wanted: Description, place: Placement, pod: Object, speeds: dict[str, float]
) -> Endpoint:
    node = str((pod.get("spec") or {}).get("nodeName") or "")
    cls = class_of(view, wanted, place, node)
    return Endpoint(
        url=f"http://{status(pod)['podIP']}:{port_of(wanted)}",
        pod=name_of(pod)[1],
        state="draining" if deleting(pod) else "ready",
        node=node or None,
        device_class=cls or None,
        tokens_per_second=speeds.get(cls),
    )


def class_of(view: LifecycleView, wanted: Description, place: Placement, node: str) -> str:
    """Device class of a replica on a node; while the bus does not tell of the node, what the status said before."""
    state = view.models.get(wanted.key)
    if view.hardware(node) is not None or state is None:
        return class_on(view, node, place)
    told = (e for e in status(state.object).get("endpoints") or [] if e.get("node") == node)
    return next((str(entry.get("deviceClass") or "") for entry in told), "")


def class_on(view: LifecycleView, node: str, place: Placement) -> str:
    """Device class a replica has on a node; on a node of several classes the one with the most devices."""
    hardware = view.hardware(node)
    if hardware is None:
        return ""
    if place.vendor == CPU or not place.count:
        return cpu_class(hardware.cpu)
    found: dict[str, int] = {}
    for device in hardware.devices:
        if device.counted and device.vendor == place.vendor:
            name = device_class(device, place.count)
            found[name] = found.get(name, 0) + 1
    return max(sorted(found), key=lambda name: found[name], default="")


def find_trouble(pods: Iterable[Object], deployment: Object | None, waiting: Iterable[Trouble] = ()) -> Trouble | None:
    """The worst that is visible: what the user must change comes before what may pass. ``waiting``: what pods do not
    say themselves."""
    found = [*(trouble for trouble in map(_pod_trouble, pods) if trouble), *waiting]
    if deployment is not None:
        refused = condition(deployment, "ReplicaFailure")
        if refused and refused.get("status") == "True":
            found.append(_creation_trouble(str(refused.get("message", ""))))
    return min(found, key=lambda trouble: not trouble.final, default=None)


def _creation_trouble(message: str) -> Trouble:
    if "exceeded quota" in message:
        return Trouble(
            "QuotaExceeded", f"pods are refused by a quota: {message}; raise it or free some of it", final=False
        )
    return Trouble("PodsRefused", f"pods cannot be created: {message}", final=False)


def _pod_trouble(pod: Object) -> Trouble | None:
    for name, entry in containers(pod):
        found = _container_trouble(name, entry, name_of(pod)[1])
        if found:
            return found
    scheduled = condition(pod, "PodScheduled")
    if scheduled and scheduled.get("status") == "False":
        return _unplaced(str(scheduled.get("message") or "no node takes the pod"))
    return None


def _unplaced(message: str) -> Trouble:
    missing = re.search(r'persistentvolumeclaim "([^"]+)" not found', message)
    if missing:
        text = f"claim {missing[1]} does not exist; create it, or name another in spec.source or spec.cache.pvcName"
        return Trouble("ClaimMissing", text, final=False)
    return Trouble("Unschedulable", message, final=False)


_PULL = {"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}


def _fetch_trouble(entry: dict[str, Any]) -> Trouble | None:
    """What the step that fetches weights said last, until it has succeeded."""
    state = entry.get("state") or {}
    now = state.get("terminated") or {}
    last = now or (entry.get("lastState") or {}).get("terminated") or {}
    if entry.get("ready") or (now and now.get("exitCode") == 0):
        return None
    failure = decode(str(last.get("message") or ""))
    if failure is None:
        return None
    return Trouble(failure.reason, f"{failure.message}; {failure.remedy}", failure.final)


def _container_trouble(name: str, entry: dict[str, Any], pod: str) -> Trouble | None:
    if name.startswith(FETCH_CONTAINER):
        failed = _fetch_trouble(entry)
        if failed:
            return failed
    waiting = (entry.get("state") or {}).get("waiting") or {}
    reason = str(waiting.get("reason") or "")
    detail = str(waiting.get("message") or reason)
    if reason in _PULL:
        # The first failure may be a hiccup of the registry; the back-off says that it was tried again.
        text = f"image {entry.get('image')} cannot be pulled: {detail}; check spec.image and its credentials"
        return Trouble("ImagePullFailed", text, final=reason != "ErrImagePull")
    if reason in _CONFIG:
        text = f"container {name} cannot be created: {detail}; check spec.env and what it refers to"
        return Trouble("ContainerConfigError", text, final=True)
    ended = (entry.get("lastState") or {}).get("terminated") or (entry.get("state") or {}).get("terminated") or {}
    broken = reason == "CrashLoopBackOff" or int(entry.get("restartCount") or 0) >= CRASHES
    if entry.get("ready") or not broken or not ended:
        return None
    if ended.get("reason") == "OOMKilled":
        text = f"container {name} needs more memory than its limit; raise spec.resources.limits.memory"
        return Trouble("OutOfMemory", text, final=True)
    said = str(ended.get("message") or "").strip().rpartition("\n")[2]
    text = f"container {name} ends with exit code {ended.get('exitCode')}" + (f" ({said})" if said else "")
    return Trouble("CrashLoop", f"{text}; see kubectl logs {pod} -c {name} --previous", final=True)
