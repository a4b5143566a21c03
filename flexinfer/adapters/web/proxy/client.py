"""The client's side of a connection: requests in, answers out, in order.

Handlers run one after the other in one task per connection; a client that leaves cancels it, and with it whatever
was asked of an engine.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Coroutine
from typing import Any, Protocol

import httptools

from flexinfer.adapters.web.proxy.limits import Budget, ServerLimits
from flexinfer.adapters.web.proxy.request import NOTED, Header, Request, note
from flexinfer.core.routing.refusal import Refusal

log = logging.getLogger(__name__)

_REASONS = {
    200: b"OK", 400: b"Bad Request", 401: b"Unauthorized", 404: b"Not Found", 405: b"Method Not Allowed",
    408: b"Request Timeout", 413: b"Content Too Large", 429: b"Too Many Requests",
    431: b"Request Header Fields Too Large", 500: b"Internal Server Error", 502: b"Bad Gateway",
    503: b"Service Unavailable", 504: b"Gateway Timeout",
}  # fmt: skip
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINGER_SECONDS = 2.0
JSON: Header = (b"content-type", b"application/json")


class Flow(Protocol):
    """The source of a relayed answer, slowed down to what the client reads."""

    def pause(self) -> None:
        """Stop reading."""
        ...

    def resume(self) -> None:
        """Read on."""
        ...


class Owner(Protocol):
    """The listener of a connection."""

    limits: ServerLimits
    budget: Budget
    loop: asyncio.AbstractEventLoop
    draining: bool

    def opened(self, client: "Client") -> None:
        """Accepted."""
        ...

    def closed(self, client: "Client") -> None:
        """Ended."""
        ...

    def refused(self, why: Refusal) -> None:
        """Something that was no request was answered."""
        ...

    def handle(self, request: Request, client: "Client") -> Awaitable[None]:
        """Answer one request."""
        ...

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the connection's task."""
        ...


def framing_of(request: Request) -> bytes:
    """The header that frames a request's body; empty if it has none."""
    if coding := request.noted.get(b"transfer-encoding"):
        return b"transfer-encoding: " + coding
    length = request.noted.get(b"content-length", b"").strip()
    return b"content-length: " + length if length.strip(b"0") else b""


def head_of(status: int, headers: list[Header], reason: bytes = b"") -> bytes:
    """Status line and headers with the empty line; names and values must hold no line breaks."""
    lines = [b"HTTP/1.1 %d %s" % (status, reason or _REASONS.get(status, b"Status"))]
    lines += [name + b": " + value for name, value in headers]
    lines.append(b"\r\n")
    return b"\r\n".join(lines)


class Client(asyncio.Protocol):
    """One accepted connection. The answering methods are for the handler of the current request."""

    def __init__(self, listener: Owner) -> None:
        self._listener = listener
        self._limits = listener.limits
        self._loop = listener.loop
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Request | Refusal] = deque()
        self._reading: Request | None = None  # its head or body is not complete
        self._head_size = 0
        self._head_done = False
        self._around_body = 0  # bytes since the body last grew
        self._since = self._loop.time()  # start of the present head, or of idleness
        self._blocked_since: float | None = None
        self._unblocked: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Future[None] | None = None
        self._priming = False
        self._deaf = False  # nothing more is read as requests
        self.transport: asyncio.Transport
        self.flow: Flow | None = None
        self.request: Request | None = None  # being answered
        self.began = False  # bytes of the present answer were written
        self.close_after = False

    # --- asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment] # the selector loops pass a full Transport
        self._listener.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._listener.closed(self)
        self._deaf = True
        if self._task:
            self._task.cancel()
        for left in (*self._queue, self._reading):
            if isinstance(left, Request):
                left.release()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if not self._head_done:
            if not self._head_size and self._reading is None:
                self._since = self._loop.time()
            self._head_size += len(data)
        reading, body = self._reading, self._reading.size if self._reading else 0
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._pass_over_upgrade(data[upgrade.args[0] :])
            return
        except (httptools.HttpParserError, httptools.HttpParserCallbackError) as err:
            self._refuse(Refusal(400, "malformed_request", f"this is no HTTP request: {err}"))
            return
        if not self._head_done and self._head_size > self._limits.head_bytes:
            self._refuse(self._too_long())
        elif reading is not None and reading is self._reading and self._head_done:
            self._check_framing(len(data), grown=reading.size != body)

    def _check_framing(self, size: int, *, grown: bool) -> None:
        """What comes with a body and is none of it (chunk extensions, trailers) is limited like a head: the parser
        keeps a trailer until its end."""
        self._around_body = 0 if grown else self._around_body + size
        if self._around_body > self._limits.head_bytes:
            self._refuse(self._too_long())

    def pause_writing(self) -> None:
        self._blocked_since = self._loop.time()
        if self.flow:
            self.flow.pause()

    def resume_writing(self) -> None:
        self._blocked_since = None
        if self._unblocked and not self._unblocked.done():
            self._unblocked.set_result(None)
        if self.flow:
            self.flow.resume()

    # --- llhttp ----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._priming:
            return
        self._reading = Request(self._limits.body_bytes, self._loop.time(), self._listener.budget)
        self._head_done = False

    def on_url(self, url: bytes) -> None:
        if self._reading and not self._priming:
            self._reading.path += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        # After the head these are trailers, which a receiver may drop; they must never pass as headers.
        request = self._reading
        if request is None or self._head_done:
            return
        name = name.lower()
        request.headers.append((name, value))
        if name in NOTED:
            note(request.noted, name, value)

    def on_headers_complete(self) -> None:
        request = self._reading
        if request is None or self._priming or self._deaf:
            return
        self._head_done = True
        if self._head_size > self._limits.head_bytes and self._is_oversize(request):
            self._refuse(self._too_long())
            return
        self._head_size = self._around_body = 0
        request.method = self._parser.get_method().decode("latin-1")
        request.old = self._parser.get_http_version() == "1.0"
        request.keep_alive = self._parser.should_keep_alive()
        request.wants_continue = request.noted.get(b"expect", b"").lower() == b"100-continue"
        request.path, _, request.query = request.path.partition("?")
        request.on_hunger(self._ask_for_body)
        self._queue.append(request)
        if len(self._queue) > self._limits.pipelined:
            self.transport.pause_reading()
        if len(self._queue) > self._limits.queued:
            self._refuse(Refusal(400, "malformed_request", "too many requests ahead of their answers"))
        self._stir()

    def on_body(self, data: bytes) -> None:
        if self._reading:
            self._reading.feed(data)

    def on_message_complete(self) -> None:
        if self._reading and self._parser.should_upgrade() and framing_of(self._reading):
            return  # llhttp takes the body for another protocol; _pass_over_upgrade reads it
        if self._reading:
            self._reading.finish()
        self._reading = None
        self._head_done = False
        self._head_size = 0
        self._since = self._loop.time()

    def _pass_over_upgrade(self, rest: bytes) -> None:
        """Go on in HTTP/1.1 after a request that offered another protocol, as Java's client does by default.

        The parser takes what follows for that protocol, so a new one reads it, put into the state after the head.
        """
        self._parser = httptools.HttpRequestParser(self)
        if self._reading is not None:
            self._priming = True
            self._parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n\r\n" % framing_of(self._reading))
            self._priming = False
        if rest:
            self.data_received(rest)

    # --- answering -------------------------------------------------------------------------------------------

    def respond(self, status: int, body: bytes, headers: list[Header], *, content: bool = True) -> None:
        """One complete answer with its length; ``content`` false sends the head alone (HEAD)."""
        fields = [*headers, (b"content-length", b"%d" % len(body)), *self.connection_fields()]
        self.began = True
        self.transport.write(head_of(status, fields) + (body if content else b""))

    def refuse(self, why: Refusal, headers: list[Header]) -> None:
        """Answer with an OpenAI-shaped error."""
        fields = [JSON, *headers]
        if why.retry_after is not None:
            fields.append((b"retry-after", b"%d" % why.retry_after))
        head_only = self.request is not None and self.request.method == "HEAD"
        self.respond(why.status, why.body(), fields, content=not head_only)

    def connection_fields(self) -> list[Header]:
        """The Connection header of the present answer; decides whether the connection ends with it."""
        request = self.request
        if request is None or not request.keep_alive or self._listener.draining or not request.complete:
            self.close_after = True
        if self.close_after:
            return [(b"connection", b"close")]
        return [(b"connection", b"keep-alive")] if request and request.old else []

    def follow(self, flow: Flow) -> None:
        """From now on the source reads as fast as the client does, which may be not at all already."""
        self.flow = flow
        if self._blocked_since is None:
            flow.resume()
        else:
            flow.pause()

    def abort(self) -> None:
        """Cut the connection so that the client cannot take what it got for a whole answer."""
        self.close_after = True
        self.transport.abort()

    # --- the connection's task -------------------------------------------------------------------------------

    def _stir(self) -> None:
        if self._task is None:
            self._task = self._listener.start_task(self._serve())
        elif self._wake and not self._wake.done():
            self._wake.set_result(None)

    def _refuse(self, why: Refusal) -> None:
        self._deaf = True
        self._queue.append(why)
        if self._reading and self._head_done:
            self._reading.fail(why)
        self._stir()

    def _too_long(self) -> Refusal:
        return Refusal(431, "headers_too_large", f"the request head is larger than {self._limits.head_bytes} bytes")

    def _is_oversize(self, request: Request) -> bool:
        size = len(request.path) + sum(len(name) + len(value) + 4 for name, value in request.headers)
        return size > self._limits.head_bytes

    def turn_away(self, why: Refusal) -> None:
        """Answer before anything was asked, and close."""
        self._refuse(why)

    def _ask_for_body(self) -> None:
        if not self.began:
            self.transport.write(_CONTINUE)

    async def _serve(self) -> None:
        try:
            await self._answer_in_turn()
            await self._hang_up()
        finally:
            self.transport.close()

    async def _answer_in_turn(self) -> None:
        asked_ahead = False
        while not self.transport.is_closing():
            if not self._queue:
                self._wake = self._loop.create_future()
                await self._wake
                asked_ahead = False
                continue
            if asked_ahead:
                await self._give_way()
            asked_ahead = True
            request = self._queue.popleft()
            if len(self._queue) == self._limits.pipelined:
                self.transport.resume_reading()
            self.began = False
            if isinstance(request, Refusal):
                self.close_after = True
                self.refuse(request, [])
                self._listener.refused(request)
                break
            self.request = request
            try:
                await self._listener.handle(request, self)
            finally:
                self.flow = None
                self.request = None
                request.release()
            self._since = self._loop.time()
            if self.close_after or (self._listener.draining and not self._queue):
                break

    async def _give_way(self) -> None:
        """To other connections, as our own answers wait for nothing; and until this client has read what it got, as
        one that asks without reading would fill our memory."""
        await asyncio.sleep(0)
        if self._blocked_since is not None:
            self._unblocked = self._loop.create_future()
            await self._unblocked

    async def _hang_up(self) -> None:
        """Close so that the client can read the answer: unread input would turn the close into a reset."""
        self._deaf = True
        if self.transport.is_closing():
            return
        if self._reading is not None and self.transport.can_write_eof():
            self.transport.write_eof()
            await asyncio.sleep(_LINGER_SECONDS)

    # --- time ------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """No request is being answered, waiting or arriving."""
        return self.request is None and not self._queue and self._reading is None

    def check(self, now: float) -> None:
        """Called about once a second: end what takes too long."""
        limits = self._limits
        if self._blocked_since is not None and now - self._blocked_since > limits.write_seconds:
            self.transport.abort()
            return
        if self._deaf:
            return
        if self._reading is not None and self._head_done:
            self._check_body(self._reading, now)
        elif self._reading is not None or self._head_size:
            if now - self._since > limits.head_seconds:
                self._refuse(Refusal(408, "request_timeout", "the request head did not arrive in time"))
        elif self.idle and now - self._since > limits.idle_seconds:
            self.transport.close()

    def _check_body(self, request: Request, now: float) -> None:
        spent = now - request.started
        if spent > self._limits.body_seconds and request.size < spent * self._limits.body_rate:
            self._refuse(Refusal(408, "request_timeout", "the request body did not arrive in time"))
