"""Accepts clients and hands their requests to one handler."""

import asyncio
import logging
import resource
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from flexinfer.adapters.web.proxy import room
from flexinfer.adapters.web.proxy.client import Client
from flexinfer.adapters.web.proxy.limits import Budget, ServerLimits
from flexinfer.adapters.web.proxy.request import Request
from flexinfer.core.routing.refusal import Refusal

log = logging.getLogger(__name__)

Handler = Callable[[Request, Client], Awaitable[None]]


class Tasks(Protocol):
    """Who runs background work (runtime.tasks.Supervisor)."""

    def once(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run to the end; failures are logged and counted."""
        ...

    def forever(self, name: str, work: Callable[[], Awaitable[Any]]) -> asyncio.Task[Any]:
        """Run again whenever it ends."""
        ...


class Listener:
    """A listening socket and its connections."""

    def __init__(
        self,
        handle: Handler,
        tasks: Tasks,
        limits: ServerLimits,
        refused: Callable[[Refusal], None] = lambda _why: None,
    ) -> None:
        self.handle = handle
        self.limits = limits
        self.budget = Budget(min(limits.buffered_bytes, room.for_bodies()))
        self.loop = asyncio.get_running_loop()
        self.draining = False
        self._most = min(limits.connections, room.for_clients())
        log.info("room for %d clients and %d MiB of bodies; others get 503", self._most, self.budget.limit >> 20)
        self.refused = refused
        self._tasks = tasks
        self._clients: set[Client] = set()
        self._server: asyncio.Server | None = None
        self._gone = asyncio.Event()
        self._sweeping: asyncio.Task[Any] | None = None

    async def start(self, sock: socket.socket) -> None:
        """Accept connections on a listening socket."""
        self._server = await self.loop.create_server(lambda: Client(self), sock=sock, backlog=2048)
        self.restart_sweep()

    def restart_sweep(self) -> None:
        """Take up changed limits."""
        if self._sweeping:
            self._sweeping.cancel()
        self._sweeping = self._tasks.once("client time limits", self._sweep())

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """The task of one connection."""
        return self._tasks.once("client", work)

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._clients)

    def opened(self, client: Client) -> None:
        """A connection was accepted."""
        self._clients.add(client)
        if len(self._clients) > min(self.limits.connections, self._most):
            client.turn_away(Refusal(503, "too_many_connections", "too many connections", retry_after=1))

    def closed(self, client: Client) -> None:
        """A connection ended."""
        self._clients.discard(client)
        if not self._clients:
            self._gone.set()

    async def _sweep(self) -> None:
        limits = self.limits
        pace = min(1.0, limits.head_seconds / 4, limits.body_seconds / 4, limits.idle_seconds / 4)
        while True:
            await asyncio.sleep(pace)
            now = self.loop.time()
            for client in tuple(self._clients):
                client.check(now)

    def stop_accepting(self) -> None:
        """Close the listening socket; connections go on."""
        if self._server:
            self._server.close()

    async def drain(self, seconds: float, accept_seconds: float) -> None:
        """Answer what is in flight, then end; new connections are still taken for ``accept_seconds``.

        Every answer closes its connection. Those without a request are closed when nothing is accepted any more: until
        then one may have been made a moment ago, its request on the way. After ``seconds`` whatever is left is cut.
        """
        self.draining = True
        end = self.loop.time() + seconds
        accept_until = min(self.loop.time() + accept_seconds, end)
        while (now := self.loop.time()) < end:
            pause = accept_until - now
            if pause <= 0:
                self.stop_accepting()
                if not self._clients:
                    break
                self._close_idle()
                pause = min(0.25, end - now)
            self._gone.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._gone.wait()
        self.stop_accepting()
        for client in tuple(self._clients):
            client.transport.abort()
        if self._sweeping:
            self._sweeping.cancel()

    def _close_idle(self) -> None:
        for client in tuple(self._clients):
            if client.idle:
                client.transport.close()


def raise_file_limit() -> None:
    """Every connection is a file: take what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
