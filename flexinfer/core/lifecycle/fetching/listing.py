"""Which files of a source are wanted."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from flexinfer.core.lifecycle.fetching.failures import FetchFailed

_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
_OTHER_FORMATS = (".bin", ".pt", ".pth", ".gguf", ".onnx", ".msgpack", ".h5", ".tflite", ".ot", ".mlmodel")
_NEVER = (".gitattributes", ".gitignore")
_DEFAULT_VARIANTS = ("q4_k_m", "q8_0")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a source. ``digest``: ``sha256:<hex>``, ``git:<sha-1 of the git blob>``, or empty where the source
    tells none; ``url`` where it is; ``unpack``: it is an archive whose members are the files."""

    path: str
    size: int
    digest: str
    url: str
    unpack: bool = False

    @property
    def identity(self) -> str:
        """A name for its partial copy: another content, another name."""
        return self.digest.replace(":", "-") or f"size-{self.size}-{re.sub('[^A-Za-z0-9.]', '_', self.path)}"


def safe(path: str) -> str:
    """A relative path that stays where it is put. Raises FetchFailed."""
    parts = path.removeprefix("./").split("/")
    if not path or path.startswith("/") or "\\" in path or "\0" in path or any(p in {"", ".", ".."} for p in parts):
        raise FetchFailed("BadArtifact", f"the source names a file {path[:100]!r}, which does not stay in its folder")
    return "/".join(parts)


def chosen(files: Iterable[RemoteFile], path: str, variant: str, *, gguf: bool) -> tuple[RemoteFile, ...]:
    """The files a model needs: those below ``path`` if one is given, one GGUF file if that is what the engine loads,
    else the checkpoint in one format with everything around it. Raises FetchFailed."""
    files = [file for file in files if file.path not in _NEVER]
    if path:
        return _named(files, path)
    return _one_gguf(files, variant) if gguf else _checkpoint(files)


def _named(files: list[RemoteFile], path: str) -> tuple[RemoteFile, ...]:
    split = _SPLIT.fullmatch(path)
    if split:
        found = [f for f in files if (m := _SPLIT.fullmatch(f.path)) and m[1] == split[1] and m[3] == split[3]]
        if len(found) != int(split[3]):
            raise FetchFailed("SourceNotFound", f"{len(found)} of the {int(split[3])} parts of {path} are there")
        return tuple(found)
    found = [file for file in files if file.path == path or file.path.startswith(f"{path}/")]
    if not found:
        raise FetchFailed("SourceNotFound", f"there is no file {path} in the source")
    return tuple(found)


def _one_gguf(files: list[RemoteFile], variant: str) -> tuple[RemoteFile, ...]:
    models = [f for f in files if f.path.lower().endswith(".gguf") and "mmproj" not in f.path.lower()]
    if not models:
        raise FetchFailed("SourceNotFound", "there is no GGUF file in the source")
    wishes = [variant.lower()] if variant else list(_DEFAULT_VARIANTS)
    for wish in wishes:
        found = [f for f in models if re.search(rf"(?<![a-z0-9]){re.escape(wish)}(?![a-z0-9_])", f.path.lower())]
        if found:
            return _single(found, wish)
    if variant:
        known = ", ".join(sorted(f.path for f in models)[:5])
        raise FetchFailed("SourceNotFound", f"no GGUF file is of variant {variant}; there are {known}")
    return _single(models, "any variant")


def _single(found: list[RemoteFile], what: str) -> tuple[RemoteFile, ...]:
    if len(found) == 1:
        return (found[0],)
    first = min(file.path for file in found)
    if _SPLIT.fullmatch(first):
        raise FetchFailed("SplitModel", f"the model of {what} is split into several files, first {first}")
    raise FetchFailed("AmbiguousModel", f"{len(found)} GGUF files are of {what}, first {first}")


def _checkpoint(files: list[RemoteFile]) -> tuple[RemoteFile, ...]:
    safetensors = [f for f in files if f.path.endswith(".safetensors")]
    if not safetensors:
        return tuple(files)
    sharded = any(not f.path.startswith("consolidated") for f in safetensors)
    return tuple(
        file
        for file in files
        if not file.path.lower().endswith(_OTHER_FORMATS)
        and not file.path.startswith(("original/", "metal/", "onnx/", "openvino/"))
        and not (sharded and file.path.startswith("consolidated"))
    )
