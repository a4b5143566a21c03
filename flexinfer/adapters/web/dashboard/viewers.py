"""Viewers of the live page: batches encoded once, bounded queues, and an end for those that stop reading."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from flexinfer.adapters.web.dashboard.state import Board
from flexinfer.adapters.web.serve import Receive, Send, respond
from flexinfer.ports import Clock
from flexinfer.telemetry import metrics

BATCH_SECONDS = 0.25
QUIET_SECONDS = 1.0  # a batch at least this often: ages, notes and the sign of life
FORGET_SECONDS = 5.0
VIEWER_QUEUE = 40  # ten seconds of batches; a viewer that is further behind gets a new snapshot
SEND_SECONDS = 20.0  # a viewer whose socket takes nothing for so long is dropped
MAX_VIEWERS = 200

_VIEWERS = metrics.gauge("flexinfer_dashboard_viewers", "Open event streams.")
_RESENT = metrics.counter("flexinfer_dashboard_resnapshots_total", "Viewers that were too slow and got a new snapshot.")
_DROPPED = metrics.counter("flexinfer_dashboard_viewers_dropped_total", "Viewers that stopped reading.")
_HEAD = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


@dataclass(slots=True, eq=False)
class Viewer:
    """One open stream: batches waiting to be sent, or the mark that it fell behind."""

    queue: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(VIEWER_QUEUE))
    behind: bool = False

    def offer(self, batch: bytes) -> None:
        """Queue a batch; a full queue is emptied, the viewer will start again from a snapshot."""
        if self.behind:
            return
        try:
            self.queue.put_nowait(batch)
        except asyncio.QueueFull:
            self.behind = True
            while not self.queue.empty():
                self.queue.get_nowait()
            self.queue.put_nowait(b"")


@dataclass(slots=True)
class Broadcast:
    """Encodes each batch once for all viewers. ``notes`` gives what this process knows beyond the board."""

    board: Board
    clock: Clock
    notes: Callable[[], list[str]]
    viewers: set[Viewer] = field(default_factory=set)
    send_seconds: float = SEND_SECONDS
    closing: bool = False
    _forgot: float = 0.0
    _sent: float = 0.0

    async def run(self) -> None:
        """For ever: a batch four times a second while there is something new, else one a second."""
        while True:
            await asyncio.sleep(BATCH_SECONDS)
            self.step()

    def step(self) -> None:
        """One beat: forget what is gone, and give each viewer what is new."""
        now = self.clock.now()
        if abs(now - self._forgot) >= FORGET_SECONDS:
            self._forgot = now
            self.board.forget(now)
        if not self.board.has_news and abs(now - self._sent) < QUIET_SECONDS:
            return
        self._sent = now
        batch = self.board.drain(now, self._all_notes(now)) if self.viewers else self._discard()
        for viewer in self.viewers:
            viewer.offer(batch)

    def _discard(self) -> bytes:
        self.board.clear_news()
        return b""

    def _all_notes(self, now: float) -> list[str]:
        return [*self.notes(), *self.board.health.sentences(now)]

    def close(self) -> None:
        """The process is shutting down: end every stream, viewers connect again elsewhere or later."""
        self.closing = True
        for viewer in self.viewers:
            viewer.offer(b"")

    def snapshot(self) -> bytes:
        """The whole board."""
        now = self.clock.now()
        return self.board.snapshot(now, self._all_notes(now))

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """One viewer's server-sent events."""
        viewer = Viewer()
        self.viewers.add(viewer)
        _VIEWERS.inc()
        try:
            yield b"retry: 1000\nevent: snapshot\ndata: " + self.snapshot() + b"\n\n"
            while True:
                batch = await viewer.queue.get()
                if self.closing:
                    return
                if viewer.behind:
                    viewer.behind = False
                    _RESENT.inc()
                    yield b"event: snapshot\ndata: " + self.snapshot() + b"\n\n"
                else:
                    yield b"event: batch\ndata: " + batch + b"\n\n"
        finally:
            self.viewers.discard(viewer)
            _VIEWERS.dec()

    async def serve(self, receive: Receive, send: Send) -> None:
        """Answer one request with the stream until the viewer leaves or stops reading."""
        if len(self.viewers) >= MAX_VIEWERS:
            await respond(send, 503, b"too many viewers\n", b"text/plain", ((b"retry-after", b"10"),))
            return
        await send({"type": "http.response.start", "status": 200, "headers": _HEAD})
        chunks = self.chunks()
        try:
            async for chunk in chunks:
                async with asyncio.timeout(self.send_seconds):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                if await _left(receive):
                    return
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            _DROPPED.inc()
        finally:
            await chunks.aclose()


async def _left(receive: Receive) -> bool:
    """Whether the viewer closed the connection; does not wait."""
    try:
        async with asyncio.timeout(0):
            return bool((await receive())["type"] == "http.disconnect")
    except TimeoutError:
        return False
