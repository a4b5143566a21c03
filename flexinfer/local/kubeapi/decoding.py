"""From a request body to an object in the form of its kind: types checked, unknown fields pruned, defaults set."""

from typing import Any

from flexinfer.local.kubeapi import builtin_schemas
from flexinfer.local.kubeapi.catalog import schema_for
from flexinfer.local.kubeapi.errors import bad_request
from flexinfer.local.kubeapi.kinds import Kind
from flexinfer.local.kubeapi.objects import Json, clone, drop_nulls
from flexinfer.local.kubeapi.pruning import fill, normalise_quantities, object_errors, prune
from flexinfer.local.kubeapi.schema import Schema


def decode(kind: Kind, body: Any, validation: str = "", warnings: list[str] | None = None) -> Json:
    """A new object; ``validation`` is ``fieldValidation`` (Strict, Warn or Ignore). Raises ApiError 400."""
    if not isinstance(body, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.kind})")
    _check_type(kind, body)
    obj: Json = clone(body) if kind.custom else drop_nulls(body)
    metadata = obj.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise _undecodable(kind, "cannot unmarshal metadata into Go value of type ObjectMeta")
    obj["metadata"] = drop_nulls(metadata)
    unknown: list[str] = []
    obj = _custom(kind, obj, unknown) if kind.custom else _builtin(kind, obj, unknown)
    if unknown and validation == "Strict":
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise _undecodable(kind, f"strict decoding error: {listed}")
    if unknown and validation == "Warn" and warnings is not None:
        warnings += [f'unknown field "{path}"' for path in unknown]
    return kind.head() | {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}


def _check_type(kind: Kind, body: Json) -> None:
    api_version, name = body.get("apiVersion"), body.get("kind")
    if name is None and api_version is None:
        return
    if name != kind.kind:
        raise bad_request(f"the object provided is of kind {name!r}, not {kind.kind}")
    if api_version != kind.api_version:
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({kind.api_version})"
        )


def _undecodable(kind: Kind, why: str) -> Exception:
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


def _builtin(kind: Kind, obj: Json, unknown: list[str]) -> Json:
    schema = schema_for(kind)
    errors = object_errors(obj, schema)
    if errors:
        raise _undecodable(kind, f"json: {errors[0]}")
    obj = normalise_quantities(obj, schema)
    pruned: Json = prune(obj, schema, "", unknown)
    return pruned


def _custom(kind: Kind, obj: Json, unknown: list[str]) -> Json:
    metadata = obj.pop("metadata")
    errors = object_errors({"metadata": metadata}, _META)
    if errors:
        raise _undecodable(kind, f"json: {errors[0]}")
    head: Json = {key: obj.pop(key) for key in ("apiVersion", "kind") if key in obj}
    prune(metadata, builtin_schemas.object_meta(), "metadata", unknown)
    schema = schema_for(kind)
    prune(obj, schema, "", unknown)
    fill(obj, schema)
    return head | {"metadata": metadata} | obj


_META = Schema(
    {"type": "object", "properties": {"metadata": builtin_schemas.object_meta().raw}}, builtin_schemas.definitions()
)
