"""HTTP side of the dashboard: the page, one JSON snapshot, and the stream of batches."""

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from importlib import resources

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from flexinfer.adapters.web.dashboard.state import Board
from flexinfer.ports import Clock
from flexinfer.telemetry import metrics

BATCH_SECONDS = 0.25
VIEWER_QUEUE = 40  # ten seconds of batches; a viewer that is further behind gets a new snapshot
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_FILES = ("index.html", "app.js", "views.js", "style.css")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

Report = Callable[[], tuple[bool, dict[str, str]]]

_VIEWERS = metrics.gauge("flexinfer_dashboard_viewers", "Open event streams.")
_RESENT = metrics.counter("flexinfer_dashboard_resnapshots_total", "Viewers that were too slow and got a new snapshot.")


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
    """Encodes each batch once for all viewers."""

    board: Board
    clock: Clock
    notes: Callable[[], list[str]]
    viewers: set[Viewer] = field(default_factory=set)

    async def run(self) -> None:
        """For ever: a batch four times a second while there is a viewer and something new."""
        quiet = 0
        while True:
            await asyncio.sleep(BATCH_SECONDS)
            if not self.viewers:
                continue
            quiet += 1
            if self.board.has_news or quiet * BATCH_SECONDS >= 1:
                quiet = 0
                batch = self.board.drain(self.clock.now(), self.notes())
                for viewer in self.viewers:
                    viewer.offer(batch)

    def snapshot(self) -> bytes:
        """The whole board."""
        return self.board.snapshot(self.clock.now(), self.notes())

    async def stream(self) -> AsyncIterator[bytes]:
        """One viewer's server-sent events."""
        viewer = Viewer()
        self.viewers.add(viewer)
        _VIEWERS.inc()
        try:
            yield b"retry: 1000\nevent: snapshot\ndata: " + self.snapshot() + b"\n\n"
            while True:
                batch = await viewer.queue.get()
                if viewer.behind:
                    viewer.behind = False
                    _RESENT.inc()
                    yield b"event: snapshot\ndata: " + self.snapshot() + b"\n\n"
                else:
                    yield b"event: batch\ndata: " + batch + b"\n\n"
        finally:
            self.viewers.discard(viewer)
            _VIEWERS.dec()


def _allowed(request: Request, token: str) -> bool:
    if not token:
        return True
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    given = given or request.query_params.get("token", "") or request.cookies.get("flexinfer-token", "")
    return hmac.compare_digest(given.encode(), token.encode())


def _add_ops(app: FastAPI, report: Report) -> None:
    @app.get("/healthz")
    async def healthz() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        ready, lines = report()
        body = "".join(f"{name}: {line}\n" for name, line in lines.items())
        return Response(body, 200 if ready else 503, media_type="text/plain")

    @app.get("/metrics")
    async def exposition() -> Response:
        return Response(metrics.expose(), media_type=metrics.CONTENT_TYPE)


def dashboard_app(broadcast: Broadcast, report: Report, token: str = "") -> FastAPI:
    """The ASGI application. With ``token`` everything but the ops endpoints asks for it."""
    app = FastAPI(title="FlexInfer dashboard", docs_url=None, redoc_url=None, openapi_url=None)
    files = {
        name: (resources.files("flexinfer.adapters.web.dashboard") / "static" / name).read_bytes() for name in _FILES
    }

    @app.middleware("http")
    async def guard(request: Request, proceed: Callable[[Request], Awaitable[Response]]) -> Response:
        if request.url.path not in {"/healthz", "/readyz", "/metrics"} and not _allowed(request, token):
            return Response("a token is needed: open /?token=…\n", 401, media_type="text/plain")
        response = await proceed(request)
        response.headers["Content-Security-Policy"] = _POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        if token and request.query_params.get("token"):
            response.set_cookie("flexinfer-token", token, httponly=True, samesite="strict")
        return response

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        return StreamingResponse(
            broadcast.stream(),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    @app.get("/api/state")
    async def state() -> Response:
        return Response(broadcast.snapshot(), media_type="application/json")

    _add_ops(app, report)

    @app.get("/{name:path}")
    async def page(name: str) -> Response:
        body = files.get(name or "index.html")
        if body is None:
            return Response("not found\n", 404, media_type="text/plain")
        kind = _TYPES[(name or "index.html").rpartition(".")[2]]
        return Response(body, media_type=kind, headers={"Cache-Control": "no-cache"})

    return app
