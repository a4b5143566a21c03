"""Conditions and status of a model, computed from what was observed."""

from collections.abc import Iterable
from typing import Any

from flexinfer.contracts.events import Condition
from flexinfer.contracts.kubernetes import Object
from flexinfer.core.lifecycle.objects import parse_time, status, write_time

TYPES = ("Available", "Progressing", "ReplicaFailure", "BenchmarkComplete", "NodeSelected")


def condition(kind: str, holds: bool | None, reason: str, message: str = "") -> Condition:  # noqa: FBT001 - the value itself
    """A condition; None is Unknown."""
    text = "Unknown" if holds is None else "True" if holds else "False"
    return Condition(type=kind, status=text, reason=reason, message=message[:1024])  # type: ignore[arg-type] # kinds and statuses are from the tables here


def merged(previous: Object, found: Iterable[Condition], generation: int, now: float) -> list[dict[str, Any]]:
    """Conditions as they go into status: the transition time moves only when the status of one changes."""
    before = {entry.get("type"): entry for entry in status(previous).get("conditions") or []}
    out = []
    for one in sorted(found, key=lambda c: TYPES.index(c.type)):
        old = before.get(one.type) or {}
        same = old.get("status") == one.status and old.get("lastTransitionTime")
        out.append(
            {
                "type": one.type,
                "status": one.status,
                "reason": one.reason,
                "message": one.message,
                "lastTransitionTime": old["lastTransitionTime"] if same else write_time(now),
                "observedGeneration": generation,
            }
        )
    return out


def false_since(obj: Object, kind: str) -> float | None:
    """Since when a condition of ours is False in the stored status."""
    for entry in status(obj).get("conditions") or []:
        if entry.get("type") == kind and entry.get("status") == "False":
            return parse_time(entry.get("lastTransitionTime"))
    return None
