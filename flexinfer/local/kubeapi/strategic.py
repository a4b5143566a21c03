"""Strategic merge patch: merge patch that knows which lists are maps, told by the schema.

Directives: ``$patch`` (replace, delete, merge), ``$deleteFromPrimitiveList/<field>``,
``$setElementOrder/<field>``, ``$retainKeys``.
"""

from typing import Any

from flexinfer.local.kubeapi.errors import bad_request
from flexinfer.local.kubeapi.objects import Json, clone
from flexinfer.local.kubeapi.schema import ANY, Schema

_DELETE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


def strategic_merge(target: Any, patch: Any, schema: Schema) -> Any:
    """The patched copy; neither argument is changed. Raises ApiError 400 for a list element without its key."""
    if not isinstance(patch, dict):
        return clone(patch)
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: clone(value) for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    result: Json = dict(target) if isinstance(target, dict) else {}
    retained = patch.get("$retainKeys")
    if isinstance(retained, list):
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if not key.startswith("$"):
            _member(result, key, value, schema.member(key) or ANY, patch)
    for key, value in patch.items():
        if key.startswith("$"):
            _follow_directive(result, key, value, patch, schema)
    return result


def _follow_directive(result: Json, key: str, value: Any, patch: Json, schema: Schema) -> None:
    if key.startswith(_DELETE):
        name = key.removeprefix(_DELETE)
        if isinstance(result.get(name), list):
            result[name] = [item for item in result[name] if item not in value]
    elif key.startswith(_ORDER) and key.removeprefix(_ORDER) not in patch:
        _reorder_member(result, key.removeprefix(_ORDER), value, schema)


def _member(result: Json, key: str, value: Any, schema: Schema, patch: Json) -> None:
    if value is None:
        result.pop(key, None)
    elif isinstance(value, list):
        result[key] = _merge_list(result.get(key), value, schema, patch.get(_ORDER + key))
    else:
        result[key] = strategic_merge(result.get(key), value, schema)


def _merge_list(current: Any, patch: list[Any], schema: Schema, order: Any) -> list[Any]:
    existing = list(current) if isinstance(current, list) else []
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [clone(item) for item in patch if not (isinstance(item, dict) and item.get("$patch") == "replace")]
    if "merge" not in schema.patch_strategy:
        return list(clone(patch))
    if not schema.merge_key:
        merged = existing + [clone(item) for item in patch if item not in existing]
        return _ordered(merged, order, lambda item: item)
    key = schema.merge_key
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        existing = _merge_item(existing, item, key, schema.items or ANY)
    return _ordered(existing, order, lambda item: item.get(key) if isinstance(item, dict) else item)


def _merge_item(existing: list[Any], item: Json, key: str, schema: Schema) -> list[Any]:
    if item.get("$patch") == "delete":
        return [old for old in existing if old.get(key) != item[key]]
    for index, old in enumerate(existing):
        if old.get(key) == item[key]:
            merged = list(existing)
            merged[index] = strategic_merge(old, item, schema)
            return merged
    return [*existing, strategic_merge({}, item, schema)]


def _reorder_member(result: Json, name: str, order: Any, schema: Schema) -> None:
    child = schema.member(name) or ANY
    if isinstance(result.get(name), list):
        key = child.merge_key
        result[name] = _ordered(result[name], order, lambda item: item.get(key) if isinstance(item, dict) else item)


def _ordered(items: list[Any], order: Any, identify: Any) -> list[Any]:
    """``items`` with those named in ``order`` in that order; the others keep their places behind the one before."""
    if not isinstance(order, list):
        return items
    wanted = [identify(entry) if isinstance(entry, dict) else entry for entry in order]
    listed = [item for item in items if identify(item) in wanted]
    listed.sort(key=lambda item: wanted.index(identify(item)))
    queue = iter(listed)
    return [next(queue) if identify(item) in wanted else item for item in items]
