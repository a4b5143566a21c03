"""HTTP/1.1 by hand for the fake engine: read a request, answer it, or break the connection on purpose."""

import asyncio
import socket
import struct
from dataclasses import dataclass
from typing import Any

import msgspec

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many Requests", 503: "Service Unavailable"}
_SLICE = 0.02  # how soon a silent exchange notices that its client left, in seconds


class Broken(Exception):
    """The client left, or sent what is no HTTP."""


@dataclass(frozen=True, slots=True)
class Request:
    """As received; header names are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The decoded body."""
        return msgspec.json.decode(self.body)


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request, None at the end of the connection. Raises Broken."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as err:
        if err.partial.strip():
            raise Broken("the connection ended inside a request head") from err
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3:
        raise Broken(f"not a request line: {first!r}")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _chunked(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(parts[0], parts[1], headers, body)


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return b"".join(parts)


class Exchange:
    """The answering side of one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def pause(self, seconds: float) -> None:
        """Wait that long. Raises Broken if the client leaves meanwhile."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0:
            await asyncio.sleep(min(left, _SLICE))
            self._present()

    def _present(self) -> None:
        if self._writer.is_closing() or self._reader.at_eof():
            raise Broken("the client left")

    async def respond(
        self, status: int, body: bytes, content_type: str = "application/json", headers: tuple[str, ...] = ()
    ) -> None:
        """One complete answer."""
        lines = (
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}",
            f"Content-Type: {content_type}",
            f"Content-Length: {len(body)}",
            "Connection: keep-alive",
            *headers,
        )
        self._writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await self._writer.drain()

    async def begin_stream(self) -> None:
        """Head of a chunked event stream."""
        self._writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: keep-alive\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        await self.flush()

    def chunk(self, data: bytes, times: int = 1) -> None:
        """One chunk, repeated."""
        self._writer.write((f"{len(data):x}\r\n".encode() + data + b"\r\n") * times)

    async def flush(self) -> None:
        """Wait for a slow reader. Raises Broken if the client left."""
        self._present()
        await self._writer.drain()

    async def end_stream(self) -> None:
        """The last chunk."""
        self._writer.write(b"0\r\n\r\n")
        await self.flush()

    def truncate(self) -> None:
        """Close without the last chunk."""
        self._writer.close()

    def reset(self) -> None:
        """Close with a TCP reset, so that the client sees a broken connection, not an end."""
        sock = self._writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
