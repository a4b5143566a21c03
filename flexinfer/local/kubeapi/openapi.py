"""OpenAPI v3 documents: paths that tell kubectl it may let the server validate, and schemas for ``explain``."""

import hashlib
from typing import Any

from flexinfer.local.kubeapi import builtin_schemas
from flexinfer.local.kubeapi.catalog import Catalog
from flexinfer.local.kubeapi.errors import no_such_path
from flexinfer.local.kubeapi.kinds import Kind
from flexinfer.local.kubeapi.objects import Json, encode
from flexinfer.local.kubeapi.responses import Response, answer

_REF = "#/components/schemas/"


def document(catalog: Catalog, path: str) -> Response:
    """The index, or the document of one group and version. Raises ApiError 404."""
    rest = path.removeprefix("/openapi/v3").strip("/")
    places = {
        (f"apis/{group}/{version}" if group else f"api/{version}"): (group, version)
        for group, versions in catalog.groups().items()
        for version in versions
    }
    if not rest:
        entries = {
            place: {"serverRelativeURL": f"/openapi/v3/{place}?hash={_hash(catalog, *address)}"}
            for place, address in places.items()
        }
        return answer({"paths": entries})
    if rest not in places:
        raise no_such_path()
    group, version = places[rest]
    return answer(_group_document(catalog.kinds(group, version)))


def _hash(catalog: Catalog, group: str, version: str) -> str:
    kinds = catalog.kinds(group, version)
    text = encode([[kind.plural, kind.schema.raw if kind.custom else ""] for kind in kinds])
    return hashlib.sha256(text).hexdigest().upper()


def _group_document(kinds: list[Kind]) -> Json:
    paths: Json = {}
    schemas: Json = {}
    for kind in kinds:
        name = schema_name(kind)
        _collect(kind, name, schemas)
        paths |= _paths(kind, name)
    info = {"title": "Kubernetes", "version": "embedded"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def schema_name(kind: Kind) -> str:
    """OpenAPI name of a kind: reversed group, version, kind for custom ones."""
    if not kind.custom:
        return builtin_schemas.definition_name(kind.group, kind.version, kind.kind)
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def _collect(kind: Kind, name: str, schemas: Json) -> None:
    definitions = builtin_schemas.definitions()
    if kind.custom:
        raw = dict(kind.schema.raw)
        meta_name = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
        built_in = definitions[builtin_schemas.definition_name("", "v1", "Namespace")]["properties"]
        head = {name: built_in[name] for name in ("apiVersion", "kind", "metadata")}
        raw["properties"] = {**(raw.get("properties") or {}), **head}
        raw["x-kubernetes-group-version-kind"] = [{"group": kind.group, "version": kind.version, "kind": kind.kind}]
        schemas[name] = raw
        todo = [meta_name]
    else:
        todo = [name]
    while todo:
        current = todo.pop()
        if current not in schemas and current in definitions:
            schemas[current] = definitions[current]
            todo += references(definitions[current])


def references(value: Any) -> list[str]:
    """Names of the definitions a schema refers to."""
    if isinstance(value, list):
        return [name for item in value for name in references(item)]
    if not isinstance(value, dict):
        return []
    found = [name for item in value.values() for name in references(item)]
    pointer = value.get("$ref")
    return [pointer.removeprefix(_REF), *found] if isinstance(pointer, str) else found


def _paths(kind: Kind, name: str) -> Json:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    collection = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}

    def operation(action: str) -> Json:
        content = {"application/json": {"schema": {"$ref": _REF + name}}}
        return {
            "tags": [kind.api_version.replace("/", "_")],
            "parameters": [_parameter("dryRun"), _parameter("fieldManager"), _parameter("fieldValidation")],
            "responses": {"200": {"description": "OK", "content": content}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
        }

    paths: Json = {
        collection: {"get": operation("list"), "post": operation("post"), "delete": operation("deletecollection")},
        f"{collection}/{{name}}": {
            "get": operation("get"),
            "put": operation("put"),
            "patch": operation("patch"),
            "delete": operation("delete"),
        },
    }
    if kind.status:
        paths[f"{collection}/{{name}}/status"] = {"get": operation("get"), "patch": operation("patch")}
    return paths


def _parameter(name: str) -> Json:
    return {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
