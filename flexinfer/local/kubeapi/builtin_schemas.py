"""OpenAPI schemas of the built-in kinds, from the Kubernetes release named in ``schemas/README.md``."""

from functools import cache
from importlib.resources import files

import orjson

from flexinfer.local.kubeapi.objects import Json
from flexinfer.local.kubeapi.schema import Schema


@cache
def definitions() -> dict[str, Json]:
    """All definitions by their OpenAPI name."""
    text = files(__package__).joinpath("schemas/builtin.jsonl").read_bytes()
    entries = [orjson.loads(line) for line in text.splitlines() if line]
    return {entry["name"]: entry["schema"] for entry in entries}


@cache
def _by_kind() -> dict[tuple[str, str, str], str]:
    return {
        (gvk["group"], gvk["version"], gvk["kind"]): name
        for name, schema in definitions().items()
        for gvk in schema.get("x-kubernetes-group-version-kind", ())
    }


def definition_name(group: str, version: str, kind: str) -> str:
    """OpenAPI name of a kind. Raises KeyError."""
    return _by_kind()[(group, version, kind)]


@cache
def schema_of(group: str, version: str, kind: str) -> Schema:
    """Schema of a built-in kind. Raises KeyError."""
    name = definition_name(group, version, kind)
    return Schema(definitions()[name], definitions(), name)


@cache
def object_meta() -> Schema:
    """Schema of ``metadata``."""
    name = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    return Schema(definitions()[name], definitions(), name)
