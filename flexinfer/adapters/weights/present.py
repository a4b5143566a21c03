"""Weights that are used where they lie: whether they are there, whole as far as a glance can tell."""

import json
from pathlib import Path

from flexinfer.core.lifecycle.fetching.failures import FetchFailed

INDEX = "model.safetensors.index.json"


def check_present(path: Path) -> None:
    """Raises FetchFailed."""
    try:
        if path.suffix == ".gguf":
            _gguf(path)
        elif path.is_dir():
            _folder(path)
        elif not path.exists():
            raise FetchFailed("SourceNotFound", f"{path} is not there")
    except PermissionError as err:
        raise FetchFailed("SourceNotFound", f"{path} cannot be read: {err.strerror}") from err


def _gguf(path: Path) -> None:
    if not path.is_file():
        raise FetchFailed("SourceNotFound", f"{path} is not there")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise FetchFailed("BadArtifact", f"{path} is no GGUF file")


def _folder(path: Path) -> None:
    if not any(path.iterdir()):
        raise FetchFailed("SourceNotFound", f"{path} is empty")
    index = path / INDEX
    if not index.is_file():
        return
    try:
        names = set(json.loads(index.read_text())["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as err:
        raise FetchFailed("BadArtifact", f"{index} is malformed") from err
    absent = sorted(str(name) for name in names if not (path / str(name)).is_file())
    if absent:
        raise FetchFailed("SourceNotFound", f"{len(absent)} of {len(names)} files of {path} are missing: {absent[0]}")
