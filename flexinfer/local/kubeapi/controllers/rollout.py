"""The arithmetic of a rollout and the status it leads to; no store, no clock."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flexinfer.local.kubeapi.controllers.podstate import condition, without_zeroes
from flexinfer.local.kubeapi.objects import Json, at, meta, seconds, set_condition, timestamp


def share(value: Any, total: int, *, up: bool) -> int:
    """An int-or-percent of ``total``."""
    if isinstance(value, int):
        return value
    part = int(str(value).rstrip("%")) * total / 100
    return math.ceil(part) if up else math.floor(part)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Replicas a set should have, and how many of its pods are available."""

    spec: int
    available: int


def next_sizes(wanted: int, surge: int, missing: int, current: Sizes, old: Sequence[Sizes]) -> list[int]:
    """Replicas to ask for now: the new set first, then the old ones in their order.

    Never more than ``wanted + surge`` pods in all, never fewer than ``wanted - missing`` available ones through us.
    """
    total = current.spec + sum(item.spec for item in old)
    grown = current.spec
    if current.spec > wanted:
        grown = wanted
    elif current.spec < wanted:
        grown = current.spec + max(0, min(wanted + surge - total, wanted - current.spec))
    total += grown - current.spec
    budget = total - (wanted - missing) - (grown - min(current.available, grown))
    sizes = [item.spec for item in old]
    for index, item in enumerate(old):  # pods that do not serve anyway
        if budget <= 0:
            break
        cut = min(item.spec - min(item.available, item.spec), budget)
        sizes[index] -= cut
        budget -= cut
    spare = min(current.available, grown) + sum(item.available for item in old) - (wanted - missing)
    spare = min(spare, budget)
    for index in range(len(sizes)):
        cut = max(0, min(sizes[index], spare))
        sizes[index] -= cut
        spare -= cut
    return [grown, *sizes]


def deployment_status(deployment: Json, sets: Sequence[Json], current: str, now: float) -> Json:
    """The whole status; ``current`` is the uid of the newest ReplicaSet."""
    wanted = at(deployment, "spec", "replicas") or 0
    totals = {name: _sum(sets, name) for name in ("replicas", "readyReplicas", "availableReplicas")}
    newest = [item for item in sets if meta(item)["uid"] == current]
    updated = _sum(newest, "replicas")
    missing = max(wanted - totals["availableReplicas"], 0)
    old = deployment.get("status") or {}
    status: Json = {
        "observedGeneration": meta(deployment)["generation"],
        **totals,
        "updatedReplicas": updated,
        "unavailableReplicas": missing,
        "collisionCount": old.get("collisionCount", 0),
    }
    conditions = list(old.get("conditions") or ())
    for wanted_condition in (
        _available(deployment, totals["availableReplicas"]),
        _progress(deployment, old, status, newest, now),
    ):
        if wanted_condition is not None:
            conditions = _set(conditions, wanted_condition, now)
    conditions = [entry for entry in conditions if entry["type"] != "ReplicaFailure"]
    failures = [failure for item in sets if (failure := condition(item, "ReplicaFailure")) is not None]
    if failures:
        conditions = _set(conditions, {**failures[0], "lastTransitionTime": None}, now)
    status["conditions"] = conditions
    return without_zeroes(status)


def _sum(sets: Sequence[Json], name: str) -> int:
    return sum(at(item, "status", name) or 0 for item in sets)


def _set(conditions: Sequence[Json], wanted: Json, now: float) -> list[Json]:
    before = next((entry for entry in conditions if entry["type"] == wanted["type"]), {})
    same = all(before.get(field) == wanted[field] for field in ("status", "reason", "message"))
    updated = before.get("lastUpdateTime") if same else None
    fields = {name: wanted[name] for name in ("type", "status", "reason", "message")}
    return set_condition(conditions, {**fields, "lastUpdateTime": updated or timestamp(now)}, now)


def _available(deployment: Json, available: int) -> Json:
    wanted = at(deployment, "spec", "replicas") or 0
    rolling = at(deployment, "spec", "strategy", "rollingUpdate") or {}
    missing = share(rolling.get("maxUnavailable", 0), wanted, up=False) if rolling else 0
    if available >= wanted - missing:
        return {
            "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
            "message": "Deployment has minimum availability.",
        }  # fmt: skip
    return {
        "type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable",
        "message": "Deployment does not have minimum availability.",
    }  # fmt: skip


def _progress(deployment: Json, old: Json, status: Json, newest: Sequence[Json], now: float) -> Json | None:
    before = condition({"status": old}, "Progressing") or {}
    if not newest:
        return None
    name, label = meta(newest[0])["name"], f'ReplicaSet "{meta(newest[0])["name"]}"'
    wanted = at(deployment, "spec", "replicas") or 0
    complete = status["updatedReplicas"] == wanted == status["replicas"] == status["availableReplicas"]
    if complete:
        return _progressing("True", "NewReplicaSetAvailable", f"{label} has successfully progressed.")
    if before.get("reason") == "NewReplicaSetAvailable" and name in before.get("message", ""):
        return None  # scaling or a lost pod is not a new rollout
    counters = ("updatedReplicas", "readyReplicas", "availableReplicas")
    moved = any(status[counter] > (old.get(counter) or 0) for counter in counters)
    if not before or name not in before.get("message", ""):
        return _progressing("True", "ReplicaSetUpdated", f"{label} is progressing.")
    deadline = at(deployment, "spec", "progressDeadlineSeconds") or 600
    since = seconds(before.get("lastUpdateTime")) or now
    if not moved and now - since > deadline:
        return _progressing("False", "ProgressDeadlineExceeded", f"{label} has timed out progressing.")
    if moved:
        return _progressing("True", "ReplicaSetUpdated", f"{label} is progressing.")
    return None


def _progressing(status: str, reason: str, message: str) -> Json:
    return {"type": "Progressing", "status": status, "reason": reason, "message": message}
