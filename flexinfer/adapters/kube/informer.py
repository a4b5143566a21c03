"""List, then watch, for ever: one kind of object kept current and its changes delivered in order.

The API server's own rules: a watch starts at the resourceVersion of a list, bookmarks move it on, 410 means it is
too old and everything must be listed again. resourceVersions are opaque: compared for equality only.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from types import MappingProxyType

from flexinfer.adapters.kube.pace import Pace
from flexinfer.contracts.kubernetes import Action, KubeDelta, Object, Resource
from flexinfer.ports import Expired, KubeApi, KubeError, KubeFact, KubeUnavailable, Relisted
from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

_RELISTS = metrics.counter("flexinfer_kube_relists_total", "Complete lists by informers.", ("kind",))
_RESTARTS = metrics.counter("flexinfer_kube_watch_restarts_total", "Watches that ended, by why.", ("kind", "reason"))
_DELTAS = metrics.counter("flexinfer_kube_deltas_total", "Changes delivered by informers.", ("kind", "action"))

Key = tuple[str, str]
Sink = Callable[[KubeFact], None]


class Informer:
    """Delivers ``Relisted`` for each list and one ``KubeDelta`` per change after it.

    After a list, the objects that vanished since the last one are delivered first, each as a DELETED delta with its
    last known state, then ``Relisted`` with everything that exists; what is new or changed is in there and is not
    repeated as deltas. ``sink`` is called on the event loop and must not block or change the objects.
    """

    def __init__(  # noqa: PLR0913 - the parameters of a list
        self,
        api: KubeApi,
        resource: Resource,
        sink: Sink,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        *,
        pace: Pace | None = None,
    ) -> None:
        self._api = api
        self._resource = resource
        self._sink = sink
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._pace = pace or Pace()
        self._objects: dict[Key, Object] = {}
        self._view = MappingProxyType(self._objects)
        self._version: str | None = None
        self._synced = asyncio.Event()
        self._watching = False
        self._progress = False

    @property
    def cache(self) -> MappingProxyType[Key, Object]:
        """(namespace, name) → object as last seen; a live read-only view. The objects are never changed in place."""
        return self._view

    @property
    def synced(self) -> bool:
        """True from the first complete list on."""
        return self._synced.is_set()

    @property
    def watching(self) -> bool:
        """True while a watch is open: the cache is as current as the API server's own."""
        return self._watching

    async def wait_synced(self) -> None:
        """Return after the first complete list."""
        await self._synced.wait()

    async def run(self) -> None:
        """Until cancelled. API failures are logged, counted and retried. A second run begins with a list."""
        self._version = None  # an exception of the sink may have cut a delta short
        failures = 0
        while True:
            began = self._pace.monotonic()
            self._progress = False
            asked = await self._once()
            if self._pace.monotonic() - began >= self._pace.long_lived:
                failures = 0
                continue
            if self._progress:
                failures = 0
            await self._pace.sleep(self._pace.wait(failures, asked))
            failures += 1

    async def _once(self) -> float | None:
        """One list if needed and one watch; the wait the server asked for, if it did."""
        kind = self._resource.kind
        try:
            if self._version is None:
                await self._relist()
            await self._follow()
        except Expired:
            self._ended("expired")
            self._version = None
        except KubeUnavailable as err:
            self._ended("unavailable")
            log.warning("%s: %s", kind, err)
            return err.retry_after
        except KubeError as err:
            # Forbidden, a missing CRD, an unreadable line: the next list tells whether it still holds.
            self._ended(err.reason)
            self._version = None
            log.warning("%s cannot be watched: %s", kind, err)
            return err.retry_after
        else:
            self._ended("closed")
        return None

    def _ended(self, reason: str) -> None:
        self._watching = False
        _RESTARTS.labels(kind=self._resource.kind, reason=reason).inc()

    async def _relist(self) -> None:
        page = await self._api.list(self._resource, self._namespace, labels=self._labels, fields=self._fields)
        _RELISTS.labels(kind=self._resource.kind).inc()
        found = {_key(item): item for item in page.items}
        for key, old in list(self._objects.items()):
            new = found.get(key)
            if new is None or _uid(new) != _uid(old):
                del self._objects[key]
                self._deliver("DELETED", old)
        self._objects.clear()
        self._objects.update(found)
        self._version = page.resource_version
        self._sink(Relisted(plural=self._resource.plural, objects=page.items))
        self._synced.set()

    async def _follow(self) -> None:
        assert self._version is not None  # noqa: S101 - set by the list above
        events = self._api.watch(
            self._resource,
            self._version,
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            timeout_seconds=self._pace.watch_timeout(),
        )
        self._watching = True
        try:
            async for action, item in events:
                self._progress = True
                self._take(action, item)
        finally:
            self._watching = False
            await _close(events)

    def _take(self, action: str, item: Object) -> None:
        version = str(item.get("metadata", {}).get("resourceVersion") or "")
        if action == "BOOKMARK":
            self._version = version or self._version
            return
        key = _key(item)
        old = self._objects.get(key)
        if action == "DELETED":
            if self._objects.pop(key, None) is not None:
                self._deliver("DELETED", item)
        elif action in {"ADDED", "MODIFIED"}:
            if old is None or _version(old) != version:
                self._replace(key, old, item)
        else:
            log.warning("%s: unknown watch event %s ignored", self._resource.kind, action[:40])
            return
        self._version = version or self._version

    def _replace(self, key: Key, old: Object | None, item: Object) -> None:
        if old is not None and _uid(old) != _uid(item):
            # Deleted and created again under the same name while we were not looking.
            del self._objects[key]
            self._deliver("DELETED", old)
            old = None
        self._objects[key] = item
        self._deliver("ADDED" if old is None else "MODIFIED", item)

    def _deliver(self, action: Action, item: Object) -> None:
        _DELTAS.labels(kind=self._resource.kind, action=action).inc()
        self._sink(KubeDelta(plural=self._resource.plural, action=action, object=item))


async def _close(events: AsyncIterator[object]) -> None:
    """Release the connection now, not when the garbage collector finds the generator."""
    close = getattr(events, "aclose", None)
    if close is not None:
        await close()


def _key(item: Object) -> Key:
    meta = item.get("metadata") or {}
    return str(meta.get("namespace") or ""), str(meta.get("name") or "")


def _uid(item: Object) -> object:
    return (item.get("metadata") or {}).get("uid")


def _version(item: Object) -> str:
    return str((item.get("metadata") or {}).get("resourceVersion") or "")
