"""Watches: a cursor into the history of a bucket, woken by writes, ended by time, by the client or by the server."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from flexinfer.adapters.web.serve import Receive, Send
from flexinfer.local.kubeapi import errors
from flexinfer.local.kubeapi.kinds import Kind
from flexinfer.local.kubeapi.objects import Json, encode
from flexinfer.local.kubeapi.reading import Render
from flexinfer.local.kubeapi.selectors import Predicate
from flexinfer.local.kubeapi.store import Bucket, Change, Store, Stored
from flexinfer.runtime.tasks import Supervisor

BOOKMARK_SECONDS = 10.0
DEFAULT_TIMEOUT = 1800


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What to stream. ``version`` None: start with the present objects as ADDED."""

    kind: Kind
    version: int | None
    selected: Predicate | None
    render: Render
    bookmarks: bool = False
    initial_end: bool = False  # a bookmark marks the end of the present objects
    timeout: float = DEFAULT_TIMEOUT


@dataclass(eq=False, slots=True)
class Stream:
    """Handle of one running watch: ``end`` finishes it cleanly, ``drop`` cuts the connection."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False
    cut: bool = False

    def end(self) -> None:
        """Finish after what is pending."""
        self.over = True
        self.wake.set()

    def drop(self) -> None:
        """Cut without a proper end."""
        self.cut = True
        self.wake.set()


class StreamCut(Exception):
    """A watch was dropped on purpose: the connection must not end like a complete answer."""


class Watches:
    """All running watches of one server."""

    def __init__(self, store: Store, supervisor: Supervisor) -> None:
        self._store = store
        self._supervisor = supervisor
        self._streams: set[Stream] = set()

    def __len__(self) -> int:
        return len(self._streams)

    def end_all(self) -> None:
        """End every stream as the real server does at shutdown."""
        for stream in tuple(self._streams):
            stream.end()

    def drop_all(self) -> None:
        """Cut every stream."""
        for stream in tuple(self._streams):
            stream.drop()

    def position(self, request: WatchRequest) -> int:
        """Where the watch starts. Raises ApiError 410 if that is no longer, or not yet, known here."""
        bucket = self._store.bucket(request.kind.bucket)
        if request.version is None:
            return bucket.first + len(bucket.changes)
        # A version of the future comes from another life of this store: only a new list helps.
        position = bucket.position_after(request.version) if request.version <= self._store.version else None
        if position is None:
            raise errors.expired(f"too old resource version: {request.version} ({self._store.version})")
        return position

    async def serve(self, request: WatchRequest, position: int, receive: Receive, send: Send) -> None:
        """Stream until the time is up, the client leaves or the server stops."""
        stream = Stream()
        bucket = self._store.bucket(request.kind.bucket)
        self._streams.add(stream)
        bucket.wakers.add(stream.wake.set)
        listener = self._supervisor.once("watch-hangup", _until_gone(receive, stream))
        timer = asyncio.get_running_loop().call_later(request.timeout, stream.end)
        try:
            head = ((b"content-type", b"application/json"),)
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await self._pump(request, position, bucket, stream, send)
            await send({"type": "http.response.body", "body": b""})
        finally:
            timer.cancel()
            listener.cancel()
            bucket.wakers.discard(stream.wake.set)
            self._streams.discard(stream)

    async def _pump(self, request: WatchRequest, position: int, bucket: Bucket, stream: Stream, send: Send) -> None:
        first = b""
        if request.version is None:
            position = bucket.first + len(bucket.changes)
            first = b"".join(self._initial(request))
        # An empty part makes the server send the headers now: clients wait for them.
        await send({"type": "http.response.body", "body": first, "more_body": True})
        marked = self._store.version
        loop = asyncio.get_running_loop()
        due = loop.time() + BOOKMARK_SECONDS
        ticker = loop.call_later(BOOKMARK_SECONDS, stream.wake.set) if request.bookmarks else None
        try:
            while True:
                stream.wake.clear()
                changes = bucket.since(position)
                if changes is None:
                    gone = errors.expired(f"too old resource version: {marked} ({self._store.version})")
                    await _part(send, _line(b"ERROR", encode(gone.status())))
                    return
                position += len(changes)
                lines = b"".join(line for change in changes for line in lines_of(change, request))
                if ticker and (loop.time() >= due or stream.over) and self._store.version != marked:
                    marked = self._store.version
                    lines += bookmark(request.kind, marked)
                if ticker and loop.time() >= due:
                    due = loop.time() + BOOKMARK_SECONDS
                    ticker = loop.call_later(BOOKMARK_SECONDS, stream.wake.set)
                if stream.cut:
                    raise StreamCut
                if lines:
                    await _part(send, lines)
                if stream.over:
                    return
                await stream.wake.wait()
        finally:
            if ticker:
                ticker.cancel()

    def _initial(self, request: WatchRequest) -> Iterator[bytes]:
        for stored in self._store.list(request.kind.bucket):
            if request.selected is None or request.selected(stored.obj):
                yield _line(b"ADDED", request.render(stored))
        if request.initial_end:
            yield bookmark(request.kind, self._store.version, {"k8s.io/initial-events-end": "true"})


async def _until_gone(receive: Receive, stream: Stream) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.end()


async def _part(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


def _line(kind: bytes, obj: bytes) -> bytes:
    return b'{"type":"' + kind + b'","object":' + obj + b"}\n"


def bookmark(kind: Kind, version: int, annotations: Json | None = None) -> bytes:
    """A BOOKMARK line: an object of this kind with nothing but a resourceVersion."""
    metadata: Json = {"resourceVersion": str(version), "creationTimestamp": None}
    if annotations:
        metadata["annotations"] = annotations
    return _line(b"BOOKMARK", encode({**kind.head(), "metadata": metadata}))


def lines_of(change: Change, request: WatchRequest) -> Iterator[bytes]:
    """What a watcher sees of a change: an object that enters its selection is ADDED, one that leaves DELETED."""
    selected: Callable[[Json], bool] = request.selected or _always
    before = change.before is not None and selected(change.before.obj)
    after = change.type != "DELETED" and selected(change.after.obj)
    if after:
        yield _line(b"MODIFIED" if before else b"ADDED", request.render(change.after))
    elif before and change.before is not None:
        last = change.after if change.type == "DELETED" else _restamped(change.before, change.version)
        yield _line(b"DELETED", request.render(last))


def _restamped(stored: Stored, version: int) -> Stored:
    metadata = {**stored.obj["metadata"], "resourceVersion": str(version)}
    return Stored({**stored.obj, "metadata": metadata}, version)


def _always(_obj: Json) -> bool:
    return True
