"""A TCP link that a test can cut, flap, or stop in one direction or both, as a bad network would."""

import asyncio
from contextlib import suppress
from typing import Literal

from flexinfer.local.ports import free_port
from flexinfer.runtime.tasks import Supervisor

Way = Literal["up", "down", "both"]  # up: from the client to the server


class Link:
    """Forwards ``port`` on loopback to ``target``, also on loopback."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = free_port()
        self.refusing = False
        self._open = {"up": asyncio.Event(), "down": asyncio.Event()}
        for flow in self._open.values():
            flow.set()
        self._transports: set[asyncio.StreamWriter] = set()
        self._tasks = Supervisor("link")
        self._server: asyncio.Server | None = None

    async def start(self) -> "Link":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        return self

    async def stop(self) -> None:
        self.heal()
        if self._server:
            self._server.close()
        self.cut()
        await self._tasks.close()

    def cut(self) -> int:
        """Reset every connection; how many ends there were."""
        ends = list(self._transports)
        for writer in ends:
            writer.transport.abort()
        return len(ends)

    def hold(self, way: Way) -> None:
        """Bytes of this direction are kept back; nobody is told."""
        for name, flow in self._open.items():
            if way in {name, "both"}:
                flow.clear()

    def heal(self) -> None:
        """As good as new; what was kept back is delivered."""
        self.refusing = False
        for flow in self._open.values():
            flow.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._transports |= {writer, far_writer}
        up = self._tasks.once("up", self._flow(reader, far_writer, "up"))
        down = self._tasks.once("down", self._flow(far_reader, writer, "down"))
        with suppress(asyncio.CancelledError):
            await asyncio.wait({up, down})
        self._transports -= {writer, far_writer}

    async def _flow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._open[way].wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            writer.transport.abort()
        else:
            writer.close()
