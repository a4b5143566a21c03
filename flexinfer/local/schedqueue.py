"""The scheduling queue of one-machine mode, with the rules of kube-scheduler's.

A pod that failed waits out its backoff. An error is retried after it; a rejected pod is parked until something in
the cluster changes that could help it, or PARKED_SECONDS pass. Times are seconds of a monotonic clock.
"""

from dataclasses import dataclass
from math import inf

from flexinfer.contracts.kubernetes import Object

FIRST_BACKOFF = 1.0
LONGEST_BACKOFF = 10.0
PARKED_SECONDS = 300.0

Key = tuple[str, str]


@dataclass(slots=True)
class Waiting:
    """One unbound pod. ``due``: when it may be tried next."""

    pod: Object
    queued: float
    attempts: int = 0
    due: float = 0.0
    backoff_ends: float = 0.0


class SchedulingQueue:
    """Which pod is tried next, and when."""

    def __init__(self) -> None:
        self._waiting: dict[Key, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, pod: Object, now: float) -> None:
        """A new or changed unbound pod; a change that could matter ends its parking."""
        key = key_of(pod)
        known = self._waiting.get(key)
        if known is None or _uid(known.pod) != _uid(pod):
            self._waiting[key] = Waiting(pod, now)
            return
        changed = _essence(known.pod) != _essence(pod)
        known.pod = pod
        if changed:
            known.due = min(known.due, known.backoff_ends)

    def remove(self, key: Key) -> None:
        """Bound, ended or deleted."""
        self._waiting.pop(key, None)

    def stir(self) -> None:
        """The cluster changed: whoever is parked is tried again once its backoff is over."""
        for waiting in self._waiting.values():
            waiting.due = min(waiting.due, waiting.backoff_ends)

    def failed(self, key: Key, now: float, *, rejected: bool) -> None:
        """An attempt ended without a binding: by the nodes (``rejected``), or by an error."""
        waiting = self._waiting.get(key)
        if waiting is None:
            return
        waiting.attempts += 1
        waiting.backoff_ends = now + min(FIRST_BACKOFF * 2 ** min(waiting.attempts - 1, 10), LONGEST_BACKOFF)
        waiting.due = now + PARKED_SECONDS if rejected else waiting.backoff_ends

    def next(self, now: float) -> tuple[Object | None, float]:
        """The pod to try now, highest priority first, then longest queued; else seconds until one is due."""
        ready = [waiting for waiting in self._waiting.values() if waiting.due <= now]
        if ready:
            return min(ready, key=lambda waiting: (-_priority(waiting.pod), waiting.queued)).pod, 0.0
        return None, min((waiting.due for waiting in self._waiting.values()), default=inf) - now


def key_of(pod: Object) -> Key:
    """(namespace, name)."""
    meta = pod.get("metadata") or {}
    return str(meta.get("namespace", "")), str(meta.get("name", ""))


def _uid(pod: Object) -> str:
    return str((pod.get("metadata") or {}).get("uid", ""))


def _priority(pod: Object) -> int:
    return int((pod.get("spec") or {}).get("priority") or 0)


def _essence(pod: Object) -> object:
    # Our own condition on the pod must not wake it again.
    meta = pod.get("metadata") or {}
    return meta.get("labels"), meta.get("annotations"), pod.get("spec")
