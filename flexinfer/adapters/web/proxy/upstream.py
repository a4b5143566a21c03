"""One connection to an engine, and one request on it.

The answer is relayed as the bytes that came: llhttp only says where it ends, so chunk boundaries and trailers stay,
and a piece of a stream costs one parse and one write.
"""

import asyncio
from typing import Literal, Protocol, get_args

import httptools

from flexinfer.adapters.web.proxy.limits import UpstreamLimits
from flexinfer.adapters.web.proxy.request import Header, note

NOTED = frozenset({b"connection", b"content-length", b"content-type", b"transfer-encoding"})
Stage = Literal["connect", "send", "head", "body", "timeout", "idle", "given-up"]
WHYS = (*get_args(Stage), "status")  # why an attempt counts as failed: where it broke, or by what was answered
Framing = Literal["none", "length", "chunked", "until-close"]


class UpstreamFailed(Exception):
    """The engine gave no usable answer. ``stage`` says how far it came; ``text`` is for people."""

    def __init__(self, stage: Stage, text: str) -> None:
        super().__init__(text)
        self.stage = stage


class Sink(Protocol):
    """Where an answer's bytes go."""

    def write(self, data: bytes) -> None:
        """Take a piece."""
        ...


class Head:
    """Status line and headers of an answer; header names are lower case."""

    __slots__ = ("framing", "headers", "length", "noted", "reason", "status")

    def __init__(self) -> None:
        self.status = 0
        self.reason = b""
        self.headers: list[Header] = []
        self.noted: dict[bytes, bytes] = {}  # the first of each NOTED header
        self.framing: Framing = "none"
        self.length = 0

    def header(self, name: bytes) -> bytes:
        """The first value of a NOTED header, empty if it is missing."""
        return self.noted.get(name, b"")


class Connection(asyncio.Protocol):
    """A kept-alive connection. ``ask``, then ``relay``, then it is ``reusable`` or closed."""

    def __init__(self, limits: UpstreamLimits, loop: asyncio.AbstractEventLoop, url: str = "") -> None:
        self.url = url
        self._limits = limits
        self._loop = loop
        self.transport: asyncio.Transport
        self.closed = False
        self.used = False  # a whole answer came over it before
        self.idle_since = 0.0
        self.touched = 0.0  # loop time of the last byte read, or of asking
        self.busy = False
        self._keep = False
        self._reset()

    def _reset(self) -> None:
        self._head: Head | None = None
        self._coming = Head()
        self._parser: httptools.HttpResponseParser | None = None
        self._raw = b""
        self._waiting: asyncio.Future[Head] | None = None
        self._done: asyncio.Future[None] | None = None
        self._failure: UpstreamFailed | None = None
        self._complete = False
        self._extra = False
        self._bodiless = False
        self._plain = False
        self._left = 0
        self._pieces: list[bytes] = []
        self._pending = 0
        self._sink: Sink | None = None
        self._held = False  # reading is paused by us

    # --- asking ----------------------------------------------------------------------------------------------

    async def ask(self, head: bytes, body: bytes, *, bodiless: bool, plain: bool) -> Head:
        """Send a request and wait for the head of its answer.

        ``bodiless``: the answer has no body whatever it says (HEAD). ``plain``: relay the body without its chunked
        framing. Raises UpstreamFailed.
        """
        self._reset()
        self.busy = True
        self._bodiless = bodiless
        self._plain = plain
        self._parser = httptools.HttpResponseParser(_Unframed(self) if plain else self)
        self.touched = self._loop.time()
        if self.closed:
            raise UpstreamFailed("send", "the engine closed the connection")
        self._waiting = self._loop.create_future()
        if len(body) > 65536:
            self.transport.write(head)
            self.transport.write(body)
        else:
            self.transport.write(head + body)
        return await self._waiting

    async def relay(self, sink: Sink) -> None:
        """Write the rest of the answer to ``sink`` as it comes, until its end. Raises UpstreamFailed.

        Reading may be paused since the head came; whoever drains the sink resumes it.
        """
        if self._pieces:
            sink.write(b"".join(self._pieces))
            self._pieces.clear()
        if self._complete:
            return
        if self._failure:
            raise self._failure
        self._sink = sink
        self._done = self._loop.create_future()
        await self._done

    def take(self) -> bytes:
        """What arrived of the body together with the head; written by the caller with its own head."""
        data = b"".join(self._pieces) if len(self._pieces) != 1 else self._pieces[0]
        self._pieces.clear()
        self._pending = 0
        return data

    @property
    def complete(self) -> bool:
        """The whole answer arrived."""
        return self._complete

    @property
    def answered(self) -> bool:
        """At least one byte of an answer arrived."""
        return bool(self._raw) or self._head is not None

    @property
    def reusable(self) -> bool:
        """Another request may be sent."""
        return (
            self._complete and self._keep and not self.closed and not self._extra
            and self.transport.get_write_buffer_size() == 0
        )  # fmt: skip

    def pause(self) -> None:
        """The client reads slower than the engine writes."""
        if not self._held and not self.closed:
            self._held = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._held and not self.closed:
            self._held = False
            self.touched = self._loop.time()
            self.transport.resume_reading()

    def release(self) -> None:
        """The answer was relayed; wait for the next request."""
        self.resume()  # the client may have been slow to its end
        self.used = True
        self.busy = False
        self.idle_since = self._loop.time()
        self._reset()

    def abort(self) -> None:
        """Give up: the engine sees the connection end and stops working for us."""
        self.busy = False
        if not self.closed:
            self.transport.abort()

    def give_up_waiting(self, why: str) -> None:
        """Fail a request that has no answer yet."""
        if self.busy and self._head is None:
            self._fail(UpstreamFailed("given-up", why))

    def check(self, now: float) -> None:
        """Called about once a second: fail what takes too long."""
        if not self.busy or self._held or self._complete:
            return
        silent = now - self.touched
        if self._head is None:
            if silent > self._limits.first_byte_seconds:
                self._fail(UpstreamFailed("timeout", f"no answer within {self._limits.first_byte_seconds:g} s"))
        elif silent > self._limits.idle_seconds:
            self._fail(UpstreamFailed("idle", f"silent for {self._limits.idle_seconds:g} s inside an answer"))

    # --- asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment] # the selector loops pass a full Transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if not self.busy or self._complete:
            return
        if self._head is not None and self._head.framing == "until-close" and exc is None:
            self._finish()
            return
        stage: Literal["head", "body"] = "head" if self._head is None else "body"
        self._fail(UpstreamFailed(stage, f"the engine closed the connection{f': {exc}' if exc else ''}"))

    def data_received(self, data: bytes) -> None:
        if not self.busy or self._complete:
            # Nobody asked for this: whatever it is, it must not become the next client's answer.
            self._extra = True
            self.transport.abort()
            return
        self.touched = self._loop.time()
        try:
            if self._head is None:
                self._feed_head(data)
            else:
                self._feed_body(data)
        except (httptools.HttpParserError, httptools.HttpParserCallbackError, httptools.HttpParserUpgrade) as err:
            stage: Literal["head", "body"] = "body" if self._head else "head"
            self._fail(UpstreamFailed(stage, f"the engine's answer is malformed: {err}"), certain=True)

    # --- parsing ---------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            self._extra = True
        self._coming = Head()

    def on_status(self, reason: bytes) -> None:
        self._coming.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None:  # else these are trailers, relayed as they came
            name = name.lower()
            self._coming.headers.append((name, value))
            if name in NOTED:
                note(self._coming.noted, name, value)

    def on_headers_complete(self) -> None:
        head, parser = self._coming, self._parser
        if parser is None or self._head is not None:
            return
        head.status = parser.get_status_code()
        if head.status < 100:
            raise ValueError("a status below 100")  # httptools hands it on as a parser error
        if head.status < 200:
            return
        self._keep = parser.should_keep_alive()
        _set_framing(head)
        self._left = head.length
        self._head = head

    def on_message_complete(self) -> None:
        if self._head is not None:
            self._complete = True

    def _feed_head(self, data: bytes) -> None:
        data = self._raw + data if self._raw else data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            if self._parser is None or end > self._limits.head_bytes:
                break
            self._parser.feed_data(data[: end + 4])
            data = data[end + 4 :]
            if self._head is None:  # 100 Continue or 103 Early Hints: the answer is still to come
                continue
            self._raw = b""
            self._begin_body(data)
            if self._waiting and not self._waiting.done():
                self._waiting.set_result(self._head)
            return
        self._raw = data
        if len(data) > self._limits.head_bytes:
            self._fail(UpstreamFailed("head", f"the head of the answer is larger than {self._limits.head_bytes} bytes"))

    def _begin_body(self, data: bytes) -> None:
        if self._bodiless or self._complete:
            self._keep = self._keep and self._complete
            self._extra = bool(data)
            self._finish()
        elif data:
            self._feed_body(data)

    def _feed_body(self, data: bytes) -> None:
        head, parser = self._head, self._parser
        if head is None or parser is None:
            return
        if head.framing == "length":
            self._left -= len(data)
            if self._left < 0:
                self._extra = True
                data = data[: self._left]
        parser.feed_data(data)
        if self._extra and head.framing != "length":
            self._fail(UpstreamFailed("body", "the engine sent more than one answer"), certain=True)
            return
        if not self._plain:
            self.put(data)
        if self._complete:
            self._finish()

    def put(self, data: bytes) -> None:
        """A piece of the body for the sink, or kept until there is one."""
        if self._sink is not None:
            self._sink.write(data)
            return
        self._pieces.append(data)
        self._pending += len(data)
        if self._pending > 65536:
            self.pause()

    def _finish(self) -> None:
        self._complete = True
        if self._done and not self._done.done():
            self._done.set_result(None)

    def _fail(self, why: UpstreamFailed, *, certain: bool = False) -> None:
        if self._complete and not certain:
            return
        self._failure = why
        for future in (self._waiting, self._done):
            if future and not future.done():
                future.set_exception(why)
        if not self.closed:
            self.transport.abort()


class _Unframed:
    """llhttp's events with the body's pieces freed from their chunked framing."""

    def __init__(self, connection: Connection) -> None:
        self.on_message_begin = connection.on_message_begin
        self.on_status = connection.on_status
        self.on_header = connection.on_header
        self.on_headers_complete = connection.on_headers_complete
        self.on_message_complete = connection.on_message_complete
        self.on_body = connection.put


def _set_framing(head: Head) -> None:
    if head.status in {204, 304}:
        return
    if b"chunked" in head.header(b"transfer-encoding").lower():
        head.framing = "chunked"
        return
    length = head.header(b"content-length")
    if length.isdigit():
        head.framing = "length" if int(length) else "none"
        head.length = int(length)
    else:
        head.framing = "until-close"
