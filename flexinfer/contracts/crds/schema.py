"""From pydantic's JSON Schema to the structural schema Kubernetes wants.

Structural means: no ``$ref``, a type at every node, no ``anyOf``. An optional field is simply not required: like
other Kubernetes APIs we have no field in which null means something else than absence.
"""

from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

_DROPPED = ("title", "examples", "additionalProperties", "$defs", "exclusiveMinimum", "exclusiveMaximum")


def structural(cls: type[BaseModel]) -> Schema:
    """The ``openAPIV3Schema`` of a model."""
    raw = cls.model_json_schema(by_alias=True, mode="validation")
    return _convert(raw, raw.get("$defs", {}))


def without_defaults(node: Schema) -> Schema:
    """The same schema, in which nothing is filled in."""
    out = {key: value for key, value in node.items() if key != "default"}
    if "properties" in out:
        out["properties"] = {name: without_defaults(child) for name, child in out["properties"].items()}
    if "items" in out:
        out["items"] = without_defaults(out["items"])
    return out


def _convert(node: Schema, defs: dict[str, Schema]) -> Schema:
    node = _resolve(node, defs)
    out = {key: value for key, value in node.items() if key not in _DROPPED}
    if out.get("default") in (None, []) or (out.get("default") == {} and "properties" not in node):
        out.pop("default", None)
    if "description" in out:
        out["description"] = " ".join(out["description"].split())
    if "enum" in out:
        out.setdefault("type", "string")
    if out.get("type") == "integer":
        out["format"] = "int64"
    if "properties" in node:
        out["properties"] = {name: _convert(child, defs) for name, child in node["properties"].items()}
    elif isinstance(node.get("additionalProperties"), dict):
        out["additionalProperties"] = _convert(node["additionalProperties"], defs)
    if "items" in node:
        out["items"] = _convert(node["items"], defs)
    return out


def _resolve(node: Schema, defs: dict[str, Schema]) -> Schema:
    """Follow references and fold ``anyOf [X, null]`` into X, keeping what stands beside them."""
    beside = {k: v for k, v in node.items() if k not in {"$ref", "anyOf", "allOf"}}
    if "$ref" in node:
        return {**_resolve(defs[node["$ref"].rpartition("/")[2]], defs), **beside}
    if "anyOf" in node:
        choices = [choice for choice in node["anyOf"] if choice.get("type") != "null"]
        if len(choices) == 1:
            return {**_resolve(choices[0], defs), **beside}
    return node
