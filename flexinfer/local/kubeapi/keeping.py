"""The objects of the embedded API on disk: one file, replaced as a whole, read at the next start.

First line: what it is, the resourceVersion, the SHA-256 of the rest. Then one JSON line per object. Secrets are in it,
so it is readable by its owner only.
"""

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from flexinfer.local.kubeapi.objects import Json
from flexinfer.local.kubeapi.store import Key, Store

log = logging.getLogger(__name__)

FORMAT = 1
FILE = "objects.jsonl"
SAVE_SECONDS = 1.0  # a killed process loses no more than that
LEASES = "leases.coordination.k8s.io"
# Versions may have been handed out after the last save; none of them must come again.
VERSION_GAP = 1_000_000


class DamagedState(ValueError):
    """The file is not what was written; the text names it, says what is wrong and what to do."""


class _Header(Struct, frozen=True):
    flexinfer: Literal["kubernetes objects"]
    format: int
    version: int
    sha256: str


class _Line(Struct, frozen=True):
    bucket: str
    object: dict[str, Any]


@dataclass(slots=True)
class Kept:
    """What a file holds. ``version``: the last resourceVersion; ``objects`` by bucket; ``gone``: nodes left out."""

    version: int = 0
    objects: dict[str, list[Json]] = field(default_factory=dict)
    gone: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many objects."""
        return sum(map(len, self.objects.values()))

    def after_reboot(self, nodes: Collection[str], parts: Collection[str]) -> "Kept":
        """What still stands when every process of the run before is gone.

        Leases go, for their holders are gone. Nodes other than ``nodes`` go with the pods bound to them, and their
        owners replace those. ``parts`` (namespace/name of pods) are started anew by who owns this run.
        """

        def stands(bucket: str, obj: Json) -> bool:
            name = obj["metadata"]["name"]
            if bucket == "nodes":
                return name in nodes
            if bucket == "pods":
                bound = obj["spec"].get("nodeName")
                return (not bound or bound in nodes) and f"{obj['metadata']['namespace']}/{name}" not in parts
            return bucket != LEASES

        standing = {bucket: [obj for obj in objects if stands(bucket, obj)] for bucket, objects in self.objects.items()}
        known = (str(node["metadata"]["name"]) for node in self.objects.get("nodes", ()))
        return Kept(self.version, standing, tuple(name for name in known if name not in nodes))

    def entries(self) -> Iterator[tuple[str, Key, Json]]:
        """(bucket, key, object), definitions of resources first."""
        for bucket in sorted(self.objects, key=lambda name: (not name.startswith("customresourcedefinitions"), name)):
            for obj in self.objects[bucket]:
                yield bucket, (obj["metadata"].get("namespace", ""), obj["metadata"]["name"]), obj


def read_kept(folder: Path) -> Kept | None:
    """The objects kept in ``folder``, None if there are none. Raises DamagedState, OSError."""
    path = folder / FILE
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    first, _, rest = raw.partition(b"\n")
    try:
        header = msgspec.json.decode(first, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise _damaged(path, f"line 1 is no header of kept objects: {err}") from err
    if header.format > FORMAT:
        reason = f"format {header.format} is newer than this release reads ({FORMAT})"
        raise DamagedState(f"{path}: {reason}; use the release that wrote it, or another --state-dir")
    if hashlib.sha256(rest).hexdigest() != header.sha256:
        raise _damaged(path, "what follows line 1 is not what was written (cut off or changed)")
    kept = Kept(header.version)
    try:
        for text in rest.splitlines():
            line = msgspec.json.decode(text, type=_Line)
            kept.objects.setdefault(line.bucket, []).append(line.object)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise _damaged(path, str(err)) from err
    return kept


def _damaged(path: Path, reason: str) -> DamagedState:
    return DamagedState(f"{path} is damaged: {reason}; move it away to start without objects, or restore a copy")


class Keeper:
    """Writes a store to ``folder`` about a second after it changed. A full disk costs saves, never the process."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._path = folder / FILE
        self._changed = asyncio.Event()
        self._frozen = False
        self._writing = asyncio.Lock()
        store.hook(lambda _change: self._changed.set())

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(SAVE_SECONDS)
            self._changed.clear()
            await self.save()

    async def freeze(self) -> None:
        """Save once more; what happens from now on, such as the end of everything, is not kept."""
        await self.save()
        self._frozen = True

    async def save(self) -> None:
        """Write everything now."""
        async with self._writing:
            if self._frozen:
                return
            raw = self._encoded()
            try:
                await asyncio.to_thread(_replace, self._path, raw)
            except OSError as err:
                log.warning("objects are not kept: %s: %s", self._path, err.strerror or err)

    def _encoded(self) -> bytes:
        lines = []
        for bucket in self._store.buckets():
            name = msgspec.json.encode(bucket)
            lines += [b'{"bucket":' + name + b',"object":' + stored.raw + b"}\n" for stored in self._store.list(bucket)]
        body = b"".join(lines)
        header = _Header("kubernetes objects", FORMAT, self._store.version, hashlib.sha256(body).hexdigest())
        return msgspec.json.encode(header) + b"\n" + body


def _replace(path: Path, raw: bytes, sync: Callable[[int], None] = os.fsync) -> None:
    """Either the old content or the new one is there, whatever happens meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(raw)
        file.flush()
        sync(file.fileno())
    draft.replace(path)
