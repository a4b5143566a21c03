"""What admission decides about a model that is being written: whether it can work, and what it leaves to us.

The rules are those the manager applies later; saying them when the object is written saves a look at its status.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from flexinfer.contracts.crds import Model, ModelDeployment
from flexinfer.contracts.crds.schema import Schema, structural
from flexinfer.contracts.kubernetes import MODELDEPLOYMENTS, MODELS, Object
from flexinfer.core.lifecycle.description import Problem
from flexinfer.core.lifecycle.reading import describe

KINDS = (MODELS.kind, MODELDEPLOYMENTS.kind)
LONGEST_WARNING = 256  # the API server cuts longer ones
MOST_WARNINGS = 10


@dataclass(frozen=True, slots=True)
class Verdict:
    """``refusal``: why the object is not accepted, a sentence with the remedy; empty if it is."""

    refusal: str = ""
    warnings: tuple[str, ...] = ()


def judge(obj: Object, old: Object | None = None) -> Verdict:
    """Whether the object can work. Never raises for what a user can write.

    An update that leaves the spec alone, and one of an object that is being deleted, always passes: finalizers and
    labels must not hang on a rule that is younger than the object.
    """
    if obj.get("kind") not in KINDS:
        return Verdict()
    meta = obj.get("metadata") or {}
    if meta.get("deletionTimestamp") or (old is not None and old.get("spec") == obj.get("spec")):
        return Verdict()
    named = {**obj, "metadata": {**meta, "name": meta.get("name") or meta.get("generateName") or "unnamed"}}
    found = describe(named)
    if isinstance(found, Problem):
        return Verdict(found.sentence)
    lines = [f"{field} has no effect: {remedy}"[:LONGEST_WARNING] for field, remedy in found.ignored]
    return Verdict(warnings=tuple(lines[:MOST_WARNINGS]))


def completed(obj: Object) -> Any:
    """The spec with every default of the CRD written out, and with fields of earlier releases in their new place.

    What cannot be understood is returned as it is: ``judge`` says why.
    """
    spec = obj.get("spec")
    if obj.get("kind") not in KINDS or not isinstance(spec, dict):
        return spec
    found: dict[str, Any] = copy.deepcopy(spec)
    _fill(found, _spec_schema(str(obj["kind"])))
    earlier, gpu = found.get("vramEstimateMB"), found.get("gpu")
    if earlier is not None and isinstance(gpu, dict):
        gpu.setdefault("vramEstimateMB", earlier)
    return found


@cache
def _spec_schema(kind: str) -> Schema:
    cls = Model if kind == MODELS.kind else ModelDeployment
    schema: Schema = structural(cls)["properties"]["spec"]
    return schema


def _fill(value: dict[str, Any], schema: Mapping[str, Any]) -> None:
    """As the API server does it: a default is put where the key is absent, then filled in itself."""
    for name, part in (schema.get("properties") or {}).items():
        if name not in value and "default" in part:
            value[name] = copy.deepcopy(part["default"])
        inner = value.get(name)
        if isinstance(inner, dict):
            _fill(inner, part)
        elif isinstance(inner, list):
            for item in inner:
                if isinstance(item, dict):
                    _fill(item, part.get("items") or {})
