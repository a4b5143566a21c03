"""Sets of fields as server-side apply records them (``FieldsV1``), held as sets of paths.

A path is a tuple of segments in FieldsV1 notation: ``f:name``, ``k:{"name":"x"}`` for an element of a list that
is a map, ``v:"x"`` for an element of a set. A list element itself is its path; atomic values are leaves.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from flexinfer.local.kubeapi.objects import Json
from flexinfer.local.kubeapi.schema import ANY, Schema

Path = tuple[str, ...]
FieldSet = frozenset[Path]

# Identity and bookkeeping belong to nobody.
_UNOWNED = {
    ("f:apiVersion",), ("f:kind",), ("f:metadata",), ("f:metadata", "f:name"), ("f:metadata", "f:namespace"),
    ("f:metadata", "f:uid"), ("f:metadata", "f:creationTimestamp"), ("f:metadata", "f:resourceVersion"),
    ("f:metadata", "f:generation"), ("f:metadata", "f:generateName"), ("f:metadata", "f:selfLink"),
    ("f:metadata", "f:deletionTimestamp"), ("f:metadata", "f:deletionGracePeriodSeconds"),
}  # fmt: skip


def fields_of(obj: Json, schema: Schema) -> FieldSet:
    """All fields an object sets."""
    paths = {path for path in _walk(obj, schema, ()) if path not in _UNOWNED}
    return frozenset(path for path in paths if path[:2] != ("f:metadata", "f:managedFields"))


def _walk(value: Any, schema: Schema, path: Path) -> Iterator[Path]:
    if isinstance(value, dict) and not schema.atomic_map and (value or not path):
        for name, item in value.items():
            yield from _walk(item, schema.member(name) or ANY, (*path, f"f:{name}"))
        return
    if isinstance(value, list) and value and schema.list_type in ("map", "set"):
        for item in value:
            segment = element_segment(item, schema)
            yield (*path, segment)
            if schema.list_type == "map":
                yield from _walk(item, schema.items or ANY, (*path, segment))
        return
    yield path


def element_segment(item: Any, schema: Schema) -> str:
    """The segment that identifies a list element."""
    if schema.list_type == "map" and isinstance(item, dict):
        return "k:" + orjson.dumps(element_key(item, schema), option=orjson.OPT_SORT_KEYS).decode()
    return "v:" + orjson.dumps(item, option=orjson.OPT_SORT_KEYS).decode()


def element_key(item: Json, schema: Schema) -> Json:
    """Key members of a list element; absent ones take their schema default."""
    key: Json = {}
    items = schema.items or ANY
    for name in schema.list_keys:
        if name in item:
            key[name] = item[name]
        else:
            child = items.properties.get(name)
            if child is not None and child.has_default:
                key[name] = child.raw["default"]
    return key


def encode_fields(paths: Iterable[Path]) -> Json:
    """``fieldsV1`` of a set."""
    root: Json = {}
    for path in sorted(paths):
        node = root
        for segment in path:
            node = node.setdefault(segment, {})
        if path[-1].startswith("k:"):
            node["."] = {}
    return root


def decode_fields(tree: Json) -> FieldSet:
    """The set of a ``fieldsV1``."""
    found: set[Path] = set()
    todo: list[tuple[Path, Json]] = [((), tree)]
    while todo:
        path, node = todo.pop()
        if path and (not node or "." in node):
            found.add(path)
        todo += [((*path, key), child) for key, child in node.items() if key != "."]
    return frozenset(found)


_MISSING = object()


def lookup(obj: Any, path: Path, schema: Schema) -> Any:
    """The value at ``path``; raises KeyError if there is none."""
    value: Any = obj
    for segment in path:
        value, schema = descend(value, segment, schema)
    return value


def descend(value: Any, segment: str, schema: Schema) -> tuple[Any, Schema]:
    """One step of a path: the child and its schema. Raises KeyError."""
    if segment.startswith("f:"):
        name = segment[2:]
        if not isinstance(value, dict) or name not in value:
            raise KeyError(segment)
        return value[name], schema.member(name) or ANY
    if isinstance(value, list):
        for item in value:
            if element_segment(item, schema) == segment:
                return item, schema.items or ANY
    raise KeyError(segment)


def same(left: Any, right: Any, path: Path, schema: Schema) -> bool:
    """Whether both objects hold the same at ``path``; elements of map lists only have to exist."""
    try:
        first = lookup(left, path, schema)
        second = lookup(right, path, schema)
    except KeyError:
        return False
    return path[-1].startswith("k:") or bool(first == second)


def remove(obj: Any, path: Path, schema: Schema) -> None:
    """Delete what is at ``path``, in place, and the containers that this leaves empty."""
    if len(path) == 1:
        _drop(obj, path[0], schema)
        return
    try:
        child, below = descend(obj, path[0], schema)
    except KeyError:
        return
    remove(child, path[1:], below)
    if child in ({}, []):
        _drop(obj, path[0], schema)


def _drop(container: Any, segment: str, schema: Schema) -> None:
    if segment.startswith("f:"):
        if isinstance(container, dict):
            container.pop(segment[2:], None)
    elif isinstance(container, list):
        container[:] = [item for item in container if element_segment(item, schema) != segment]


def changed_fields(before: Json, after: Json, schema: Schema) -> tuple[FieldSet, FieldSet]:
    """(set or altered, removed) between two versions."""
    old, new = fields_of(before, schema), fields_of(after, schema)
    altered = {path for path in new if path not in old or not same(before, after, path, schema)}
    return frozenset(altered), old - new
