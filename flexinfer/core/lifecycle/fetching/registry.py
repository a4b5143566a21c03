"""The registry protocol of container images, as OCI artifacts and ollama models use it: names, challenges, manifests.

OCI distribution and image specifications 1.1; ollama's registry speaks the same with its own media types.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flexinfer.core.lifecycle.fetching.failures import FetchFailed
from flexinfer.core.lifecycle.fetching.listing import RemoteFile, safe

_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
ACCEPT = ", ".join(_MANIFESTS)
TITLE, MODEL_PATH, UNPACK = (
    "org.opencontainers.image.title",
    "org.cncf.model.filepath",
    "io.deis.oras.content.unpack",
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TAR = re.compile(r".*(tar|tar\+gzip|tar\.gzip)$")


@dataclass(frozen=True, slots=True)
class Reference:
    """One manifest: ``host`` of the registry, ``name`` of the repository, ``tag`` or digest."""

    host: str
    name: str
    tag: str

    @property
    def by_digest(self) -> bool:
        """Whether the content is fixed by the name itself."""
        return bool(_DIGEST.fullmatch(self.tag))


def image_reference(text: str) -> Reference:
    """``registry/name:tag`` or ``…@sha256:…``, with the defaults container engines have.

    >>> image_reference("localhost:5000/m/qwen:1"), image_reference("alpine").name
    (Reference(host='localhost:5000', name='m/qwen', tag='1'), 'library/alpine')
    """
    first, slash, rest = text.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        host, path = first, rest
    else:
        host, path = "registry-1.docker.io", text if slash else f"library/{text}"
    if host == "docker.io":
        host = "registry-1.docker.io"
    return _split(host, path)


def ollama_reference(text: str, host: str) -> Reference:
    """``name:tag``, ``user/name:tag`` or ``host/user/name:tag``.

    >>> ollama_reference("llama3:8b", "r"), ollama_reference("hf.co/o/m:Q4_0", "r")
    (Reference(host='r', name='library/llama3', tag='8b'), Reference(host='hf.co', name='o/m', tag='Q4_0'))
    """
    parts = text.split("/")
    if len(parts) >= 3:
        return _split(parts[0], "/".join(parts[1:]))
    return _split(host, text if len(parts) == 2 else f"library/{text}")


def _split(host: str, path: str) -> Reference:
    name, at, digest = path.partition("@")
    stem, colon, tag = name.rpartition(":")
    if colon and "/" not in tag:
        name = stem
    else:
        tag = "latest"
    return Reference(host, name, digest if at else tag)


def challenge(header: str) -> Mapping[str, str] | None:
    """Parameters of ``WWW-Authenticate: Bearer …``; None for another scheme.

    >>> challenge('Bearer realm="https://a/t",service="r",scope="repository:m:pull"')["realm"]
    'https://a/t'
    """
    scheme, _, rest = header.strip().partition(" ")
    if scheme.lower() != "bearer":
        return None
    found = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(rest)}
    return found if found.get("realm") else None


_PARAMETER = re.compile(r'([A-Za-z_]+)=(?:"([^"]*)"|([^",\s]+))')


def platform_manifest(index: Mapping[str, Any]) -> str | None:
    """Digest of the manifest of an index that fits a Linux server; None where the document is no index."""
    entries = index.get("manifests")
    if not isinstance(entries, list):
        return None
    found = [e for e in entries if isinstance(e, dict) and _DIGEST.fullmatch(str(e.get("digest")))]
    plain = [e for e in found if _fits(e.get("platform"))]
    if not plain:
        raise FetchFailed("SourceNotFound", "the source has nothing for Linux on this machine's kind")
    return str(plain[0]["digest"])


def _fits(platform: object) -> bool:
    if not isinstance(platform, dict):
        return True
    return platform.get("os") == "linux" and platform.get("architecture") in {"amd64", "arm64", "unknown", ""}


def layers(manifest: Mapping[str, Any], blobs: str) -> tuple[RemoteFile, ...]:
    """The files of an artifact: a layer each, named by its annotation, or an archive. ``blobs``: URL before a digest.
    Raises FetchFailed."""
    found = [_layer(layer, blobs) for layer in _list(manifest)]
    unnamed = [file for file in found if not file.path and not file.unpack]
    if len(unnamed) == len(found):
        raise FetchFailed("BadArtifact", "the layers of the artifact have no names")
    return tuple(file for file in found if file.path or file.unpack)


def _list(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = manifest.get("layers")
    if not isinstance(found, list) or not found or not all(isinstance(layer, dict) for layer in found):
        raise FetchFailed("BadArtifact", "the manifest has no layers")
    return found


def blob(layer: Mapping[str, Any], blobs: str, path: str = "", *, unpack: bool = False) -> RemoteFile:
    """One descriptor as a file. Raises FetchFailed."""
    digest, size = str(layer.get("digest")), layer.get("size")
    if not _DIGEST.fullmatch(digest) or not isinstance(size, int) or size < 0:
        raise FetchFailed("BadArtifact", "a layer of the manifest has no digest or no size")
    return RemoteFile(path, size, digest, f"{blobs}{digest}", unpack)


def _layer(layer: Mapping[str, Any], blobs: str) -> RemoteFile:
    """ORAS marks folders it packed, and gives plain files the media type of archives; ModelPack says it by its media
    types; a layer without a name is an archive of an image, or the one file of a Docker model."""
    notes = layer.get("annotations")
    notes = notes if isinstance(notes, dict) else {}
    media = str(layer.get("mediaType") or "")
    packed = bool(_TAR.fullmatch(media))
    named = notes.get(MODEL_PATH) or notes.get(TITLE)
    if notes.get(UNPACK) == "true" or (packed and (not named or media.startswith("application/vnd.cncf.model."))):
        return blob(layer, blobs, unpack=True)
    if not named and "gguf" in media:
        named = "model.gguf"
    return blob(layer, blobs, safe(str(named)) if named else "")


def store_layers(manifest: Mapping[str, Any], blobs: str) -> tuple[RemoteFile, ...]:
    """The files of an ollama model in ollama's own layout. Raises FetchFailed."""
    config = manifest.get("config")
    parts = [*_list(manifest), *([config] if isinstance(config, dict) else [])]
    found = {layer["digest"]: layer for layer in parts if "digest" in layer}
    return tuple(blob(one, blobs, f"blobs/{str(one['digest']).replace(':', '-')}") for one in found.values())
