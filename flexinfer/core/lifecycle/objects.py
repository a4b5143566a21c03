"""Reading Kubernetes objects as plain dictionaries, where any part may be missing."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from flexinfer.contracts.crds.fields import quantity_value
from flexinfer.contracts.kubernetes import Object


def meta(obj: Object) -> dict[str, Any]:
    """``metadata``."""
    return obj.get("metadata") or {}


def labels(obj: Object) -> dict[str, str]:
    """``metadata.labels``."""
    return meta(obj).get("labels") or {}


def annotations(obj: Object) -> dict[str, str]:
    """``metadata.annotations``."""
    return meta(obj).get("annotations") or {}


def status(obj: Object) -> dict[str, Any]:
    """``status``."""
    return obj.get("status") or {}


def name_of(obj: Object) -> tuple[str, str]:
    """(namespace, name)."""
    found = meta(obj)
    return str(found.get("namespace") or ""), str(found.get("name") or "")


def uid(obj: Object) -> str:
    """``metadata.uid``."""
    return str(meta(obj).get("uid") or "")


def deleting(obj: Object) -> bool:
    """Deletion was asked for."""
    return bool(meta(obj).get("deletionTimestamp"))


def controller(obj: Object) -> str:
    """Uid of the owner that controls the object, empty if none does."""
    owners = meta(obj).get("ownerReferences") or []
    return next((str(owner.get("uid", "")) for owner in owners if owner.get("controller")), "")


def condition(obj: Object, kind: str) -> dict[str, Any] | None:
    """One entry of ``status.conditions``."""
    return next((c for c in status(obj).get("conditions") or [] if c.get("type") == kind), None)


def holds(obj: Object, kind: str) -> bool:
    """A condition is there with status True."""
    found = condition(obj, kind)
    return bool(found and found.get("status") == "True")


def parse_time(text: object) -> float | None:
    """RFC 3339 to Unix seconds."""
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None


def write_time(at: float) -> str:
    """Unix seconds to RFC 3339 as Kubernetes writes it, whole seconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def version_number(obj: Object) -> int | None:
    """resourceVersion as a number, where it is one."""
    text = str(meta(obj).get("resourceVersion") or "")
    return int(text) if text.isdigit() else None


def covers(observed: Any, wanted: Any) -> bool:
    """Whether everything in ``wanted`` is in ``observed``, which may hold more (defaults, other managers' fields).

    Lists must have the same length; quantities are compared by value, because the server rewrites them.
    """
    if isinstance(wanted, dict):
        if not isinstance(observed, dict):
            return not wanted and observed is None
        return all(covers(observed.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        found = observed or []
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(covers(a, b) for a, b in zip(found, wanted, strict=True))
        )
    if wanted in ("", None, False):
        return not observed
    return bool(observed == wanted) or _same_quantity(observed, wanted)


def _same_quantity(observed: Any, wanted: Any) -> bool:
    both = (str(observed), str(wanted))
    if any(not re.fullmatch(r"[0-9.]+[A-Za-z]{0,2}", text) for text in both):
        return False
    try:
        return quantity_value(both[0]) == quantity_value(both[1])
    except ValueError:
        return False


def containers(pod: Object) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, status) of the containers of a pod, init containers first."""
    for group in ("initContainerStatuses", "containerStatuses"):
        for entry in status(pod).get(group) or []:
            yield str(entry.get("name", "")), entry
