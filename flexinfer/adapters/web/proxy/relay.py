"""From an engine's answer to the client's: heads rewritten, bodies as they came."""

import re
from collections import deque

from flexinfer.adapters.web.proxy.client import Client, head_of
from flexinfer.adapters.web.proxy.connections import Address
from flexinfer.adapters.web.proxy.request import Header, Request
from flexinfer.adapters.web.proxy.upstream import Connection, Head, Sink
from flexinfer.core.routing.usage import Usage

HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
    b"transfer-encoding", b"upgrade", b"http2-settings",
})  # fmt: skip
DROP_FROM_CLIENT = HOP | {b"host", b"content-length", b"expect", b"trailer", b"x-request-id"}
_FRAMING = frozenset({b"content-length"})  # without it a client would wait for the end of a kept connection
_NONE: frozenset[bytes] = frozenset()
_USAGE = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,9})')
_TAIL = 4096


def named_in(connection: bytes) -> frozenset[bytes]:
    """Headers the value of a Connection header declares to be for one hop."""
    if connection.lower() in {b"", b"keep-alive", b"close"}:
        return _NONE
    return frozenset(part.strip() for part in connection.lower().split(b","))


class Outgoing:
    """A client's request as engines get it; built once, sent as often as needed."""

    __slots__ = ("_fields", "_start", "_target", "bodiless", "body", "plain")

    def __init__(
        self, request: Request, path: str, body: bytes, *, request_id: bytes, dropped: frozenset[bytes], plain: bool
    ) -> None:
        self.body = body
        self.bodiless = request.method == "HEAD"
        self.plain = plain
        target = f"{path}?{request.query}" if request.query else path
        self._start = request.method.encode("latin-1")
        self._target = target.encode("latin-1")
        dropped = dropped | named_in(request.noted.get(b"connection", b""))
        fields = [name + b": " + value for name, value in request.headers if name not in dropped]
        fields.append(b"x-request-id: " + request_id)
        if body or request.method not in {"GET", "HEAD", "DELETE", "OPTIONS"}:
            fields.append(b"content-length: %d" % len(body))
        self._fields = b"\r\n".join(fields) + b"\r\n\r\n"

    def head(self, address: Address) -> bytes:
        """Request line and headers for one address."""
        return b"%s %s%s HTTP/1.1\r\nhost: %s\r\n%s" % (
            self._start, address.prefix, self._target, address.authority, self._fields,
        )  # fmt: skip


class Counting:
    """Counts the tokens of an answer: one per stream event, or what ``usage`` says in the end."""

    __slots__ = ("_out", "_tail", "_usage", "counted", "size", "stream")

    def __init__(self, usage: Usage, *, stream: bool) -> None:
        self._usage = usage
        # ``usage``, ``[DONE]`` and the last chunk may each come alone.
        self._tail: deque[bytes] = deque(maxlen=4)
        self._out: Sink | None = None
        self.stream = stream
        self.counted = 0
        self.size = 0

    def onto(self, out: Sink) -> None:
        """What is written goes there."""
        self._out = out

    def note(self, data: bytes) -> None:
        """Count without passing on."""
        self.size += len(data)
        self._tail.append(data)
        if self.stream:
            events = data.count(b"data:")
            self.counted += events
            self._usage.tokens += events

    def write(self, data: bytes) -> None:
        """Count and pass on."""
        self.note(data)
        if self._out is not None:
            self._out.write(data)

    def finish(self) -> None:
        """The answer is complete."""
        if found := _USAGE.findall(b"".join(self._tail)[-_TAIL:]):
            total = int(found[-1])
            self._usage.tokens += total - self.counted
            self.counted = total


class Chunking:
    """Frames an answer whose end is the end of its connection, for clients that keep theirs."""

    def __init__(self, out: Sink) -> None:
        self._out = out

    def write(self, data: bytes) -> None:
        """One chunk."""
        if data:
            self._out.write(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self) -> None:
        """The last chunk."""
        self._out.write(b"0\r\n\r\n")


async def relay(
    client: Client,
    connection: Connection,
    head: Head,
    extra: list[Header],
    dropped: frozenset[bytes],
    counting: Counting,
) -> None:
    """Send the answer to the client to its end, with ``extra`` headers and without the ``dropped`` ones.

    ``dropped`` holds HOP and the names of ``extra``. Raises UpstreamFailed once the head is out: the answer is broken.
    """
    if named := named_in(head.noted.get(b"connection", b"")):
        dropped |= named - _FRAMING
    old = client.request is not None and client.request.old
    fields = [field for field in head.headers if field[0] not in dropped]
    fields += extra
    chunking = Chunking(client.transport) if head.framing == "until-close" and not old else None
    if old and head.framing in {"chunked", "until-close"}:
        client.close_after = True
    elif chunking or head.framing == "chunked":
        fields.append((b"transfer-encoding", b"chunked"))
    fields += client.connection_fields()
    first = connection.take()
    counting.note(first)
    counting.onto(chunking or client.transport)
    client.began = True
    if chunking:
        client.transport.write(head_of(head.status, fields, head.reason))
        chunking.write(first)
    else:
        client.transport.write(head_of(head.status, fields, head.reason) + first)
    if not connection.complete:
        client.follow(connection)
        await connection.relay(counting)
        client.flow = None
    if chunking:
        chunking.end()
    counting.finish()
