"""Schemas of kinds, built-in or from CRDs, as a tree that pruning, defaults, validation and merging walk."""

import re
from collections.abc import Mapping
from functools import cached_property

from flexinfer.local.kubeapi.objects import Json

Definitions = Mapping[str, Json]
_REF = "#/components/schemas/"


class Schema:
    """One node. Children are made on first use, so recursive definitions are fine."""

    def __init__(self, raw: Json, definitions: Definitions | None = None, name: str = "") -> None:
        self._definitions = definitions or {}
        self.name = name
        raw, self.name = self._resolve(raw, name)
        self.raw = raw
        self.type = str(raw.get("type", ""))
        self.nullable = bool(raw.get("nullable"))
        self.preserve = bool(raw.get("x-kubernetes-preserve-unknown-fields"))
        self.embedded = bool(raw.get("x-kubernetes-embedded-resource"))
        self.int_or_string = bool(raw.get("x-kubernetes-int-or-string")) or raw.get("format") == "int-or-string"
        self.list_type = raw.get("x-kubernetes-list-type", "atomic")
        self.list_keys = tuple(raw.get("x-kubernetes-list-map-keys", ()))
        self.atomic_map = raw.get("x-kubernetes-map-type") == "atomic"
        self.merge_key = str(raw.get("x-kubernetes-patch-merge-key", ""))
        self.patch_strategy = frozenset(str(raw.get("x-kubernetes-patch-strategy", "")).split(","))
        self._bare: Schema | None = None
        self._beside: dict[str, Schema] = {}
        self.has_default = "default" in raw

    def _resolve(self, raw: Json, name: str) -> tuple[Json, str]:
        """Follow ``$ref``, alone or in an ``allOf`` of one, with the members beside it laid over."""
        pointer = raw.get("$ref")
        beside = {key: value for key, value in raw.items() if key != "$ref"}
        parts = raw.get("allOf")
        if pointer is None and isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0].get("$ref"), str):
            pointer = parts[0]["$ref"]
            beside.pop("allOf")
        if not isinstance(pointer, str):
            return raw, name
        target = pointer.removeprefix(_REF)
        resolved, _ = self._resolve(self._definitions.get(target, {}), target)
        return {**resolved, **beside}, target

    def beside(self, members: dict[str, "Schema"]) -> "Schema":
        """This schema with members that come from elsewhere, as ``metadata`` does in a CRD."""
        self._beside = members
        return self

    @cached_property
    def properties(self) -> dict[str, "Schema"]:
        """Declared members."""
        declared = self.raw.get("properties") or {}
        return {key: Schema(value, self._definitions) for key, value in declared.items()} | self._beside

    @cached_property
    def additional(self) -> "Schema | None":
        """Schema of undeclared members, None if there may be none or it says nothing of them."""
        extra = self.raw.get("additionalProperties")
        return Schema(extra, self._definitions) if isinstance(extra, dict) else None

    @cached_property
    def items(self) -> "Schema | None":
        """Schema of list elements."""
        extra = self.raw.get("items")
        return Schema(extra, self._definitions) if isinstance(extra, dict) else None

    @cached_property
    def pattern(self) -> re.Pattern[str] | None:
        """Compiled pattern of a string."""
        return re.compile(self.raw["pattern"]) if "pattern" in self.raw else None

    @cached_property
    def open(self) -> bool:
        """Whether unknown members are kept."""
        if self.preserve or self.raw.get("additionalProperties") is True:
            return True
        if self.properties or self.additional is not None:
            return False
        # In Kubernetes' own definitions a bare object is free (FieldsV1, RawExtension); in a CRD it is empty.
        return not self.type or bool(self._definitions)

    @cached_property
    def has_rules(self) -> bool:
        """Whether CEL rules stand here or below. Only CRDs have them, and those are not recursive."""
        if self._definitions:
            return False
        if self.raw.get("x-kubernetes-validations"):
            return True
        below = [*self.properties.values(), self.additional, self.items]
        return any(child is not None and child.has_rules for child in below)

    @property
    def required(self) -> tuple[str, ...]:
        """Names that must be present."""
        return tuple(self.raw.get("required") or ())

    def without_defaults(self) -> "Schema":
        """The same schema with no defaults anywhere."""
        if self._bare is None:
            self._bare = Schema(_strip_defaults(self.raw), self._definitions, self.name).beside(self._beside)
        return self._bare

    def member(self, name: str) -> "Schema | None":
        """Schema of one member, declared or additional."""
        return self.properties.get(name) or self.additional


def _strip_defaults(raw: Json) -> Json:
    """A copy of a schema without ``default`` members; properties called ``default`` stay."""
    bare = {key: value for key, value in raw.items() if key != "default"}
    if isinstance(raw.get("properties"), dict):
        bare["properties"] = {name: _strip_defaults(child) for name, child in raw["properties"].items()}
    for word in ("items", "additionalProperties"):
        if isinstance(raw.get(word), dict):
            bare[word] = _strip_defaults(raw[word])
    return bare


ANY = Schema({})
