"""Discovery: which groups, versions and resources there are, and the server's version."""

import hashlib

from flexinfer.local.kubeapi import openapi
from flexinfer.local.kubeapi.catalog import Catalog
from flexinfer.local.kubeapi.errors import no_such_path
from flexinfer.local.kubeapi.kinds import VERBS, Kind
from flexinfer.local.kubeapi.objects import Json, encode
from flexinfer.local.kubeapi.requests import Request
from flexinfer.local.kubeapi.responses import Response, answer

VERSION = "v1.36.2"
_OWN_VERBS = {
    "binding": ["create"], "eviction": ["create"], "token": ["create"], "log": ["get"], "finalize": ["update"],
}  # fmt: skip
_OWN_KINDS = {
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
    "scale": ("autoscaling", "v1", "Scale"),
}


class Documents:
    """Answers everything that is not a resource."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def answer(self, request: Request) -> Response | None:
        """The document at this path, or None if it may be a resource. Raises ApiError 404."""
        path = request.path.rstrip("/")
        if path in ("/healthz", "/livez", "/readyz"):
            return Response(200, b"ok", b"text/plain; charset=utf-8")
        if path == "/version":
            return answer(version_info())
        if path == "/openapi/v2":
            raise no_such_path()
        if path.startswith("/openapi/v3"):
            return openapi.document(self._catalog, path)
        return self._discovery(path, request)

    def _discovery(self, path: str, request: Request) -> Response | None:
        parts = path.split("/")[1:]
        aggregated = "as=APIGroupDiscoveryList" in request.headers.get("accept", "")
        match parts:
            case ["api"] | ["apis"] if aggregated:
                return self._aggregated(core=parts == ["api"], request=request)
            case ["api"]:
                return answer({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
            case ["apis"]:
                groups = [_group(name, versions) for name, versions in self._catalog.groups().items() if name]
                return answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
            case ["apis", name]:
                versions = self._catalog.groups().get(name)
                if not versions:
                    raise no_such_path()
                return answer({"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)})
            case ["api", version]:
                return self._resources("", version)
            case ["apis", name, version]:
                return self._resources(name, version)
        return None

    def _resources(self, group: str, version: str) -> Response:
        kinds = self._catalog.kinds(group, version)
        if not kinds:
            raise no_such_path()
        resources = [entry for kind in kinds for entry in _plain(kind)]
        group_version = f"{group}/{version}" if group else version
        return answer(
            {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}
        )

    def _aggregated(self, *, core: bool, request: Request) -> Response:
        items = []
        for name, versions in self._catalog.groups().items():
            if (name == "") is not core:
                continue
            entries = [
                {
                    "version": version,
                    "freshness": "Current",
                    "resources": [_entry(kind) for kind in self._catalog.kinds(name, version)],
                }
                for version in versions
            ]
            items.append({"metadata": {"name": name} if name else {}, "versions": entries})
        version = "v2beta1" if "v=v2beta1" in request.headers.get("accept", "").split(",")[0] else "v2"
        head = {"kind": "APIGroupDiscoveryList", "apiVersion": f"apidiscovery.k8s.io/{version}", "metadata": {}}
        body = encode({**head, "items": items})
        media = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
        tag = hashlib.sha256(body).hexdigest().upper()
        if request.headers.get("if-none-match", "").strip('"') == tag:
            return Response(304, b"", media.encode(), ((b"etag", f'"{tag}"'.encode()),))
        return Response(200, body, media.encode(), ((b"etag", f'"{tag}"'.encode()),))


def version_info() -> Json:
    """``/version``. The build metadata says what this is: no real control plane."""
    return {
        "major": "1",
        "minor": "36",
        "gitVersion": f"{VERSION}+flexinfer-embedded",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "python",
    }


def _group(name: str, versions: list[str]) -> Json:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _plain(kind: Kind) -> list[Json]:
    main: Json = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(VERBS),
        "storageVersionHash": hashlib.sha256(kind.bucket.encode()).hexdigest()[:12],
    }
    if kind.short:
        main["shortNames"] = list(kind.short)
    if kind.categories:
        main["categories"] = list(kind.categories)
    entries = [main]
    for name, verbs, (group, version, owner) in _subresources(kind):
        entry: Json = {
            "name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced,
            "kind": owner, "verbs": verbs,
        }  # fmt: skip
        if (group, version) != (kind.group, kind.version):
            entry |= {"group": group, "version": version}
        entries.append(entry)
    return entries


def _entry(kind: Kind) -> Json:
    entry: Json = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(VERBS),
    }
    if kind.short:
        entry["shortNames"] = list(kind.short)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    subresources = [
        {
            "subresource": name,
            "responseKind": {"group": group, "version": version, "kind": owner},
            "verbs": verbs,
        }
        for name, verbs, (group, version, owner) in _subresources(kind)
    ]
    if subresources:
        entry["subresources"] = subresources
    return entry


def _subresources(kind: Kind) -> list[tuple[str, list[str], tuple[str, str, str]]]:
    own = (kind.group, kind.version, kind.kind)
    found = []
    if kind.status:
        found.append(("status", ["get", "patch", "update"], own))
    if kind.scale:
        found.append(("scale", ["get", "patch", "update"], _OWN_KINDS["scale"]))
    found += [(name, _OWN_VERBS[name], _OWN_KINDS.get(name, own)) for name in kind.subresources]
    return found
