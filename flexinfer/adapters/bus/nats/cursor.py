"""Reading a stream through an ephemeral pull consumer.

Pulling keeps back-pressure with the reader, and the consumer is deleted when done: 500 watches left to time out
were seen to stay on a server for minutes.
"""

import asyncio
from collections import deque
from typing import Any

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.nuid import NUID

from flexinfer.adapters.bus.nats.link import Session
from flexinfer.adapters.bus.nats.replies import client_inbox
from flexinfer.ports import BusRefused, BusUnavailable

BATCH = 4096
STALL_SECONDS = 5.0
_IDLE_NANOSECONDS = 30_000_000_000
_nuid = NUID()


class Cursor:
    """A position in one stream. Not for concurrent use."""

    def __init__(self, session: Session, stream: str, name: str, pending: int) -> None:
        self._session = session
        self._stream = stream
        self._name = name
        self._queue: deque[Msg] = deque()
        self._arrived = asyncio.Event()
        self._subscription: Subscription | None = None
        self._inbox = ""
        self._requested = False
        self._left = 0
        self.pending = pending

    @classmethod
    async def open(cls, session: Session, stream: str, start: dict[str, Any]) -> "Cursor":
        """``start`` holds filters and deliver policy. Raises BusUnavailable, BusRefused (ApiRefused: no stream)."""
        name = _nuid.next().decode()
        config = {
            "name": name,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": _IDLE_NANOSECONDS,
            **start,
        }
        verb = f"CONSUMER.CREATE.{stream}.{name}"
        filters = start.get("filter_subjects", ())
        if len(filters) == 1:
            # Named in the request's subject, too, so that permissions can say what a client may read.
            del config["filter_subjects"]
            config["filter_subject"] = filters[0]
            verb = f"{verb}.{filters[0]}"
        made = await session.api(verb, msgspec.json.encode({"stream_name": stream, "config": config}))
        cursor = cls(session, stream, name, int(made.get("num_pending", 0)))
        cursor._inbox = client_inbox(session.client)
        try:
            cursor._subscription = await session.client.subscribe(cursor._inbox, cb=cursor._on_message)
        except (NatsError, OSError) as err:
            raise BusUnavailable(f"cannot read {stream}: {err}") from err
        return cursor

    async def _on_message(self, msg: Msg) -> None:
        self._queue.append(msg)
        self._arrived.set()

    async def available(self) -> list[Msg]:
        """All that the stream holds for us now. Raises BusUnavailable."""
        found: list[Msg] = []
        while page := await self.page(BATCH):
            found += page
            if len(page) < BATCH:
                break
        return found

    async def page(self, batch: int = 256) -> list[Msg]:
        """At most ``batch`` messages of what the stream holds now, empty at its end. Raises BusUnavailable."""
        await self._request({"batch": batch, "no_wait": True})
        got: list[Msg] = []
        while len(got) < batch:
            msg = await self._next(STALL_SECONDS)
            if msg is None:
                raise BusUnavailable(f"reading {self._stream}: the bus did not answer in time")
            if _is_end(msg):
                break
            got.append(msg)
        return got

    async def wait(self, seconds: float, batch: int = 256) -> list[Msg]:
        """What arrives next, empty after ``seconds`` of silence. Raises BusUnavailable."""
        if not self._requested:
            await self._request({"batch": batch, "expires": int(seconds * 1e9)})
            self._requested = True
        msg = await self._next(seconds + STALL_SECONDS)
        if msg is None:
            raise BusUnavailable(f"reading {self._stream}: the bus did not answer in time")
        found: list[Msg] = []
        while msg is not None:
            if _is_end(msg):
                self._requested = False
                break
            found.append(msg)
            self._left -= 1
            if self._left <= 0:
                self._requested = False
                break
            msg = self._queue.popleft() if self._queue else None
        return found

    async def _request(self, request: dict[str, Any]) -> None:
        self._left = int(request["batch"])
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        await self._session.send(subject, msgspec.json.encode(request), reply=self._inbox)

    async def _next(self, seconds: float) -> Msg | None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not self._queue:
            self._arrived.clear()
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return None
            try:
                # Short steps: a connection that went away wakes nobody here.
                await asyncio.wait_for(self._arrived.wait(), min(left, 0.5))
            except TimeoutError:
                if not self._session.alive:
                    raise BusUnavailable(f"reading {self._stream}: the connection to the bus was lost") from None
        return self._queue.popleft()

    async def close(self) -> None:
        """Free the consumer on the server; never raises."""
        if self._subscription is not None and self._session.alive:
            try:
                await self._subscription.unsubscribe()
                await self._session.api(f"CONSUMER.DELETE.{self._stream}.{self._name}")
            except (NatsError, OSError, BusUnavailable, BusRefused):
                return  # it goes by itself after 30 s


def _is_end(msg: Msg) -> bool:
    """Raises BusUnavailable when the consumer is gone: another one can be made."""
    headers = msg.headers or {}
    status = None if msg.reply else headers.get("Status")
    if status is None:
        return False
    if status in ("404", "408"):
        return True
    raise BusUnavailable(f"reading the stream: {status} {headers.get('Description', '')}".strip())
