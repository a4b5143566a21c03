"""One uvicorn wrapper for every HTTP listener of ours: raw ASGI, httptools, uvloop's loop if it runs."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import uvicorn

from flexinfer.adapters.web.guard import DEFAULT_LIMITS, HttpLimits, guarded

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class ClientGone(ConnectionError):
    """The client left before its body was complete; there is nobody to answer."""


class PortBusy(OSError):
    """The address cannot be bound; the text names it and says what to do."""


def listen(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """A bound, listening TCP socket (port 0: a free one). Raises PortBusy."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's delay off only on sockets that name their protocol; without it each answer takes 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind((host, port))
        sock.listen(2048)
    except OSError as err:
        sock.close()
        raise PortBusy(
            err.errno,
            f"cannot listen on {host}:{port}: {err.strerror}; choose another port or stop what holds it",
        ) from err
    sock.setblocking(False)  # noqa: FBT003 - the socket API
    return sock


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of a PEM certificate, its key, and the CA of required client certificates (None: none required)."""

    certificate: str
    key: str
    client_ca: str | None = None


class WebServer:
    """A running listener. ``stop`` lets requests in flight finish for ``drain`` seconds."""

    def __init__(
        self,
        app: AsgiApp,
        sock: socket.socket,
        *,
        drain: float = 30.0,
        tls: TlsFiles | None = None,
        limits: HttpLimits = DEFAULT_LIMITS,
    ) -> None:
        self._socket = sock
        self._name = "{}:{}".format(*sock.getsockname()[:2])
        options: dict[str, Any] = {}
        if tls:
            options = {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key}
            if tls.client_ca:
                options |= {"ssl_ca_certs": tls.client_ca, "ssl_cert_reqs": 2}
        config = uvicorn.Config(
            _until_the_client_leaves(app),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            date_header=False,
            http=guarded(limits),
            ws="none",
            timeout_keep_alive=75,
            timeout_graceful_shutdown=int(drain) or None,
            **options,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._name.rpartition(":")[2])

    async def start(self) -> "WebServer":
        """Return once connections are accepted."""
        self._task = asyncio.get_running_loop().create_task(
            self._server.serve(sockets=[self._socket]), name=f"web:{self._name}"
        )
        while not self._server.started:
            if self._task.done():
                await self._task
                raise RuntimeError(f"web server on {self._name} ended at once")
            await asyncio.sleep(0.005)
        return self

    async def stop(self) -> None:
        """Close the listener, drain, return."""
        self._server.should_exit = True
        if self._task:
            with suppress(asyncio.CancelledError):
                await self._task
        self._socket.close()


class _Server(uvicorn.Server):
    """uvicorn without its signal handling: the process decides when to stop."""

    def capture_signals(self) -> Any:
        return nullcontext()


def _until_the_client_leaves(app: AsgiApp) -> AsgiApp:
    async def until_gone(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientGone):
            await app(scope, receive, send)

    return until_gone


async def read_body(receive: Receive, limit: int) -> bytes | None:
    """The whole request body, or None once it is larger than ``limit`` bytes. Raises ClientGone."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone  # a part of a body may read as a whole one
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            return None
        parts.append(chunk)
        if not message.get("more_body"):
            return b"".join(parts)


async def respond(
    send: Send,
    status: int,
    body: bytes,
    content_type: bytes = b"application/json",
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> None:
    """One complete answer."""
    head = ((b"content-type", content_type), (b"content-length", str(len(body)).encode()), *headers)
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
