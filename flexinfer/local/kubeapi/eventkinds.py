"""``events.k8s.io/v1`` over the storage of core ``v1`` Events: the same object under other names."""

from flexinfer.local.kubeapi.objects import Json

_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK = {core: new for new, core in _NAMES.items()}


def to_core(obj: Json) -> Json:
    """An events.k8s.io/v1 Event as core/v1."""
    body = {_NAMES.get(key, key): value for key, value in obj.items()}
    return body | {"apiVersion": "v1", "kind": "Event"}


def from_core(obj: Json) -> Json:
    """A core/v1 Event as events.k8s.io/v1."""
    body = {_BACK.get(key, key): value for key, value in obj.items()}
    return body | {"apiVersion": "events.k8s.io/v1", "kind": "Event"}
