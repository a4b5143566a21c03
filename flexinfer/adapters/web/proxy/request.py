"""One request as the listener read it."""

import asyncio
from collections.abc import Callable
from typing import Final

from flexinfer.adapters.web.proxy.limits import Budget
from flexinfer.core.routing.refusal import Refusal

Header = tuple[bytes, bytes]

# Headers somebody asks for by name; the rest is only passed on.
NOTED = frozenset({
    b"authorization", b"connection", b"content-length", b"content-type", b"expect", b"transfer-encoding",
    b"x-flexinfer-background", b"x-model-id", b"x-request-id",
})  # fmt: skip

_LISTS = frozenset({b"connection", b"transfer-encoding"})


def note(noted: dict[bytes, bytes], name: bytes, value: bytes) -> None:
    """Keep a header that is asked for by name: the first one, or all of those that are lists."""
    if name not in noted:
        noted[name] = value
    elif name in _LISTS:
        noted[name] += b"," + value


class Request:
    """Head first; the body arrives meanwhile. Header names are lower case."""

    __slots__ = (
        "_arrived", "_budget", "_failure", "_held", "_hungry", "_limit", "_parts", "_size", "complete", "headers",
        "keep_alive", "method", "noted", "old", "path", "query", "started", "wants_continue",
    )  # fmt: skip

    def __init__(self, limit: int, started: float, budget: Budget) -> None:
        self.method = ""
        self.path = ""
        self.query = ""
        self.headers: list[Header] = []
        self.noted: dict[bytes, bytes] = {}  # the first of each NOTED header
        self.old = False  # HTTP/1.0
        self.keep_alive = True
        self.wants_continue = False
        self.complete = False
        self.started = started  # loop time of the first byte
        self._limit: Final = limit
        self._budget: Final = budget
        self._held = 0
        self._parts: list[bytes] = []
        self._size = 0
        self._arrived: asyncio.Future[None] | None = None
        self._hungry: Callable[[], None] | None = None
        self._failure: Refusal | None = None

    def header(self, name: bytes) -> str:
        """The first value of a header as text, empty if it is missing."""
        if name in NOTED:
            return self.noted.get(name, b"").decode("latin-1")
        for key, value in self.headers:
            if key == name:
                return value.decode("latin-1")
        return ""

    @property
    def size(self) -> int:
        """Body bytes so far."""
        return self._size

    def on_hunger(self, ask: Callable[[], None]) -> None:
        """``ask`` is called when the body is wanted and the client waits for ``100 Continue``."""
        self._hungry = ask

    def feed(self, data: bytes) -> None:
        """The listener read a piece of the body; what is over the limit is thrown away."""
        size = len(data)
        self._size += size
        if self._failure:
            return
        if self._size > self._limit:
            self.fail(Refusal(413, "request_too_large", f"the request body is larger than {self._limit} bytes"))
            return
        self._held += size
        self._budget.held += size
        if self._budget.held > self._budget.limit:
            self.fail(Refusal(503, "overloaded", "too many large requests at once", retry_after=1))
            return
        self._parts.append(data)

    def release(self) -> None:
        """Nobody needs the body any more."""
        self._parts.clear()
        self._budget.held -= self._held
        self._held = 0

    def finish(self) -> None:
        """The body is complete."""
        self.complete = True
        self._wake()

    def fail(self, why: Refusal) -> None:
        """The body will not be completed."""
        self.release()
        self._failure = why
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    async def body(self) -> bytes:
        """The whole body. Raises Refusal 413, 503, or what ``fail`` was given."""
        if not (self.complete or self._failure):
            if self._declared() > self._limit:
                raise Refusal(413, "request_too_large", f"the request body is larger than {self._limit} bytes")
            if self.wants_continue and self._hungry:
                self._hungry()
            self._arrived = asyncio.get_running_loop().create_future()
            try:
                await self._arrived
            finally:
                self._arrived = None
        if self._failure:
            raise self._failure
        if len(self._parts) != 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0]

    def _declared(self) -> int:
        length = self.header(b"content-length")
        return int(length) if length.isdigit() else 0
