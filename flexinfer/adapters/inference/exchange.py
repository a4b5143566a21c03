"""One HTTP/1.1 request on a connection of its own, its body handed on as it arrives, with arrival times.

Written on asyncio's protocol because the client must not disturb what it measures: a thousand tokens a second on
each of 32 streams leave 30 µs per token, and each is stamped when its bytes are read, not when a task wakes up.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httptools

from flexinfer.ports import EngineError

MAX_PLAIN_BYTES = 4 << 20  # of an answer that is no stream
CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where requests go. ``prefix`` is the path before ``/v1``; ``tls`` None for plain HTTP."""

    host: str
    port: int
    prefix: str
    tls: ssl.SSLContext | None

    @classmethod
    def of(cls, url: str, trust: ssl.SSLContext | None = None) -> "Address":
        """From ``http://host[:port][/prefix][/v1]``. ``trust`` replaces the system's CAs.

        Raises EngineError (Refused) for anything else.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as err:
            raise EngineError("Refused", f"{url!r} is no URL: {err}") from err
        if parts.scheme not in {"http", "https"} or not parts.hostname or any(c <= " " for c in url):
            raise EngineError("Refused", f"{url!r} is no URL; write http://host:port")
        tls = None
        if parts.scheme == "https":
            tls = trust or ssl.create_default_context()
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, port or (443 if tls else 80), prefix, tls)

    def head(self, method: str, path: str, headers: Mapping[str, str], length: int) -> bytes:
        """Request line and headers."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [
            f"{method} {self.prefix}{path} HTTP/1.1",
            f"Host: {host}:{self.port}",
            "User-Agent: flexinfer-bench",
            "Connection: close",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        if method == "POST":
            lines += ["Content-Type: application/json", f"Content-Length: {length}"]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


class Exchange(asyncio.Protocol):
    """Sends ``request`` once connected; ``finished`` resolves when the whole answer is there.

    ``on_body`` gets each portion of a 200 answer and the seconds since sending; what it raises ends the exchange.
    Other answers are kept in ``plain``. ``finished`` fails with ConnectionError or what ``on_body`` raised.
    """

    def __init__(self, request: bytes, on_body: Callable[[bytes, float], None], clock: Callable[[], float]) -> None:
        self._request = request
        self._on_body = on_body
        self._clock = clock
        self._began = 0.0
        self._at = 0.0
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._until_eof = False
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.plain = b""

    @property
    def seconds(self) -> float:
        """When the last bytes arrived, since sending."""
        return self._at

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection is there."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class does not derive from it
        self._began = self._clock()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes arrived."""
        if self.finished.done():
            return
        self._at = self._clock() - self._began
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as err:
            self._fail(EngineError("MalformedStream", f"the answer is no HTTP/1.1: {err}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection ended."""
        if self._until_eof and exc is None:
            self.on_message_complete()
        else:
            self._fail(ConnectionError(str(exc) if exc else "closed before the end of the answer"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools: one header."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """httptools: the head is whole."""
        self.status = self._parser.get_status_code()
        framed = "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "")
        self._until_eof = not framed

    def on_body(self, body: bytes) -> None:
        """httptools: a portion of the body."""
        if self.finished.done():
            return
        if self.status != 200:
            self.plain = (self.plain + body)[:MAX_PLAIN_BYTES]
            return
        try:
            self._on_body(body, self._at)
        except (EngineError, ValueError) as err:
            self._fail(err)

    def on_message_complete(self) -> None:
        """httptools: the answer is whole."""
        if not self.finished.done():
            self.finished.set_result(None)

    def _fail(self, err: Exception) -> None:
        if not self.finished.done():
            self.finished.set_exception(err)
        self.cut()

    def cut(self) -> None:
        """Close at once, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()


async def exchange(
    address: Address, request: bytes, on_body: Callable[[bytes, float], None], clock: Callable[[], float]
) -> Exchange:
    """Connect, send, wait for the whole answer. Raises OSError or what ``on_body`` raises."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, running = await loop.create_connection(
                lambda: Exchange(request, on_body, clock),
                address.host,
                address.port,
                ssl=address.tls,
                server_hostname=address.host if address.tls else None,
            )
    except TimeoutError as err:
        raise ConnectionError(f"no connection to {address.host} within {CONNECT_SECONDS:g} s") from err
    try:
        await running.finished
    finally:
        running.finished.cancel()  # when we are cancelled nobody will read what it still gets
        running.cut()
    return running
