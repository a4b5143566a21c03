"""``meta.k8s.io/v1 Table``: what ``kubectl get`` prints."""

import re
from collections.abc import Sequence
from typing import Any

from flexinfer.local.kubeapi import columns
from flexinfer.local.kubeapi.kinds import Column, Kind
from flexinfer.local.kubeapi.objects import Json, at, meta, seconds

_STEP = re.compile(
    r"\.([A-Za-z0-9_\-]+|'[^']*')|\[\?\(@\.([^=]+?)\s*==\s*['\"]([^'\"]*)['\"]\)\]|\[(\d+|\*)\]|\['([^']*)'\]"
)
_NAME = Column("Name", "string", "", "Name must be unique within a namespace.", 0, "name")
_AGE = Column("Age", "date", ".metadata.creationTimestamp", "Time since the object was created.")


def table_of(kind: Kind, objects: Sequence[Json], now: float, include: str, head: Json) -> Json:
    """A Table of ``objects``; ``include`` is the parameter includeObject (Object, Metadata or None)."""
    printer = columns.PRINTERS.get(kind.bucket)
    if printer is not None and not kind.custom:
        definitions: Sequence[Column] = printer.columns
        cells = [printer.cells(obj, now) for obj in objects]
    else:
        definitions = kind.columns or (_AGE,)
        cells = [[cell(obj, column, now) for column in definitions] for obj in objects]
    named = printer is None or printer.named
    if named:
        definitions = [_NAME, *definitions]
    rows = [
        {"cells": [meta(obj)["name"], *row] if named else row, "object": _embedded(kind, obj, include)}
        for obj, row in zip(objects, cells, strict=True)
    ]
    shown = [
        {
            "name": column.name, "type": column.type, "format": column.format,
            "description": column.description, "priority": column.priority,
        }
        for column in definitions
    ]  # fmt: skip
    return {
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": head, "columnDefinitions": shown, "rows": rows,
    }  # fmt: skip


def _embedded(kind: Kind, obj: Json, include: str) -> Json | None:
    if include == "None":
        return None
    if include == "Object":
        return kind.head() | obj
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta(obj)}


def cell(obj: Json, column: Column, now: float) -> Any:
    """The value of a custom column: None prints as ``<none>``; dates print as an age."""
    found = lookup(obj, column.path)
    if not found:
        return None
    if column.type == "date":
        since = seconds(str(found[0]))
        return None if since is None else columns.age(now - since)
    if column.type == "string" and not isinstance(found[0], str):
        return columns.text(found[0])
    return found[0] if len(found) == 1 else ",".join(str(value) for value in found)


def lookup(obj: Json, path: str) -> list[Any]:
    """Values at a JSONPath of the kind printer columns use: members, ``[n]``, ``[*]`` and ``[?(@.a=="b")]``."""
    values: list[Any] = [obj]
    for step in _STEP.finditer(path):
        name, field, wanted, index, quoted = step.groups()
        if name is not None or quoted is not None:
            key = quoted if name is None else name.strip("'")
            values = [value[key] for value in values if isinstance(value, dict) and key in value]
        elif field is not None:
            lists = [value for value in values if isinstance(value, list)]
            values = [item for items in lists for item in items if str(at(item, *field.split("."))) == wanted]
        else:
            lists = [value for value in values if isinstance(value, list)]
            picked = [items if index == "*" else items[int(index) : int(index) + 1] for items in lists]
            values = [item for items in picked for item in items]
    return [value for value in values if value is not None]
