"""What controllers read from pods, and how they make them."""

from collections.abc import Collection, Iterable
from typing import Any

from flexinfer.local.kubeapi.kinds import Kind
from flexinfer.local.kubeapi.objects import Json, at, meta, owner_of, owner_reference, seconds
from flexinfer.local.kubeapi.registry import Registry
from flexinfer.local.kubeapi.store import Change, Key, Stored


def need(registry: Registry, api_version: str, kind: str) -> Kind:
    """A built-in kind. Raises LookupError."""
    found = registry.catalog.by_kind(api_version, kind)
    if found is None:
        raise LookupError(f"no kind {api_version}/{kind}")
    return found


def key_of(obj: Json) -> Key:
    """Key of a namespaced object."""
    return (meta(obj).get("namespace", ""), meta(obj)["name"])


def owner_keys(change: Change, kind: str) -> list[Key]:
    """Keys of controllers of ``kind`` that the object has, or had before this change."""
    versions = [change.after] if change.before is None else [change.before, change.after]
    found: list[Key] = []
    for stored in versions:
        owner = owner_of(stored.obj)
        if owner is not None and owner["kind"] == kind:
            found.append((meta(stored.obj).get("namespace", ""), owner["name"]))
    return list(dict.fromkeys(found))


def only_status(change: Change) -> bool:
    """Whether a change left the spec and the deletion mark alone."""
    if change.type != "MODIFIED" or change.before is None:
        return False
    before, after = meta(change.before.obj), meta(change.after.obj)
    return all(before.get(name) == after.get(name) for name in ("generation", "deletionTimestamp", "finalizers"))


def phase(pod: Json) -> str:
    """``status.phase``."""
    return str(at(pod, "status", "phase") or "")


def finished(pod: Json) -> bool:
    """Succeeded or Failed."""
    return phase(pod) in ("Succeeded", "Failed")


def alive(pod: Json) -> bool:
    """Neither finished nor being deleted."""
    return not finished(pod) and not meta(pod).get("deletionTimestamp")


def condition(obj: Json, kind: str) -> Json | None:
    """One of ``status.conditions``."""
    for entry in at(obj, "status", "conditions") or ():
        if entry.get("type") == kind:
            return dict(entry)
    return None


def ready(pod: Json) -> bool:
    """Condition Ready is True."""
    return (condition(pod, "Ready") or {}).get("status") == "True"


def available_in(pod: Json, minimum: int, now: float) -> float:
    """Seconds until a ready pod counts as available: 0 if it does."""
    if not minimum:
        return 0.0
    since = seconds((condition(pod, "Ready") or {}).get("lastTransitionTime"))
    return max(0.0, (since if since is not None else now) + minimum - now)


def deletion_rank(stored: Stored) -> tuple[Any, ...]:
    """Which pod to delete first: without a node, pending, not ready, then the youngest."""
    pod = stored.obj
    order = {"Pending": 0, "Unknown": 1}
    born = seconds(meta(pod).get("creationTimestamp")) or 0.0
    return (bool(at(pod, "spec", "nodeName")), order.get(phase(pod), 2), ready(pod), -born, -stored.version)


def pod_from(template: Json, owner: Json) -> Json:
    """A pod of a template, owned by ``owner``; its name is generated."""
    metadata = dict(template.get("metadata") or {})
    metadata.pop("name", None)
    metadata["generateName"] = f"{meta(owner)['name']}-"
    metadata["ownerReferences"] = [owner_reference(owner)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec") or {}}


def without_zeroes(status: Json, keep: Collection[str] = ()) -> Json:
    """A status as Go's omitempty writes it."""
    return {name: value for name, value in status.items() if name in keep or value not in (0, None, [], {})}


def keys(objects: Iterable[Stored]) -> list[Key]:
    """Keys of several objects."""
    return [key_of(stored.obj) for stored in objects]
