"""HTTP side of the dashboard: the page, one JSON document, the stream of batches, and a tape to travel on."""

import hmac
from http.cookies import CookieError, SimpleCookie
from importlib import resources
from urllib.parse import parse_qs, urlencode

from fastapi import FastAPI, Response

from flexinfer.adapters.web.dashboard.timeline import Timeline
from flexinfer.adapters.web.dashboard.viewers import Broadcast
from flexinfer.adapters.web.ops import Report, answer_ops
from flexinfer.adapters.web.serve import AsgiApp, Receive, Scope, Send, respond

_COOKIE = "flexinfer-token"
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_STATIC = resources.files("flexinfer.adapters.web.dashboard") / "static"
_GUARDS = (
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
            b"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)

Source = Broadcast | Timeline


def dashboard_app(source: Source, report: Report, token: str = "") -> AsgiApp:
    """The ASGI application, live or on a tape. With ``token`` everything but the ops endpoints asks for it."""
    pages = _pages(source)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        if await answer_ops(path, send, report):
            return
        query = parse_qs(scope["query_string"].decode("latin-1"))
        if token and not _allowed(scope, query, token):
            await respond(send, 401, b"a token is needed: open /?token=...\n", b"text/plain", _GUARDS)
        elif token and "token" in query and path == "/":
            await respond(send, 303, b"", b"text/plain", (*_GUARDS, *_without_token(scope, query, token)))
        elif path == "/stream" and isinstance(source, Broadcast):
            await source.serve(receive, send)
        else:
            await pages(scope, receive, _guarded(send))

    return app


def _allowed(scope: Scope, query: dict[str, list[str]], token: str) -> bool:
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    given = headers.get(b"authorization", "").removeprefix("Bearer ") or query.get("token", [""])[0]
    if not given:
        try:
            morsel = SimpleCookie(headers.get(b"cookie", "")).get(_COOKIE)
        except CookieError:
            morsel = None
        given = morsel.value if morsel else ""
    return hmac.compare_digest(given.encode(), token.encode())


def _without_token(scope: Scope, query: dict[str, list[str]], token: str) -> tuple[tuple[bytes, bytes], ...]:
    """The token moves to a cookie, so that it stays in neither the address bar nor the history."""
    rest = urlencode({name: values for name, values in query.items() if name != "token"}, doseq=True)
    jar = SimpleCookie({_COOKIE: token})
    flags = "; HttpOnly; SameSite=Strict; Path=/" + ("; Secure" if scope.get("scheme") == "https" else "")
    place = "./?" + rest if rest else "./"
    return (b"location", place.encode()), (b"set-cookie", (jar[_COOKIE].OutputString() + flags).encode())


def _guarded(send: Send) -> Send:
    async def guarded(message: Scope) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *_GUARDS]
        await send(message)

    return guarded


def _document(source: Source, at: float | None) -> bytes:
    if isinstance(source, Timeline):
        return source.snapshot(source.end if at is None else at)
    return source.snapshot()


def _pages(source: Source) -> FastAPI:
    app = FastAPI(title="FlexInfer dashboard", docs_url=None, redoc_url=None, openapi_url=None)
    files = {entry.name: entry.read_bytes() for entry in _STATIC.iterdir() if entry.is_file()}

    @app.get("/api/state")
    async def state(at: float | None = None) -> Response:
        body = _document(source, at)
        return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})

    @app.get("/api/tape")
    async def tape() -> Response:
        body = source.about() if isinstance(source, Timeline) else b"null"
        return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})

    @app.get("/{name:path}")
    async def page(name: str) -> Response:
        body = files.get(name or "index.html")
        if body is None:
            return Response("not found\n", 404, media_type="text/plain")
        kind = _TYPES[(name or "index.html").rpartition(".")[2]]
        return Response(body, media_type=kind, headers={"Cache-Control": "no-cache"})

    return app
