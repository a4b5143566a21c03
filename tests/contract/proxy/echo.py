"""An engine that answers with what it was asked, in whatever framing and with whatever fault the test wants."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from flexinfer.testing.fake_wire import Broken, Request, read_request

Behave = Callable[["EchoEngine", Request, asyncio.StreamWriter], Awaitable[bool]]


async def plain(engine: "EchoEngine", request: Request, writer: asyncio.StreamWriter) -> bool:
    """One answer with its length, kept alive."""
    body = engine.echo(request)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return True


async def chunked(engine: "EchoEngine", request: Request, writer: asyncio.StreamWriter) -> bool:
    """Odd chunks, an extension and a trailer."""
    body = engine.echo(request)
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
    for piece in (body[:1], body[1:4], body[4:]):
        writer.write(b"%x;ext=1\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
        await asyncio.sleep(0)
    writer.write(b"0\r\nX-Sum: 42\r\n\r\n")
    return True


async def until_close(engine: "EchoEngine", request: Request, writer: asyncio.StreamWriter) -> bool:
    """HTTP/1.0 style: the end of the connection is the end of the body."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + engine.echo(request))
    return False


async def lying(engine: "EchoEngine", request: Request, writer: asyncio.StreamWriter) -> bool:
    """Announces keep-alive and closes at once."""
    await plain(engine, request, writer)
    return False


class EchoEngine:
    """``behave`` answers one request and tells whether the connection goes on."""

    def __init__(self, behave: Behave = plain, name: str = "e") -> None:
        self.behave = behave
        self.name = name
        self.seen: Counter[str] = Counter()
        self.requests: list[Request] = []
        self.keep = False
        self.open: set[asyncio.StreamWriter] = set()
        self.accepted = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        assert self._server
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def echo(self, request: Request) -> bytes:
        return msgspec.json.encode(
            {"engine": self.name, "mark": request.headers.get("x-mark", ""), "size": len(request.body)}
        )

    async def start(self) -> "EchoEngine":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 27, backlog=2048)
        return self

    async def stop(self) -> None:
        if self._server:
            self._server.close()
            for writer in tuple(self.open):
                writer.transport.abort()
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.open.add(writer)
        self.accepted += 1
        try:
            while (request := await read_request(reader)) is not None:
                self.seen[request.headers.get("x-mark", "")] += 1
                if self.keep:
                    self.requests.append(request)
                if not await self.behave(self, request, writer):
                    break
                await writer.drain()
        except (Broken, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open.discard(writer)
            with contextlib.suppress(ConnectionError):
                writer.close()
