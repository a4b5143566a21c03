"""A network inside one event loop: listening addresses by name, connections as pairs of transports."""

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from typing import Any, cast

Factory = Callable[[], asyncio.BaseProtocol]

_FIRST_PORT = 20000


class _Address:
    """What remains of a socket: its name."""

    def __init__(self, host: str, port: int) -> None:
        self._name = (host, port)

    def getsockname(self) -> tuple[str, int]:
        """Host and port."""
        return self._name


class MemoryServer(asyncio.AbstractServer):
    """One listening address."""

    def __init__(self, network: "MemoryNetwork", host: str, port: int, factory: Factory) -> None:
        self.factory = factory
        self.sockets = (_Address(host, port),)
        self._network = network

    def close(self) -> None:
        """Stop listening; connections stay."""
        self._network.forget(self)

    async def wait_closed(self) -> None:
        """Nothing to wait for."""

    def is_serving(self) -> bool:
        """Whether it listens."""
        return self._network.serves(self)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Its loop."""
        return self._network.loop

    async def start_serving(self) -> None:
        """It does from the start."""

    async def serve_forever(self) -> None:
        """Until cancelled."""
        await asyncio.Event().wait()


class MemoryTransport(asyncio.Transport):
    """One end of a connection. Bytes arrive in the next turn of the loop, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.BaseProtocol, names: dict[str, Any]) -> None:
        super().__init__(names)
        self._loop = loop
        self._protocol = protocol
        self._peer: MemoryTransport | None = None
        self._closing = False
        self._lost = False
        self._paused = False
        self._due: deque[bytes | None] = deque()  # None: the end

    def join(self, peer: "MemoryTransport") -> None:
        """Who is at the other end."""
        self._peer = peer

    def begin(self) -> None:
        """Tell the protocol."""
        self._protocol.connection_made(self)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who reads here."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Somebody else reads from here on."""
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send; after the end it goes nowhere."""
        if data and not self._closing and self._peer is not None:
            self._peer.arrive(bytes(data))

    def write_eof(self) -> None:
        """No more from here."""
        if self._peer is not None:
            self._peer.arrive(None)

    def can_write_eof(self) -> bool:
        """Yes."""
        return True

    def get_write_buffer_size(self) -> int:
        """Nothing waits here."""
        return 0

    def pause_reading(self) -> None:
        """Keep what comes."""
        self._paused = True

    def resume_reading(self) -> None:
        """Hand on what came meanwhile."""
        self._paused = False
        self._loop.call_soon(self._deliver)

    def is_reading(self) -> bool:
        """Whether bytes are handed on."""
        return not self._paused and not self._lost

    def is_closing(self) -> bool:
        """Whether it ends or has ended."""
        return self._closing

    def close(self) -> None:
        """End both directions; what was written arrives first."""
        if not self._closing:
            self._closing = True
            self.write_eof()
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """End at once; the other end sees a reset."""
        if self._lost:
            return
        self._closing = True
        self._loop.call_soon(self._lose, None)
        if self._peer is not None:
            self._peer.reset()

    def reset(self) -> None:
        """The other end aborted."""
        if not self._closing:
            self._closing = True
            self._due.clear()
            self._loop.call_soon(self._lose, ConnectionResetError(errno.ECONNRESET, "reset by the other end"))

    def arrive(self, data: bytes | None) -> None:
        """What the other end wrote; None: its end."""
        self._due.append(data)
        self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        reader = cast("asyncio.Protocol", self._protocol)
        while self._due and not self._paused and not self._lost:
            data = self._due.popleft()
            if data is not None:
                reader.data_received(data)
            elif not reader.eof_received():
                self.close()

    def _lose(self, why: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(why)


class MemoryNetwork:
    """The addresses of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._servers: dict[tuple[str, int], MemoryServer] = {}
        self._next = _FIRST_PORT

    def listen(self, factory: Factory, host: str, port: int) -> MemoryServer:
        """Raises OSError for an address in use."""
        if port == 0:
            port = self._free(host)
        if (host, port) in self._servers:
            raise OSError(errno.EADDRINUSE, f"{host}:{port} is in use")
        server = self._servers[host, port] = MemoryServer(self, host, port, factory)
        return server

    def connect(self, factory: Factory, host: str, port: int) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Raises ConnectionRefusedError."""
        server = self._servers.get((host, port))
        if server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {host}:{port}")
        here = MemoryTransport(self.loop, factory(), {"peername": (host, port)})
        there = MemoryTransport(self.loop, server.factory(), {"sockname": (host, port)})
        here.join(there)
        there.join(here)
        there.begin()
        here.begin()
        return here, here.get_protocol()

    def serves(self, server: MemoryServer) -> bool:
        """Whether it still listens."""
        return server in self._servers.values()

    def forget(self, server: MemoryServer) -> None:
        """It does not any more."""
        self._servers = {address: found for address, found in self._servers.items() if found is not server}

    def _free(self, host: str) -> int:
        while (host, self._next) in self._servers:
            self._next += 1
        self._next += 1
        return self._next - 1
