"""Reading the shared log."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from nats.aio.msg import Msg

from flexinfer.adapters.bus import inbound
from flexinfer.adapters.bus.nats.cursor import Cursor
from flexinfer.adapters.bus.nats.link import ApiRefused, Link, Session
from flexinfer.adapters.bus.nats.snapshot import NO_STREAM
from flexinfer.contracts.envelope import Event
from flexinfer.contracts.topics import LOG_STREAM, PREFIX, token
from flexinfer.ports import BusRefused, BusUnavailable

POLL_SECONDS = 5.0


class LogReader:
    """The log from one moment on, event by event; resumes after a lost connection when following."""

    def __init__(self, link: Link, cluster: str, since: float | None, *, follow: bool) -> None:
        self._link = link
        self._filter = f"{PREFIX}.{token(cluster)}.>"
        self._since = since
        self._follow = follow
        self._cursor: Cursor | None = None
        self._last = 0  # stream sequence

    async def open(self) -> Cursor:
        """Find the log. Raises BusUnavailable, BusRefused."""
        session = self._link.session
        if session is None:
            raise BusUnavailable("not connected to the bus")
        start: dict[str, Any] = {"filter_subjects": [self._filter]}
        if self._last and await _reaches(session, self._last):
            start |= {"deliver_policy": "by_start_sequence", "opt_start_seq": self._last + 1}
        elif self._since is not None and not self._last:
            at = datetime.fromtimestamp(self._since, UTC).isoformat().replace("+00:00", "Z")
            start |= {"deliver_policy": "by_start_time", "opt_start_time": at}
        try:
            self._cursor = await Cursor.open(session, LOG_STREAM, start)
        except ApiRefused as err:
            if err.code == NO_STREAM:
                raise BusRefused(f"the log {LOG_STREAM} does not exist yet; the manager creates it") from err
            raise
        return self._cursor

    async def read(self) -> AsyncIterator[Event]:
        """Events in stored order."""
        try:
            while True:
                batch = await self._next()
                for msg in batch:
                    self._last = _sequence(msg)
                    event = inbound.from_log(msg.subject, msg.data)
                    if event is not None:
                        inbound.count_received(event)
                        yield event
                if not self._follow and not batch:
                    return
        finally:
            if self._cursor is not None:
                await self._cursor.close()

    async def _next(self) -> list[Msg]:
        try:
            cursor = self._cursor
            if cursor is None:
                await self._link.up()
                cursor = await self.open()
            if self._follow:
                return await cursor.wait(POLL_SECONDS)
            return await cursor.page()
        except BusUnavailable:
            if not self._follow:
                raise
            if self._cursor is not None:
                await self._cursor.close()
                self._cursor = None
            return []


async def _reaches(session: Session, sequence: int) -> bool:
    """False when the log was lost and counts anew."""
    info = await session.api(f"STREAM.INFO.{LOG_STREAM}")
    return int(info.get("state", {}).get("last_seq", 0)) >= sequence


def _sequence(msg: Msg) -> int:
    """Stream sequence out of ``$JS.ACK.<stream>.<consumer>.<n>.<sequence>…``, or the form with a domain."""
    parts = msg.reply.split(".")
    return int(parts[5] if len(parts) == 9 else parts[7])
