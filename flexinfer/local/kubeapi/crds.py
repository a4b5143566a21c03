"""CustomResourceDefinitions: what makes one valid, and the resource types it adds."""

import re

from flexinfer.local.kubeapi.builtin_schemas import object_meta
from flexinfer.local.kubeapi.catalog import Catalog
from flexinfer.local.kubeapi.cel import compile_problem
from flexinfer.local.kubeapi.errors import Cause, not_allowed, required, wrong
from flexinfer.local.kubeapi.kinds import Column, Kind, ScalePaths
from flexinfer.local.kubeapi.objects import Json, at, meta, timestamp
from flexinfer.local.kubeapi.schema import Schema
from flexinfer.local.kubeapi.store import Change

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
BUCKET = "customresourcedefinitions.apiextensions.k8s.io"


def default_crd(crd: Json) -> None:
    """Fill in names and conversion, in place."""
    spec = crd.setdefault("spec", {})
    names = spec.setdefault("names", {})
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})
    status = crd.get("status")
    if isinstance(status, dict):
        status["acceptedNames"] = names
        stored = [v.get("name") for v in spec.get("versions") or () if isinstance(v, dict) and v.get("storage")]
        status["storedVersions"] = list(dict.fromkeys([*status.get("storedVersions", ()), *stored]))


def create_crd(crd: Json) -> None:
    """Status and finalizer of a new definition: it is served at once, so it is established at once."""
    finalizers = crd["metadata"].setdefault("finalizers", [])
    if CLEANUP not in finalizers:
        finalizers.append(CLEANUP)
    # The creation time is the only clock a strategy sees, and it is now.
    stamp = crd["metadata"].get("creationTimestamp") or timestamp(0)
    crd["status"] = {
        "acceptedNames": at(crd, "spec", "names"),
        "conditions": [
            _condition("NamesAccepted", "NoConflicts", "no conflicts found", stamp),
            _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", stamp),
        ],
        "storedVersions": [],
    }
    default_crd(crd)


def _condition(kind: str, reason: str, message: str, stamp: str) -> Json:
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": stamp}


def check_crd(crd: Json) -> list[Cause]:
    """What is wrong with a definition."""
    spec = crd["spec"]
    names = spec.get("names") or {}
    found = [required(f"spec.names.{field}") for field in ("plural", "kind") if not names.get(field)]
    if not spec.get("group"):
        found.append(required("spec.group"))
    if found:
        return found
    expected = f"{names['plural']}.{spec['group']}"
    if meta(crd)["name"] != expected:
        found.append(wrong("metadata.name", meta(crd)["name"], 'must be spec.names.plural+"."+spec.group'))
    versions = spec.get("versions") or []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        found.append(wrong("spec.versions", versions, "must have exactly one version marked as storage version"))
    for index, version in enumerate(versions):
        place = f"spec.versions[{index}].schema.openAPIV3Schema"
        schema = at(version, "schema", "openAPIV3Schema")
        if not isinstance(schema, dict):
            found.append(required(place, "schemas are required"))
        else:
            found += structural_causes(schema, place, root=True)
    return found


def structural_causes(schema: Json, path: str, *, root: bool = False) -> list[Cause]:
    """Where a schema is not structural: types missing, or specified only inside a logical junctor."""
    found: list[Cause] = []
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not schema.get("type") and (root or not free):
        found.append(required(f"{path}.type", "must not be empty for specified object fields"))
    if root and schema.get("type") not in (None, "object"):
        found.append(wrong(f"{path}.type", schema["type"], "must be object at the root"))
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        found.append(required(f"{path}.items", "must be specified"))
    if schema.get("properties") and isinstance(schema.get("additionalProperties"), dict):
        found.append(
            not_allowed(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
        )
    found += _rule_causes(schema, path)
    if "pattern" in schema and not _compiles(schema["pattern"]):
        found.append(wrong(f"{path}.pattern", schema["pattern"], "must be a valid regular expression"))
    for name, child in (schema.get("properties") or {}).items():
        found += structural_causes(child, f"{path}.properties[{name}]")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            found += structural_causes(schema[word], f"{path}.{word}")
    return found


def _rule_causes(schema: Json, path: str) -> list[Cause]:
    found: list[Cause] = []
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        problem = compile_problem(rule.get("rule", ""))
        if problem:
            place = f"{path}.x-kubernetes-validations[{index}].rule"
            found.append(wrong(place, rule["rule"], f"compilation failed: {problem}"))
    return found


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def kinds_of(crd: Json) -> list[Kind]:
    """The served versions of a valid definition."""
    spec = crd["spec"]
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    return [_kind(spec, version, storage) for version in spec["versions"] if version.get("served")]


def _kind(spec: Json, version: Json, storage: str) -> Kind:
    names = spec["names"]
    sub = version.get("subresources") or {}
    scale = sub.get("scale")
    return Kind(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        singular=names.get("singular", ""),
        namespaced=spec.get("scope") == "Namespaced",
        short=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status="status" in sub,
        scale=_scale(scale) if isinstance(scale, dict) else None,
        generation=True,
        unconditional_update=False,
        storage_version=storage,
        custom=True,
        columns=tuple(_column(column) for column in version.get("additionalPrinterColumns") or ()),
        selectable=tuple(field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ()),
        list_kind=names.get("listKind", ""),
        schema=Schema(version["schema"]["openAPIV3Schema"]).beside({"metadata": object_meta()}),
    )


def _scale(raw: Json) -> ScalePaths:
    return ScalePaths(
        raw["specReplicasPath"].lstrip("."),
        raw["statusReplicasPath"].lstrip("."),
        (raw.get("labelSelectorPath") or "").lstrip("."),
    )


def _column(raw: Json) -> Column:
    return Column(
        raw["name"],
        raw["type"],
        raw["jsonPath"],
        raw.get("description", ""),
        raw.get("priority", 0),
        raw.get("format", ""),
    )


def register(catalog: Catalog, change: Change) -> None:
    """Keep the catalog in step with a change of a definition."""
    if change.bucket != BUCKET:
        return
    spec = change.after.obj["spec"]
    kinds = [] if change.type == "DELETED" else kinds_of(change.after.obj)
    catalog.remove(spec["group"], spec["names"]["plural"], keep=[kind.version for kind in kinds])
    for kind in kinds:
        catalog.add(kind)
