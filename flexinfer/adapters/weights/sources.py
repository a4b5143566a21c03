"""What a source consists of right now: files with sizes, digests and addresses, fixed to one revision."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urljoin

from flexinfer.adapters.weights.web import Web, decoded, host_of
from flexinfer.core.lifecycle.fetching import registry
from flexinfer.core.lifecycle.fetching.entries import Form
from flexinfer.core.lifecycle.fetching.failures import FetchFailed
from flexinfer.core.lifecycle.fetching.listing import RemoteFile, chosen, safe
from flexinfer.core.lifecycle.fetching.registry import Reference
from flexinfer.core.lifecycle.sources import Source

_NEXT = re.compile(r'<([^>]+)>;\s*rel="?next"?')
_MAX_PAGES = 1000
OLLAMA_HOST = "registry.ollama.ai"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where hub and registries are; mirrors go here. URLs without a path."""

    hub: str = "https://huggingface.co"
    ollama: str = f"https://{OLLAMA_HOST}"


@dataclass(frozen=True, slots=True)
class Plan:
    """``revision``: what a moving name stood for. ``extra``: small files to be written as they are."""

    files: tuple[RemoteFile, ...]
    revision: str
    extra: Mapping[str, bytes]


async def plan_of(web: Web, source: Source, form: Form, at: Addresses) -> Plan:
    """Raises FetchFailed."""
    match source.scheme:
        case "hf" if form == "store":
            variant = f":{source.variant}" if source.variant else ""
            reference = registry.ollama_reference(f"hf.co/{source.location}{variant}", "hf.co")
            return await _store(web, reference, "hf.co", at.hub)
        case "hf":
            return await _hub(web, source, form, at.hub)
        case "ollama":
            host = at.ollama.partition("://")[2]
            reference = registry.ollama_reference(source.location, host)
            named = OLLAMA_HOST if reference.host == host else reference.host
            return await _store(web, reference, named, at.ollama if reference.host == host else _url(reference.host))
        case "oci":
            return await _artifact(web, source)
        case _:
            raise FetchFailed("SourceNotFound", f"{source.scheme}:// is used where it is and never copied")


async def _hub(web: Web, source: Source, form: Form, hub: str) -> Plan:
    """The commit first, so that a branch that moves meanwhile gives no mixture."""
    repo, revision = quote(source.location), quote(source.revision or "main", safe="")
    found, _ = await web.json(f"{hub}/api/models/{repo}/revision/{revision}")
    commit = str(found.get("sha") or "") if isinstance(found, dict) else ""
    if not re.fullmatch(r"[0-9a-f]{7,64}", commit):
        raise FetchFailed("BadArtifact", f"{host_of(hub)} names no commit for {source.location}")
    files: list[RemoteFile] = []
    url = f"{hub}/api/models/{repo}/tree/{commit}?recursive=true"
    for _ in range(_MAX_PAGES):
        page, headers = await web.json(url)
        files += [_entry(one, f"{hub}/{repo}/resolve/{commit}/") for one in _files(page, hub)]
        follow = _NEXT.search(headers.get("Link", ""))
        if not follow:
            return Plan(chosen(files, source.path, source.variant, gguf=form == "gguf"), commit, {})
        url = urljoin(url, follow[1])
    raise FetchFailed("BadArtifact", f"{host_of(hub)} lists files without end")


def _files(page: object, hub: str) -> list[dict[str, Any]]:
    if not isinstance(page, list) or not all(isinstance(one, dict) for one in page):
        raise FetchFailed("BadArtifact", f"{host_of(hub)} lists no files")
    return [one for one in page if one.get("type") == "file"]


def _entry(one: dict[str, Any], base: str) -> RemoteFile:
    path = safe(str(one.get("path")))
    lfs = one.get("lfs")
    large: dict[str, Any] = lfs if isinstance(lfs, dict) else {}
    size = large.get("size", one.get("size"))
    if not isinstance(size, int) or size < 0:
        raise FetchFailed("BadArtifact", f"file {path} of the source has no size")
    sha256, git = str(large.get("oid") or ""), str(one.get("oid") or "")
    digest = f"sha256:{sha256.removeprefix('sha256:')}" if sha256 else f"git:{git}" if len(git) == 40 else ""
    return RemoteFile(path, size, digest, base + quote(path))


async def _artifact(web: Web, source: Source) -> Plan:
    reference = registry.image_reference(source.location)
    manifest, raw = await _manifest(web, reference, _url(reference.host))
    files = registry.layers(manifest, f"{_url(reference.host)}/v2/{reference.name}/blobs/")
    return Plan(files, _digest(raw), {})


async def _store(web: Web, reference: Reference, named: str, url: str) -> Plan:
    manifest, raw = await _manifest(web, reference, url)
    files = registry.store_layers(manifest, f"{url}/v2/{reference.name}/blobs/")
    return Plan(files, _digest(raw), {f"manifests/{named}/{reference.name}/{reference.tag}": raw})


async def _manifest(web: Web, reference: Reference, url: str) -> tuple[Mapping[str, Any], bytes]:
    """The manifest of this platform, checked against the digest that names it. Raises FetchFailed."""
    tag = reference.tag
    for _ in range(2):
        where = f"{url}/v2/{reference.name}/manifests/{tag}"
        raw, headers = await web.document(where, registry.ACCEPT)
        promised = tag if tag.startswith("sha256:") else headers.get("Docker-Content-Digest", "")
        if promised.startswith("sha256:") and promised != _digest(raw):
            raise FetchFailed("DigestMismatch", f"the manifest {reference.name}:{tag} is not {promised}")
        found = decoded(raw, where)
        if not isinstance(found, dict):
            raise FetchFailed("BadArtifact", f"the manifest {reference.name}:{tag} is no object")
        inner = registry.platform_manifest(found)
        if inner is None:
            return found, raw
        tag = inner
    raise FetchFailed("BadArtifact", f"the index {reference.name} names another index")


def _digest(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def _url(host: str) -> str:
    """Plain HTTP on this machine only, as container engines do."""
    name = host.rpartition(":")[0] or host
    return f"http://{host}" if name in {"localhost", "127.0.0.1", "[::1]"} else f"https://{host}"
