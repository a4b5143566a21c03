"""Server-side apply: who owns which field, what an apply removes, and when two managers collide."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from flexinfer.local.kubeapi.errors import ApiError
from flexinfer.local.kubeapi.fieldsets import (
    FieldSet,
    Path,
    changed_fields,
    decode_fields,
    element_segment,
    encode_fields,
    fields_of,
    remove,
    same,
)
from flexinfer.local.kubeapi.lastapplied import KUBECTL, last_applied, write_last_applied
from flexinfer.local.kubeapi.objects import Json, clone, meta
from flexinfer.local.kubeapi.schema import ANY, Schema


@dataclass(frozen=True, slots=True)
class Owner:
    """Who a field set belongs to; the time is not part of the identity."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""


Owners = dict[Owner, FieldSet]


def owners_of(obj: Json) -> tuple[Owners, dict[Owner, str]]:
    """The managers recorded in an object, and when each last wrote."""
    owners: Owners = {}
    times: dict[Owner, str] = {}
    for entry in meta(obj).get("managedFields") or ():
        owner = Owner(
            str(entry.get("manager", "")),
            str(entry.get("operation", "Update")),
            str(entry.get("apiVersion", "")),
            str(entry.get("subresource", "")),
        )
        owners[owner] = decode_fields(entry.get("fieldsV1") or {})
        times[owner] = str(entry.get("time", ""))
    return owners, times


def record_owners(obj: Json, owners: Mapping[Owner, FieldSet], times: Mapping[Owner, str], now: str) -> None:
    """Write ``managedFields``; owners without a time, or missing from ``times``, get ``now``."""
    entries: list[Json] = []
    for owner, fields in owners.items():
        if not fields:
            continue
        entry: Json = {
            "manager": owner.manager,
            "operation": owner.operation,
            "apiVersion": owner.api_version,
            "time": times.get(owner) or now,
            "fieldsType": "FieldsV1",
            "fieldsV1": encode_fields(fields),
        }
        if owner.subresource:
            entry["subresource"] = owner.subresource
        entries.append(entry)
    if entries:
        obj["metadata"]["managedFields"] = entries
    else:
        obj["metadata"].pop("managedFields", None)


def apply(live: Json, wanted: Json, schema: Schema, owner: Owner, *, force: bool, now: str) -> Json:
    """``live`` after ``owner`` applied ``wanted``. Raises ApiError 409 naming each field another manager owns
    with another value, unless ``force``, which takes those fields over."""
    owners, times = owners_of(live)
    if not owners:
        # What was written before anyone applied belongs to whoever wrote it: a first apply must not win silently.
        before = Owner("before-first-apply", "Update", owner.api_version)
        owners[before] = fields_of(live, schema)
    claimed = fields_of(wanted, schema)
    previous = owners.get(owner, frozenset())
    collisions = _collisions(owners, owner, claimed, live, wanted, schema)
    if collisions and not force and not _taken_from_client(owner, collisions, live, schema):
        raise _conflict(collisions)
    for other, paths in collisions.items():
        owners[other] -= paths
    result: Json = merge(live, wanted, schema)
    others = frozenset[Path]().union(*(fields for other, fields in owners.items() if other != owner))
    _prune(result, previous - claimed, claimed | others, schema)
    if owner.manager == KUBECTL:
        write_last_applied(result, wanted)
    owners[owner] = claimed
    times.pop(owner, None)
    record_owners(result, owners, times, now)
    return result


def _taken_from_client(owner: Owner, collisions: dict[Owner, FieldSet], live: Json, schema: Schema) -> bool:
    """Whether kubectl collides only with what it applied itself before, from the client side."""
    if owner.manager != KUBECTL:
        return False
    applied = last_applied(live)
    if applied is None:
        return False
    own = fields_of(applied, schema)
    return all(paths <= own for paths in collisions.values())


def _collisions(
    owners: Owners, owner: Owner, claimed: FieldSet, live: Json, wanted: Json, schema: Schema
) -> dict[Owner, FieldSet]:
    found: dict[Owner, FieldSet] = {}
    for other, fields in owners.items():
        if other == owner:
            continue
        paths = frozenset(path for path in fields & claimed if not same(live, wanted, path, schema))
        if paths:
            found[other] = paths
    return found


def _conflict(collisions: dict[Owner, FieldSet]) -> ApiError:
    found = [(_named(other), [display(path) for path in sorted(paths)]) for other, paths in collisions.items()]
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {by}", "field": field}
        for by, fields in found
        for field in fields
    ]
    if len(causes) == 1:
        text = f"1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        parts = ("\n- ".join([f"conflicts with {by}:", *fields]) for by, fields in found)
        text = f"{len(causes)} conflicts: " + "\n".join(parts)
    return ApiError(409, "Conflict", f"Apply failed with {text}", details={"causes": causes})


def _named(owner: Owner) -> str:
    by = f'"{owner.manager}"'
    if owner.subresource:
        by += f' with subresource "{owner.subresource}"'
    return f"{by} using {owner.api_version}" if owner.operation == "Update" else by


def display(path: Path) -> str:
    """A path as messages show it: ``.spec.containers[name="x"].image``."""
    text = ""
    for segment in path:
        kind, _, rest = segment.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            text += "[" + rest.strip("{}").replace('":', "=").replace('"', "", 1).replace(',"', ",") + "]"
        else:
            text += f"[={rest}]"
    return text


def merge(live: Any, wanted: Any, schema: Schema) -> Any:
    """``wanted`` laid over ``live`` by the list and map types of the schema; a new value."""
    if isinstance(wanted, dict) and isinstance(live, dict) and not schema.atomic_map:
        result = dict(live)
        for name, value in wanted.items():
            result[name] = merge(live.get(name), value, schema.member(name) or ANY)
        return result
    if isinstance(wanted, list) and isinstance(live, list) and schema.list_type in ("map", "set"):
        return _merge_list(live, wanted, schema)
    return clone(wanted)


def _merge_list(live: list[Any], wanted: list[Any], schema: Schema) -> list[Any]:
    """Elements of ``wanted`` in their order; those only in ``live`` stay where they are, before what comes new."""
    existing = {element_segment(item, schema): item for item in live}
    claimed = {element_segment(item, schema): item for item in wanted}
    merged: dict[str, Any] = {}
    ahead = list(existing)
    for segment, item in claimed.items():
        while ahead and ahead[0] != segment and (ahead[0] not in claimed or ahead[0] in merged):
            passed = ahead.pop(0)
            merged.setdefault(passed, existing[passed])
        if ahead and ahead[0] == segment:
            ahead.pop(0)
        merged[segment] = merge(existing.get(segment), item, schema.items or ANY)
    for segment in ahead:
        merged.setdefault(segment, existing[segment])
    return list(merged.values())


def _prune(result: Json, dropped: FieldSet, held: FieldSet, schema: Schema) -> None:
    """Remove from ``result`` the fields in ``dropped`` that nobody holds any more."""
    detached = clone(result)
    # Whole list elements go before their members: without its key a remainder could not be found again.
    for path in sorted(dropped, key=len):
        if not _is_key(path) and not any(other[: len(path)] == path for other in held):
            remove(detached, path, schema)
    result.clear()
    result.update(detached)


def _is_key(path: Path) -> bool:
    """Whether the path is a key member of a list element; it lives and dies with the element."""
    return len(path) > 1 and path[-2].startswith("k:") and path[-1][2:] in orjson.loads(path[-2][2:])


def track_update(before: Json, after: Json, schema: Schema, owner: Owner, now: str) -> None:
    """Move ownership after a write that was not an apply, on objects that somebody applied before.

    Objects nobody ever applied carry no ``managedFields``: recording them on every object would double its size
    for nobody's benefit.
    """
    owners, times = owners_of(before)
    if not owners:
        after["metadata"].pop("managedFields", None)
        return
    altered, removed = changed_fields(before, after, schema)
    for other in owners:
        if other != owner:
            owners[other] -= altered | removed
    if altered:
        owners[owner] = (owners.get(owner, frozenset()) | altered) - removed
        times.pop(owner, None)
    record_owners(after, owners, times, now)
