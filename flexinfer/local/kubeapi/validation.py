"""Validation of custom resources against their structural schema, with the wording of the real server."""

import re
from typing import Any

from flexinfer.local.kubeapi.errors import Cause, required, show, unsupported, wrong
from flexinfer.local.kubeapi.kinds import Kind
from flexinfer.local.kubeapi.objects import Json, at
from flexinfer.local.kubeapi.schema import Schema

_DATE_TIME = re.compile(r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$")
_DURATION = re.compile(r"^-?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h|d|w))+$")
_FORMATS = {"date-time": _DATE_TIME, "duration": _DURATION}


NOT_CHECKED = Cause(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing"
    " errors to complete validation",
)


def scale_causes(kind: Kind, obj: Json) -> list[Cause]:
    """What /scale could not show of a custom resource."""
    if kind.scale is None:
        return []
    value = at(obj, *kind.scale.spec.split("."))
    negative = isinstance(value, int) and value < 0
    return [wrong(f".{kind.scale.spec}", value, "should be a non-negative integer")] if negative else []


def validate(value: Any, schema: Schema, path: str) -> list[Cause]:
    """All violations below ``path``, in document order."""
    if value is None:
        if schema.nullable or not schema.type:
            return []
        return [_wrong_type(path, value, schema.type)]
    if schema.int_or_string:
        if isinstance(value, str):
            return _common(value, schema, path) + _string(value, schema, path)
        plain = isinstance(value, int) and not isinstance(value, bool)
        return _common(value, schema, path) if plain else [_wrong_type(path, value, "integer,string")]
    if schema.type and not _is_type(value, schema.type):
        return [_wrong_type(path, value, schema.type)]
    found = _common(value, schema, path)
    if isinstance(value, str):
        found += _string(value, schema, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        found += _number(value, schema, path)
    elif isinstance(value, list):
        found += _list(value, schema, path)
    elif isinstance(value, dict):
        found += _map(value, schema, path)
    return found


def _is_type(value: Any, wanted: str) -> bool:
    match wanted:
        case "integer":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return whole and not isinstance(value, bool)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case _:
            return isinstance(value, dict)


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _wrong_type(path: str, value: Any, wanted: str) -> Cause:
    kind = _json_type(value)
    why = f'{path} in body must be of type {wanted}: "{kind}"'
    return Cause(path, "FieldValueTypeInvalid", f"Invalid value: {show(kind)}: {why}")


def _common(value: Any, schema: Schema, path: str) -> list[Cause]:
    found: list[Cause] = []
    options = schema.raw.get("enum")
    if options is not None and value not in options:
        found.append(unsupported(path, value, options))
    for part in schema.raw.get("allOf") or ():
        found += validate(value, Schema(part), path)
    for word in ("oneOf", "anyOf"):
        branches = schema.raw.get(word)
        if branches:
            found += _branches(value, branches, path, exclusive=word == "oneOf")
    if "not" in schema.raw and not validate(value, Schema(schema.raw["not"]), path):
        found.append(wrong(path, value, f'"{path}" must not validate the schema (not)'))
    return found


def _branches(value: Any, branches: list[Any], path: str, *, exclusive: bool) -> list[Cause]:
    results = [validate(value, Schema(branch), path) for branch in branches]
    passing = sum(not result for result in results)
    if passing == 0:
        word = "one and only one" if exclusive else "at least one"
        return [wrong(path, value, f'"{path}" must validate {word} schema ({"oneOf" if exclusive else "anyOf"})')]
    if exclusive and passing > 1:
        why = f'"{path}" must validate one and only one schema (oneOf). Found {passing} valid alternatives'
        return [wrong(path, value, why)]
    return []


def _string(value: str, schema: Schema, path: str) -> list[Cause]:
    raw = schema.raw
    found: list[Cause] = []
    if "maxLength" in raw and len(value) > raw["maxLength"]:
        why = f"Too long: may not be more than {raw['maxLength']} bytes"
        found.append(Cause(path, "FieldValueTooLong", why))
    if len(value) < raw.get("minLength", 0):
        found.append(wrong(path, value, f"{path} in body should be at least {raw['minLength']} chars long"))
    if schema.pattern is not None and not schema.pattern.search(value):
        found.append(wrong(path, value, f"{path} in body should match '{raw['pattern']}'"))
    form = _FORMATS.get(raw.get("format", ""))
    if form is not None and not form.match(value):
        found.append(wrong(path, value, f"{path} in body must be of type {raw['format']}: {show(value)}"))
    return found


def _number(value: float, schema: Schema, path: str) -> list[Cause]:
    raw = schema.raw
    found: list[Cause] = []
    if "minimum" in raw:
        low, strict = raw["minimum"], raw.get("exclusiveMinimum", False)
        if value < low or (strict and value == low):
            word = "greater than" if strict else "greater than or equal to"
            found.append(wrong(path, value, f"{path} in body should be {word} {low}"))
    if "maximum" in raw:
        high, strict = raw["maximum"], raw.get("exclusiveMaximum", False)
        if value > high or (strict and value == high):
            word = "less than" if strict else "less than or equal to"
            found.append(wrong(path, value, f"{path} in body should be {word} {high}"))
    step = raw.get("multipleOf")
    if step and value % step:
        found.append(wrong(path, value, f"{path} in body should be a multiple of {step}"))
    return found


def _list(value: list[Any], schema: Schema, path: str) -> list[Cause]:
    raw = schema.raw
    found: list[Cause] = []
    if "maxItems" in raw and len(value) > raw["maxItems"]:
        why = f"Too many: {len(value)}: must have at most {raw['maxItems']} items"
        found.append(Cause(path, "FieldValueTooMany", why))
    if len(value) < raw.get("minItems", 0):
        found.append(wrong(path, len(value), f"{path} in body should have at least {raw['minItems']} items"))
    found += _duplicates(value, schema, path)
    if schema.items is not None:
        for index, item in enumerate(value):
            found += validate(item, schema.items, f"{path}[{index}]")
    return found


def _duplicates(value: list[Any], schema: Schema, path: str) -> list[Cause]:
    found: list[Cause] = []
    seen: list[Any] = []
    for index, item in enumerate(value):
        if schema.list_type == "map" and isinstance(item, dict):
            identity: Any = {key: item.get(key) for key in schema.list_keys}
        elif schema.list_type == "set" or schema.raw.get("uniqueItems"):
            identity = item
        else:
            continue
        if identity in seen:
            text = show(identity) if not isinstance(identity, dict) else _keys(identity)
            found.append(Cause(f"{path}[{index}]", "FieldValueDuplicate", f"Duplicate value: {text}"))
        seen.append(identity)
    return found


def _keys(identity: dict[str, Any]) -> str:
    return "{" + ",".join(f'"{key}":{show(value)}' for key, value in identity.items()) + "}"


def _map(value: dict[str, Any], schema: Schema, path: str) -> list[Cause]:
    raw = schema.raw
    found = [required(f"{path}.{name}" if path else name) for name in schema.required if name not in value]
    if "maxProperties" in raw and len(value) > raw["maxProperties"]:
        why = f"Too many: {len(value)}: must have at most {raw['maxProperties']} items"
        found.append(Cause(path, "FieldValueTooMany", why))
    if len(value) < raw.get("minProperties", 0):
        found.append(wrong(path, value, f"{path} in body should have at least {raw['minProperties']} properties"))
    for name, item in value.items():
        child = schema.member(name)
        if child is not None:
            found += validate(item, child, f"{path}.{name}" if path else name)
    return found
