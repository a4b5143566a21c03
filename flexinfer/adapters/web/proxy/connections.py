"""Kept-alive connections to engines, by address."""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from flexinfer.adapters.web.proxy.limits import UpstreamLimits
from flexinfer.adapters.web.proxy.upstream import Connection, Head, UpstreamFailed

log = logging.getLogger(__name__)

# llama.cpp announces keep-alive after a stream and closes at once; its end is noticed within this time.
_REST_SECONDS = 0.02


class Address:
    """Where an engine listens: ``http(s)://host[:port]`` and an optional path in front of every request path."""

    __slots__ = ("authority", "host", "port", "prefix", "tls", "url")

    def __init__(self, url: str) -> None:
        """Raises ValueError for what is no such URL."""
        parts = urlsplit(url)
        plain = url.isascii() and url.isprintable() and " " not in url
        if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in url or parts.query or not plain:
            raise ValueError(f"{url!r} is not http(s)://host[:port]")
        self.url = url
        self.tls = parts.scheme == "https"
        self.host = parts.hostname
        self.port = parts.port or (443 if self.tls else 80)
        self.authority = parts.netloc.encode("ascii")
        self.prefix = parts.path.rstrip("/").encode("ascii")


def _why(err: OSError) -> str:
    """Without the address: clients read it, and need not know what runs where."""
    if isinstance(err, ssl.SSLError):
        return (err.reason or "TLS").replace("_", " ").lower()
    return os.strerror(err.errno) if err.errno and err.errno > 0 else "its name or address leads nowhere"


class Connections:
    """All connections of one process to engines."""

    def __init__(self, limits: UpstreamLimits, tls: ssl.SSLContext | None = None) -> None:
        self._limits = limits
        self._tls = tls or ssl.create_default_context()
        self._loop = asyncio.get_running_loop()
        self._idle: dict[str, list[Connection]] = {}
        self._all: set[Connection] = set()
        self._addresses: dict[str, Address] = {}

    def address(self, url: str) -> Address:
        """The parsed address of a URL from a trusted event or flag. Raises UpstreamFailed."""
        found = self._addresses.get(url)
        if found is None:
            try:
                found = Address(url)
            except ValueError as err:
                log.warning("no engine can be asked: %s", err)
                raise UpstreamFailed("connect", "its address is not valid") from err
            if len(self._addresses) > 10_000:
                self._addresses.clear()
            self._addresses[url] = found
        return found

    @property
    def open(self) -> int:
        """Connections that are open, idle ones included."""
        return len(self._all)

    async def ask(
        self, url: str, build: Callable[[Address], bytes], body: bytes, *, bodiless: bool = False, plain: bool = False
    ) -> tuple[Connection, Head]:
        """Send a request over an idle or a new connection; its head and the connection to relay from.

        A kept-alive connection that dies before the first byte of an answer says nothing about the engine: the
        request goes out again on another one. Raises UpstreamFailed.
        """
        address = self.address(url)
        head = build(address)
        while True:
            connection = self._reuse(url)
            if connection is None:
                connection = await self._connect(address)
            try:
                return connection, await connection.ask(head, body, bodiless=bodiless, plain=plain)
            except UpstreamFailed as err:
                stale = connection.used and not connection.answered and err.stage in {"send", "head"}
                connection.abort()
                if not stale:
                    raise
            except BaseException:  # cancellation too: half a request is on the wire
                connection.abort()
                raise

    def _reuse(self, url: str) -> Connection | None:
        idle = self._idle.get(url)
        while idle:
            connection = idle.pop()
            if not connection.closed:
                return connection
        return None

    async def _connect(self, address: Address) -> Connection:
        connection = Connection(self._limits, self._loop, address.url)
        tls = self._tls if address.tls else None
        try:
            async with asyncio.timeout(self._limits.connect_seconds):
                await self._loop.create_connection(
                    lambda: connection, address.host, address.port, ssl=tls,
                    server_hostname=address.host if tls else None,
                )  # fmt: skip
        except TimeoutError as err:
            raise UpstreamFailed("connect", f"no connection within {self._limits.connect_seconds:g} s") from err
        except OSError as err:
            raise UpstreamFailed("connect", f"cannot connect: {_why(err)}") from err
        self._all.add(connection)
        return connection

    def drop(self, connection: Connection) -> None:
        """Nobody wants the rest of this answer."""
        connection.abort()
        self._all.discard(connection)

    def give_back(self, url: str, connection: Connection, *, stream: bool) -> None:
        """The answer was relayed or given up; keep the connection if it can serve another request."""
        if not connection.reusable:
            self.drop(connection)
            return
        connection.release()
        if stream:
            self._loop.call_later(_REST_SECONDS, self._shelve, url, connection)
        else:
            self._shelve(url, connection)

    def _shelve(self, url: str, connection: Connection) -> None:
        idle = self._idle.setdefault(url, [])
        if connection.closed or len(idle) >= self._limits.idle_connections:
            self.drop(connection)
        else:
            idle.append(connection)

    def give_up_waiting(self, url: str, why: str) -> None:
        """Fail the requests to this address that have no answer yet; answers in flight go on."""
        for connection in tuple(self._all):
            if connection.url == url:
                connection.give_up_waiting(why)

    def forget(self, url: str) -> None:
        """The engine is gone: close idle connections; answers in flight go on."""
        for connection in self._idle.pop(url, []):
            self.drop(connection)
        self._addresses.pop(url, None)

    async def sweep(self) -> None:
        """End what takes too long and drop what idled too long, for ever."""
        limits = self._limits
        pace = min(1.0, limits.first_byte_seconds / 4, limits.idle_seconds / 4)
        while True:
            await asyncio.sleep(pace)
            now = self._loop.time()
            for connection in tuple(self._all):
                connection.check(now)
                if connection.closed:
                    self._all.discard(connection)
            for url, idle in tuple(self._idle.items()):
                self._idle[url] = [c for c in idle if not self._expired(c, now)]
                if not self._idle[url]:
                    del self._idle[url]

    def _expired(self, connection: Connection, now: float) -> bool:
        if connection.closed or now - connection.idle_since > self._limits.keep_seconds:
            self.drop(connection)
            return True
        return False

    def close(self) -> None:
        """Cut everything."""
        for connection in tuple(self._all):
            connection.abort()
        self._all.clear()
        self._idle.clear()
