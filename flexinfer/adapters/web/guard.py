"""uvicorn's HTTP protocol with limits: what is too large, too slow or endless is answered and cut.

uvicorn itself bounds neither heads nor trailers nor the requests read ahead, and times nothing but kept-alive
silence.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_REASONS = {
    400: "Bad Request",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What one client may do; sizes in bytes, times in seconds."""

    head_bytes: int = 64 << 10  # trailers and chunk extensions too
    head_seconds: float = 15.0
    body_seconds: float = 30.0  # before the least rate counts
    body_rate: float = 2048.0  # bytes/s on average, after that
    idle_seconds: float = 75.0  # before the first request; uvicorn times later silence
    write_seconds: float = 300.0  # a client that reads nothing for so long is gone
    unread_bytes: int = 1 << 20  # of a body that still comes after its request was answered
    pipelined: int = 16  # requests read ahead on one connection
    connections: int = 5_000
    linger_seconds: float = 2.0  # for a refused client to read why


DEFAULT_LIMITS = HttpLimits()


class GuardedHttp(HttpToolsProtocol):
    """One connection."""

    limits = DEFAULT_LIMITS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stage = "idle"  # or "head" or "body": what is being read
        self._since = 0.0  # loop time at which the stage began; of a body, its head
        self._received = 0  # bytes of the present head, or since the body last grew
        self._body_size = 0
        self._unread = 0  # bytes of a body whose request was answered
        self._ending = False  # no other request is begun
        self._deaf = False  # nothing more is read
        self._blocked_since: float | None = None
        self._watch: asyncio.TimerHandle | None = None

    # --- asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn does
        super().connection_made(transport)
        self._since = self.loop.time()
        self._arm()
        if len(self.connections) > self.limits.connections:
            self._refuse(503, "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch:
            self._watch.cancel()
        self._deaf = True
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf or (self._ending and self._stage == "idle"):
            return
        if self._stage == "idle":
            self._stage, self._since, self._received = "head", self.loop.time(), 0
        stage, before = self._stage, self._body_size
        self._received += len(data)
        super().data_received(data)
        if not self._in_a_request():
            return
        if stage == self._stage == "body" and self._body_size != before:
            self._received = 0
        elif self._received > self.limits.head_bytes and self._stage == stage:
            self._refuse(431, self._too_long())
        if self._answered_early():
            self._unread += len(data)
            if self._unread > self.limits.unread_bytes:
                self._linger()

    def pause_writing(self) -> None:
        self._blocked_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._blocked_since = None
        super().resume_writing()

    # --- llhttp ----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._stage != "head":  # another request in the same piece
            self._stage, self._since, self._received = "head", self.loop.time(), 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._stage == "head":  # trailers must never pass as headers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._deaf or self._ending:
            return
        if self._received > self.limits.head_bytes and self._head_size() > self.limits.head_bytes:
            self._refuse(431, self._too_long())
            return
        super().on_headers_complete()
        self._stage, self._body_size, self._unread = "body", 0, 0
        if len(self.pipeline) > self.limits.pipelined:
            self._end_after_answer()

    def on_body(self, body: bytes) -> None:
        if self._stage == "body":
            self._body_size += len(body)
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._stage == "body":
            super().on_message_complete()
        self._stage, self._since = "idle", self.loop.time()

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    @property
    def _newest(self) -> RequestResponseCycle | None:
        return self.cycle  # uvicorn's annotation leaves out that there is none at first

    # --- ends ------------------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg)

    def _unsupported_upgrade_warning(self) -> None:
        self._end_after_answer()  # llhttp takes what follows for that other protocol

    def _too_long(self) -> str:
        return f"the request head is larger than {self.limits.head_bytes} bytes"

    def _end_after_answer(self) -> None:
        """Answer what was asked, begin nothing new."""
        self._ending = True
        if newest := self._newest:
            newest.keep_alive = False

    def _in_a_request(self) -> bool:
        return not self._deaf and self._stage != "idle"

    def _answered_early(self) -> bool:
        return self._stage == "body" and self.cycle.response_complete

    def _refuse(self, status: int, why: str) -> None:
        if self._deaf:
            return
        newest, arriving = self._newest, self._stage == "body"
        answered = newest is None or newest.response_complete
        self._deaf = True
        if not answered and not arriving:
            self._end_after_answer()  # earlier requests are answered first
            return
        if not answered:
            if self.pipeline or self.cycle.response_started:
                self.transport.abort()
                return
            self.cycle.disconnected = True  # its application has nobody to answer
            self.cycle.message_event.set()
        if answered and arriving:
            self._linger()
            return
        body = f"{why}\n".encode()
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self._linger()

    def _linger(self) -> None:
        """Close so that the client can read the answer: unread input would turn the close into a reset."""
        self._deaf = True
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.loop.call_later(self.limits.linger_seconds, self.transport.close)
        else:
            self.transport.close()

    # --- time ------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        limits = self.limits
        pace = min(limits.head_seconds, limits.body_seconds, limits.idle_seconds, limits.write_seconds) / 4
        self._watch = self.loop.call_later(pace, self._check)

    def _check(self) -> None:
        now, limits = self.loop.time(), self.limits
        if self.transport.is_closing() and self._blocked_since is None:
            self._blocked_since = now  # what is left to write may never be read
        if self._blocked_since is not None and now - self._blocked_since > limits.write_seconds:
            self.transport.abort()
            return
        if not self._deaf:
            self._check_reading(now - self._since)
        self._arm()

    def _check_reading(self, spent: float) -> None:
        limits = self.limits
        if self._stage == "head":
            if spent > limits.head_seconds:
                self._refuse(408, "the request head did not arrive in time")
        elif self._stage == "body":
            if self.flow.read_paused:
                self._since = self.loop.time()  # we are the slow ones
            elif spent > limits.body_seconds and self._body_size < spent * limits.body_rate:
                self._refuse(408, "the request body did not arrive in time")
        elif self._newest is None and spent > limits.idle_seconds:
            self.transport.close()


def guarded(limits: HttpLimits) -> type[GuardedHttp]:
    """The protocol with these limits."""
    return type("GuardedHttp", (GuardedHttp,), {"limits": limits})
