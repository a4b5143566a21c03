"""Pods that an earlier runner started: their processes are gone, their status tells how far they were."""

from collections.abc import Sequence
from typing import Any

from flexinfer.adapters.kube.times import parse as parse_time
from flexinfer.contracts.kubernetes import Object
from flexinfer.local.runner.records import Ended, Record, policy_of

LOST = "The container was running when the process runner ended"


def adopt(pod: Object, records: Sequence[Record], now: float) -> bool:
    """Continue the records where the pod's status left them; False when the pod has failed by the loss.

    What was running counts as killed. A pod that is never restarted fails, any other runs again from its start.
    """
    status = pod.get("status") or {}
    entries = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    known = {entry.get("name"): entry for entry in entries}
    lost = False
    for record in records:
        entry = known.get(record.name)
        if entry is None:
            continue
        record.restarts = int(entry.get("restartCount") or 0)
        state = entry.get("state") or {}
        record.last = _ended(entry.get("lastState") or {}, now)
        if "running" in state:
            record.last = Ended(
                137, 9, "ContainerStatusUnknown", LOST, _time(state["running"], "startedAt", now), now,
                str(entry.get("containerID") or ""),
            )  # fmt: skip
            if policy_of(pod) == "Never" and record.role == "main":
                record.state, lost = record.last, True
            else:
                record.restarts += 1
        elif record.role == "main" and (ended := _ended(state, now)) is not None:
            record.state = ended
    return not lost


def _ended(state: Object, now: float) -> Ended | None:
    ended = state.get("terminated")
    if not ended:
        return None
    return Ended(
        exit_code=int(ended.get("exitCode") or 0),
        signal=int(ended.get("signal") or 0),
        reason=str(ended.get("reason") or "Error"),
        message=str(ended.get("message") or ""),
        started_at=_time(ended, "startedAt", now),
        finished_at=_time(ended, "finishedAt", now),
        container_id=str(ended.get("containerID") or ""),
    )


def _time(entry: dict[str, Any], name: str, now: float) -> float:
    found = parse_time(entry.get(name))
    return now if found is None else found
