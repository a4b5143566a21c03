"""Events that the controllers write, counted up while they repeat."""

from collections import OrderedDict

from flexinfer.local.kubeapi.controllers.podstate import need
from flexinfer.local.kubeapi.errors import ApiError
from flexinfer.local.kubeapi.objects import Json, meta, timestamp
from flexinfer.local.kubeapi.registry import Registry

_REMEMBERED = 1000  # Events that still count up


class Recorder:
    """Writes core/v1 Events in the name of one controller."""

    def __init__(self, registry: Registry, component: str) -> None:
        self._registry = registry
        self._component = component
        self._kind = need(registry, "v1", "Event")
        self._names: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        self._serial = 0

    def say(self, obj: Json, reason: str, message: str, kind: str = "Normal") -> None:
        """Record an Event on ``obj``; a namespace that is going away takes none."""
        now = timestamp(self._registry.clock.now())
        metadata = meta(obj)
        namespace = metadata.get("namespace") or "default"
        name = self._name(metadata, reason, message)
        existing = self._registry.store.get("events", (namespace, name))
        if existing is not None:
            self._registry.edit(self._kind, existing, lambda event: _repeat(event, now))
            return
        event = {
            "metadata": {"name": name},
            "involvedObject": {
                "apiVersion": obj["apiVersion"],
                "kind": obj["kind"],
                "name": metadata["name"],
                "namespace": metadata.get("namespace", ""),
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "reason": reason,
            "message": message,
            "type": kind,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._registry.create(self._kind, namespace, event)
        except ApiError as err:
            if err.code != 404:
                raise

    def _name(self, metadata: Json, reason: str, message: str) -> str:
        """The name of the Event that says this already, or a new one; names sort by time, as clients expect."""
        told = (str(metadata["uid"]), reason, message)
        name = self._names.get(told)
        if name is None:
            self._serial += 1
            moment = int(self._registry.clock.now() * 1e9) + self._serial
            name = self._names[told] = f"{metadata['name']}.{moment:x}"
            while len(self._names) > _REMEMBERED:
                self._names.popitem(last=False)
        return name


def _repeat(event: Json, now: str) -> None:
    event["count"] = int(event.get("count") or 1) + 1
    event["lastTimestamp"] = now
