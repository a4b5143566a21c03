"""Pod status as a kubelet writes it, computed from container records. Pure: the same records give the same status."""

from collections.abc import Sequence
from dataclasses import dataclass

from flexinfer.adapters.kube.times import time as rfc3339
from flexinfer.contracts.kubernetes import Object
from flexinfer.local.runner.records import Ended, Record, Running, Waiting


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a pod failed as a whole, beyond its containers."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Course:
    """Where a pod stands. ``over``: nothing of it will run again. ``ip`` is empty before it has an address."""

    ip: str
    host_ip: str
    started_at: float
    over: bool = False
    verdict: Verdict | None = None


def phase_of(records: Sequence[Record], course: Course) -> str:
    """Pending, Running, Succeeded or Failed, by the kubelet's rules."""
    mains = [record for record in records if record.role == "main"]
    if course.verdict:
        return "Failed"
    if course.over:
        return "Succeeded" if all(record.succeeded for record in mains) else "Failed"
    if not initialized(records):
        return "Pending"
    if any(isinstance(record.state, Waiting) and record.last is None for record in mains):
        return "Pending"
    return "Running"


def initialized(records: Sequence[Record]) -> bool:
    """Every init container succeeded and every sidecar has started once."""
    return all(
        record.succeeded if record.role == "init" else record.started or record.last is not None
        for record in records
        if record.role != "main"
    )


def pod_status(
    pod: Object, records: Sequence[Record], course: Course, now: float, sent: Object | None = None
) -> Object:
    """The status to write. ``now`` stamps conditions that changed since ``sent``; the others keep their time.

    ``sent``: the status written last, which the pod as seen may lag behind.
    """
    phase = phase_of(records, course)
    status: Object = {
        "phase": phase,
        "conditions": _conditions(pod, records, course, phase, _before(pod, sent), now),
        "hostIP": course.host_ip,
        "hostIPs": [{"ip": course.host_ip}],
        "startTime": rfc3339(course.started_at),
        "containerStatuses": [_container(record) for record in records if record.role == "main"],
    }
    if course.ip:
        status |= {"podIP": course.ip, "podIPs": [{"ip": course.ip}]}
    inits = [_container(record) for record in records if record.role != "main"]
    if inits:
        status["initContainerStatuses"] = inits
    if course.verdict:
        status |= {"reason": course.verdict.reason, "message": course.verdict.message}
    return status


def _before(pod: Object, sent: Object | None) -> dict[str, Object]:
    entries = [*((pod.get("status") or {}).get("conditions") or ()), *((sent or {}).get("conditions") or ())]
    return {str(entry.get("type")): entry for entry in entries}


def _conditions(
    pod: Object, records: Sequence[Record], course: Course, phase: str, before: dict[str, Object], now: float
) -> list[Object]:
    unready = [record.name for record in records if record.role != "init" and not record.ready]
    waiting = [record.name for record in records if record.role == "init" and not record.succeeded]
    waiting += [record.name for record in records if record.role == "sidecar" and not record.started]
    gates = [
        gate["conditionType"]
        for gate in pod["spec"].get("readinessGates") or ()
        if (before.get(gate["conditionType"]) or {}).get("status") != "True"
    ]
    done = phase in {"Succeeded", "Failed"}
    reason = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")
    text = "" if done else f"containers with unready status: [{' '.join(unready)}]"
    init_text = f"containers with incomplete status: [{' '.join(waiting)}]"
    found = [
        _condition("PodReadyToStartContainers", bool(course.ip) and not done),
        _condition("Initialized", phase == "Succeeded" or initialized(records), "ContainersNotInitialized", init_text),
    ]
    if gates and not unready and not done:
        found.append(_condition("Ready", False, "ReadinessGatesNotReady", f"waiting for {', '.join(gates)}"))  # noqa: FBT003 - a condition is true or false
    else:
        found.append(_condition("Ready", not unready and not done, reason, text))
    found += [
        _condition("ContainersReady", not unready and not done, reason, text),
        _condition("PodScheduled", True),  # noqa: FBT003 - reads as the condition's own True
    ]
    for entry in found:
        old = before.get(entry["type"]) or {}
        same = old.get("status") == entry["status"] and old.get("lastTransitionTime")
        entry["lastTransitionTime"] = old["lastTransitionTime"] if same else rfc3339(now)
    return found


def _condition(kind: str, holds: bool, reason: str = "", message: str = "") -> Object:  # noqa: FBT001 - a condition is true or false
    # Explicit nulls: the patch that writes this would keep the old reason and message otherwise.
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": None if holds else reason or None,
        "message": None if holds else message or None,
    }


def _container(record: Record) -> Object:
    running = isinstance(record.state, Running)
    status: Object = {
        "name": record.name,
        "image": str(record.spec.get("image") or ""),
        "imageID": "",
        "restartCount": record.restarts,
        "ready": record.succeeded if record.role == "init" else record.ready,
        "started": record.started if record.role != "init" else running,
        "state": _state(record.state),
        "lastState": _state(record.last) if record.last else {},
    }
    if record.container_id:
        status["containerID"] = record.container_id
    return status


def _state(state: Waiting | Running | Ended) -> Object:
    match state:
        case Waiting(reason=reason, message=message):
            return {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        case Running(started_at=started_at):
            return {"running": {"startedAt": rfc3339(started_at)}}
        case Ended():
            ended: Object = {
                "exitCode": state.exit_code,
                "reason": state.reason,
                "startedAt": rfc3339(state.started_at),
                "finishedAt": rfc3339(state.finished_at),
            }
            if state.signal:
                ended["signal"] = state.signal
            if state.message:
                ended["message"] = state.message
            if state.container_id:
                ended["containerID"] = state.container_id
            return {"terminated": ended}
