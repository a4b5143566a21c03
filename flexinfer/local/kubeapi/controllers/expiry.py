"""Events live for an hour."""

from collections.abc import Iterable

from flexinfer.local.kubeapi.controllers.podstate import key_of, need
from flexinfer.local.kubeapi.deletion import DeleteOptions
from flexinfer.local.kubeapi.objects import at, meta, seconds
from flexinfer.local.kubeapi.registry import Registry
from flexinfer.local.kubeapi.store import Change, Key

LIFE = 3600.0  # seconds, the default of the real server


class EventExpiry:
    """Removes an Event an hour after it last occurred."""

    name = "events"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._kind = need(registry, "v1", "Event")

    def concerns(self, change: Change) -> Iterable[Key]:
        """New Events; updates are seen when their time comes."""
        return [key_of(change.after.obj)] if change.bucket == "events" and change.type == "ADDED" else []

    def reconcile(self, key: Key) -> float | None:
        """Remove it, or come back when it will be old enough."""
        stored = self._registry.store.get("events", key)
        if stored is None:
            return None
        stamps = (
            at(stored.obj, "series", "lastObservedTime"),
            stored.obj.get("lastTimestamp"),
            stored.obj.get("eventTime"),
            meta(stored.obj).get("creationTimestamp"),
        )
        newest = max((seconds(stamp) or 0.0) for stamp in stamps)
        left = newest + LIFE - self._registry.clock.now()
        if left > 0:
            return left
        self._registry.delete(self._kind, *key, DeleteOptions())
        return None
