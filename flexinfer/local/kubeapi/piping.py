"""Bodies that come in parts while the client listens: logs that are followed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from flexinfer.adapters.web.serve import Receive, Send
from flexinfer.runtime.tasks import Supervisor


class Pipes:
    """All bodies under way."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._running: set[asyncio.Task[Any]] = set()

    async def send(self, parts: AsyncIterator[bytes], content_type: bytes, receive: Receive, send: Send) -> None:
        """Until the parts end, the client leaves or the server stops."""
        await send({"type": "http.response.start", "status": 200, "headers": ((b"content-type", content_type),)})
        pump = self._supervisor.once("pipe", _pump(parts, send))
        gone = self._supervisor.once("pipe-hangup", _hangup(receive))
        self._running.add(pump)
        try:
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._running.discard(pump)
            for task in (pump, gone):
                task.cancel()
            await asyncio.wait({pump, gone})
            if not pump.cancelled():
                pump.exception()  # logged by the supervisor; the client sees a short answer
        await send({"type": "http.response.body", "body": b""})

    def end_all(self) -> None:
        """End every body."""
        for pump in tuple(self._running):
            pump.cancel()


async def _pump(parts: AsyncIterator[bytes], send: Send) -> None:
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    async for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})


async def _hangup(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
