"""The resource store: immutable objects, one global resourceVersion, a bounded history per resource.

Everything here is synchronous and runs on the event loop's thread, so a read-modify-write needs no lock.
"""

import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from flexinfer.local.kubeapi.objects import Json, encode

EventType = Literal["ADDED", "MODIFIED", "DELETED"]
Key = tuple[str, str]  # (namespace, empty for cluster-scoped; name)
Hook = Callable[["Change"], None]


class Stored:
    """One version of one object. Treat ``obj`` as frozen; ``raw`` is its JSON, made once for all readers."""

    __slots__ = ("_raw", "obj", "version")

    def __init__(self, obj: Json, version: int) -> None:
        self.obj = obj
        self.version = version
        self._raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        """Encoded object."""
        if self._raw is None:
            self._raw = encode(self.obj)
        return self._raw


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of a history. ``before`` is the previous version, None for ADDED; ``after`` the last one if DELETED."""

    bucket: str
    version: int
    type: EventType
    before: Stored | None
    after: Stored


@dataclass(slots=True)
class Bucket:
    """Objects of one resource and their recent changes; the first change kept has sequence number ``first``."""

    objects: dict[Key, Stored] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    first: int = 0
    forgotten: int = 0  # version of the newest change that is no longer kept
    wakers: set[Callable[[], None]] = field(default_factory=set)
    sorted_keys: list[Key] | None = None

    def position_after(self, version: int) -> int | None:
        """Sequence number of the first change newer than ``version``; None if some of those are forgotten."""
        if version < self.forgotten:
            return None
        return self.first + bisect.bisect_right(self.changes, version, key=lambda change: change.version)

    def since(self, position: int) -> list[Change] | None:
        """Changes from sequence number ``position`` on; None if that point is forgotten."""
        if position < self.first:
            return None
        return self.changes[position - self.first :]

    def listing(self) -> list[Key]:
        """All keys in listing order."""
        if self.sorted_keys is None:
            self.sorted_keys = sorted(self.objects)
        return self.sorted_keys


class Store:
    """Buckets by resource. ``history`` changes are kept per bucket; older watches get 410."""

    def __init__(self, history: int = 1000) -> None:
        self.version = 1
        self._history = history
        self._buckets: dict[str, Bucket] = {}
        self._hooks: list[Hook] = []
        self._loaded = 0  # version at which a kept state was loaded; what came before is history nobody has

    def bucket(self, name: str) -> Bucket:
        """The bucket, made on first use."""
        found = self._buckets.get(name)
        if found is None:
            found = self._buckets[name] = Bucket(forgotten=self._loaded)
        return found

    def buckets(self) -> list[str]:
        """Names of all buckets that exist."""
        return list(self._buckets)

    def get(self, bucket: str, key: Key) -> Stored | None:
        """The current version, or None."""
        return self.bucket(bucket).objects.get(key)

    def list(self, bucket: str, namespace: str = "") -> list[Stored]:
        """Current versions by namespace and name; empty ``namespace``: all."""
        found = self.bucket(bucket)
        return [found.objects[key] for key in found.listing() if not namespace or key[0] == namespace]

    def hook(self, hook: Hook) -> None:
        """Call ``hook`` after each change, before watchers wake. It must not write to the store."""
        self._hooks.append(hook)

    def load(self, version: int, entries: Iterable[tuple[str, Key, Json]]) -> None:
        """Begin with these objects, versions going on from ``version``; hooks hear of each as added."""
        self.version = self._loaded = version
        for name, key, obj in entries:
            found = self.bucket(name)
            stored = found.objects[key] = Stored(obj, int(obj["metadata"]["resourceVersion"]))
            found.sorted_keys = None
            for hook in self._hooks:
                hook(Change(name, stored.version, "ADDED", None, stored))

    def put(self, bucket: str, key: Key, obj: Json) -> Stored:
        """Store a new version; ``obj`` belongs to the store from here on."""
        found = self.bucket(bucket)
        before = found.objects.get(key)
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        after = Stored(obj, self.version)
        found.objects[key] = after
        if before is None:
            found.sorted_keys = None
        self._record(found, Change(bucket, self.version, "MODIFIED" if before else "ADDED", before, after))
        return after

    def remove(self, bucket: str, key: Key) -> Stored:
        """Remove an object; returns its last version, which carries the resourceVersion of the removal."""
        found = self.bucket(bucket)
        before = found.objects.pop(key)
        found.sorted_keys = None
        self.version += 1
        last = {**before.obj, "metadata": {**before.obj["metadata"], "resourceVersion": str(self.version)}}
        after = Stored(last, self.version)
        self._record(found, Change(bucket, self.version, "DELETED", before, after))
        return after

    def _record(self, found: Bucket, change: Change) -> None:
        found.changes.append(change)
        # Trimming by halves keeps the list operations amortised.
        if len(found.changes) >= 2 * self._history:
            cut = len(found.changes) - self._history
            found.forgotten = found.changes[cut - 1].version
            found.first += cut
            del found.changes[:cut]
        for hook in self._hooks:
            hook(change)
        for wake in tuple(found.wakers):
            wake()

    def forget(self, bucket: str | None = None) -> None:
        """Drop the kept changes, as etcd compaction does: watches from before now get 410."""
        for name in [bucket] if bucket else self.buckets():
            found = self.bucket(name)
            if found.changes:
                found.forgotten = found.changes[-1].version
                found.first += len(found.changes)
                found.changes.clear()
            for wake in tuple(found.wakers):
                wake()
