"""Removing what a schema does not know, and filling in what it sets by default."""

import re
from typing import Any

from flexinfer.local.kubeapi.objects import Json, clone
from flexinfer.local.kubeapi.schema import Schema

QUANTITY = "resource.Quantity"
_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?")
_EMBEDDED = ("apiVersion", "kind", "metadata")


def prune(value: Any, schema: Schema, path: str, unknown: list[str]) -> Any:
    """``value`` changed in place: members the schema does not know are removed, their paths appended to ``unknown``."""
    if isinstance(value, list):
        if schema.items is not None:
            for index, item in enumerate(value):
                value[index] = prune(item, schema.items, f"{path}[{index}]", unknown)
        return value
    if not isinstance(value, dict):
        return value
    for name in list(value):
        child = schema.member(name)
        place = f"{path}.{name}" if path else name
        if child is not None:
            value[name] = prune(value[name], child, place, unknown)
        elif not (schema.open or (schema.embedded and name in _EMBEDDED)):
            unknown.append(place)
            del value[name]
    return value


def fill(value: Any, schema: Schema) -> Any:
    """``value`` changed in place: missing members get the default of a structural schema."""
    if isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            value[index] = fill(item, schema.items)
    elif isinstance(value, dict):
        for name, child in schema.properties.items():
            if name in value and value[name] is None and not child.nullable and child.has_default:
                del value[name]
            if name not in value and child.has_default:
                value[name] = clone(child.raw["default"])
            if name in value:
                value[name] = fill(value[name], child)
        if schema.additional is not None:
            for name in value.keys() - schema.properties.keys():
                value[name] = fill(value[name], schema.additional)
    return value


def normalise_quantities(value: Any, schema: Schema) -> Any:
    """``value`` changed in place: numbers where a Quantity is meant become strings, as Go writes them."""
    if schema.name.endswith(QUANTITY):
        return value if isinstance(value, str) else format_quantity(value)
    if isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            value[index] = normalise_quantities(item, schema.items)
    elif isinstance(value, dict):
        for name in value:
            child = schema.member(name)
            if child is not None:
                value[name] = normalise_quantities(value[name], child)
    return value


def format_quantity(number: float) -> str:
    """A number as a quantity: whole, else in thousandths."""
    if float(number).is_integer():
        return str(int(number))
    return f"{round(number * 1000)}m"


def decode_errors(value: Any, schema: Schema, path: str, found: list[str]) -> None:
    """Append a sentence for each value whose JSON type Go could not decode into the schema's type."""
    if value is None:
        return
    problem = _type_problem(value, schema, path)
    if problem:
        found.append(problem)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            if item is None:
                # Go would make an empty element of it; nobody means that.
                found.append(f"cannot unmarshal null into Go struct field {path}[{index}]")
            decode_errors(item, schema.items, f"{path}[{index}]", found)
    elif isinstance(value, dict):
        for name, item in value.items():
            child = schema.member(name)
            if child is not None:
                decode_errors(item, child, f"{path}.{name}" if path else name, found)


def _type_problem(value: Any, schema: Schema, path: str) -> str:
    if schema.int_or_string or schema.name.endswith(QUANTITY):
        problem = _scalar_problem(value, schema)
        return f"{problem} at {path}" if problem else ""
    if schema.type and not _decodes(value, schema.type):
        return f"cannot unmarshal {_go_kind(value)} into Go struct field {path} of type {schema.type}"
    return ""


def _scalar_problem(value: Any, schema: Schema) -> str:
    """What keeps a value from being an IntOrString or a Quantity."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return f"cannot unmarshal {_go_kind(value)} into a string or number"
    if not schema.int_or_string and isinstance(value, str) and not _QUANTITY.fullmatch(value):
        return "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    return ""


def _decodes(value: Any, expected: str) -> bool:
    match expected:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
    return True


def _go_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return {str: "string", int: "number", float: "number", list: "array", dict: "object"}.get(type(value), "null")


def missing(value: Any, schema: Schema, path: str) -> list[str]:
    """Paths of required members that are absent."""
    found: list[str] = []
    if isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            found += missing(item, schema.items, f"{path}[{index}]")
    elif isinstance(value, dict):
        found += [f"{path}.{name}" for name in schema.required if value.get(name) is None]
        for name, item in value.items():
            child = schema.member(name)
            if child is not None:
                found += missing(item, child, f"{path}.{name}")
    return found


def object_errors(obj: Json, schema: Schema) -> list[str]:
    """Decode errors of a whole object."""
    found: list[str] = []
    decode_errors(obj, schema, "", found)
    return found
