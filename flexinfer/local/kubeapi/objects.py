"""Objects are plain dictionaries; stored ones are never changed, writers work on copies."""

import calendar
import time
from collections.abc import Sequence
from typing import Any

import orjson

Json = dict[str, Any]


def clone(value: Any) -> Any:
    """A deep copy of JSON data."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


def meta(obj: Json) -> Json:
    """``metadata`` of an object, for reading."""
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}


def at(obj: Any, *path: str) -> Any:
    """The value below ``path``, or None."""
    for key in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(key)
    return obj


def drop_nulls(value: Any) -> Any:
    """A copy without null members: Go's decoder takes null for absent."""
    if isinstance(value, dict):
        return {key: drop_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [drop_nulls(item) for item in value]
    return value


def timestamp(now: float) -> str:
    """``metav1.Time``: UTC, whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))


def seconds(stamp: str | None) -> float | None:
    """Unix seconds of an RFC 3339 time in UTC, or None if it is not one."""
    if not stamp or not stamp.endswith("Z"):
        return None
    whole, _, fraction = stamp[:-1].partition(".")
    try:
        base = calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S"))
        return base + (float(f"0.{fraction}") if fraction else 0.0)
    except ValueError:
        return None


def owner_of(obj: Json) -> Json | None:
    """The controlling owner reference, or None."""
    for reference in meta(obj).get("ownerReferences", ()):
        if reference.get("controller"):
            return dict(reference)
    return None


def owner_reference(owner: Json) -> Json:
    """A controlling, blocking reference to ``owner``."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def set_condition(conditions: Sequence[Json], condition: Json, now: float) -> list[Json]:
    """``conditions`` with one replaced or added; the transition time moves only when ``status`` changes."""
    stamp = timestamp(now)
    result: list[Json] = []
    placed = False
    for old in conditions:
        if old.get("type") != condition["type"]:
            result.append(old)
            continue
        placed = True
        kept = old.get("status") == condition["status"]
        result.append(condition | {"lastTransitionTime": old.get("lastTransitionTime", stamp) if kept else stamp})
    if not placed:
        result.append(condition | {"lastTransitionTime": stamp})
    return result


def encode(value: Any) -> bytes:
    """Compact JSON."""
    return orjson.dumps(value)
