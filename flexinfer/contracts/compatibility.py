"""What the compatibility promise forbids between two versions of one event's JSON Schema.

Both directions count: a reader of the old release gets new events, a reader of the new one gets old events from a
tape. So within one major version the only change is a further field that need not be there.
"""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern", "format")


def breaks(old: Schema, new: Schema) -> list[str]:
    """Each break in words with the path of the field; empty when the promise is kept."""
    return list(_walk(_Side(old), _Side(new), "", set()))


class _Side:
    """One place in a schema: its alternatives with references followed."""

    def __init__(self, here: Schema, root: Schema | None = None) -> None:
        self.root = here if root is None else root
        self.forms: dict[str, Schema] = {}
        for form in here.get("anyOf") or (here,):
            found = form
            while "$ref" in found:
                found = self.root["$defs"][found["$ref"].rpartition("/")[2]]
            self.forms[_kind(found)] = found

    def at(self, kind: str, *keys: str) -> "_Side | None":
        found: Any = self.forms[kind]
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return _Side(found, self.root) if isinstance(found, dict) else None


def _kind(form: Schema) -> str:
    if "enum" in form:
        return "enum"
    return str(form.get("type", "anything"))


def _walk(old: _Side, new: _Side, path: str, seen: set[tuple[int, int]]) -> Iterator[str]:
    where = path or "the payload"
    if old.forms.keys() != new.forms.keys():
        yield f"{where}: was {_words(old)}, is {_words(new)}"
    for kind in sorted(old.forms.keys() & new.forms.keys()):
        before, after = old.forms[kind], new.forms[kind]
        if (id(before), id(after)) in seen:
            continue
        seen.add((id(before), id(after)))
        yield from _values(before, after, where)
        yield from _fields(old, new, kind, path, seen)


def _words(side: _Side) -> str:
    return " or ".join(sorted(side.forms))


def _values(before: Schema, after: Schema, where: str) -> Iterator[str]:
    gone = sorted(map(str, set(before.get("enum", ())) - set(after.get("enum", ()))))
    more = sorted(map(str, set(after.get("enum", ())) - set(before.get("enum", ()))))
    if gone:
        yield f"{where}: no longer knows {', '.join(gone)}"
    if more:
        yield f"{where}: may be {', '.join(more)}, which released readers reject"
    for bound in _BOUNDS:
        if before.get(bound) != after.get(bound):
            yield f"{where}: {bound} was {before.get(bound)}, is {after.get(bound)}"


def _fields(old: _Side, new: _Side, kind: str, path: str, seen: set[tuple[int, int]]) -> Iterator[str]:
    before, after = old.forms[kind], new.forms[kind]
    for name in before.get("properties") or ():
        at = f"{path}.{name}" if path else name
        inner = new.at(kind, "properties", name)
        if inner is None:
            yield f"{at}: is gone"
        else:
            yield from _walk(old.at(kind, "properties", name) or old, inner, at, seen)
    required = (set(before.get("required") or ()), set(after.get("required") or ()))
    yield from (f"{path}.{name}".lstrip(".") + ": must be there now" for name in sorted(required[1] - required[0]))
    yield from (f"{path}.{name}".lstrip(".") + ": may be missing now" for name in sorted(required[0] - required[1]))
    for key, sign in (("items", "[]"), ("additionalProperties", "{}")):
        parts = old.at(kind, key), new.at(kind, key)
        if parts[0] and parts[1]:
            yield from _walk(parts[0], parts[1], path + sign, seen)
        elif parts[0] or parts[1]:
            yield f"{path}{sign}: is described by one version only"
