"""ports.Bus over NATS."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from flexinfer.adapters.bus import inbound
from flexinfer.adapters.bus.background import Background, LoopClock
from flexinfer.adapters.bus.following import BACKLOG
from flexinfer.adapters.bus.nats import snapshot
from flexinfer.adapters.bus.nats.follow import NatsFollow
from flexinfer.adapters.bus.nats.history import LogReader
from flexinfer.adapters.bus.nats.link import ApiRefused, Link, Session, addresses
from flexinfer.adapters.bus.nats.provision import Limits, provision
from flexinfer.adapters.bus.nats.replies import check
from flexinfer.adapters.bus.nats.writer import Writer, live_headers, state_message, state_subject
from flexinfer.adapters.bus.outbound import Outbox, Parcel, Sampler, Unsendable, pack
from flexinfer.adapters.bus.sending import drop, drop_unsendable
from flexinfer.config.common import BusSettings
from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import EventData
from flexinfer.contracts.topics import LOG_STREAM, Bucket, bucket_name
from flexinfer.ports import BusFact, BusRefused, BusUnavailable, Clock

_CLUSTER = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\*")


class NatsBus:
    """Made by ``start``. One per process and role."""

    def __init__(self, link: Link, cluster: str, clock: Clock, limits: Limits, backlog: int) -> None:
        self._link = link
        self._cluster = cluster
        self._clock = clock
        self._limits = limits
        self._backlog = backlog
        self._background = Background("bus")
        self._outbox = Outbox()
        self._sampler = Sampler()
        self._born: dict[Bucket, str] = {}  # when each bucket was created, as of the last time it was ensured
        self._writer = Writer(link, self._outbox, self._background)
        self._follows: set[NatsFollow] = set()
        link.on_up.append(self._writer.connected)
        link.on_down.append(self._down)

    @classmethod
    async def start(  # noqa: PLR0913 - each is one setting of a connection, and all but two have a default
        cls,
        url: str,
        *,
        name: str,
        cluster: str = "default",
        credentials: Path | None = None,
        ca: Path | str | None = None,
        clock: Clock | None = None,
        limits: Limits | None = None,
        backlog: int = BACKLOG,
    ) -> "NatsBus":
        """Return at once and connect in the background, for ever.

        ``url`` may list several servers, separated by commas. ``name`` is shown by the server and makes the inbox
        prefix ``_INBOX_<name>``, which permissions of the user must allow. ``cluster`` ``*`` follows all clusters
        and cannot publish. ``ca`` is a PEM file or its text. ``limits`` matter to the one that calls ``ensure``.
        ``backlog`` is how many undelivered live events a follow holds before it drops them and takes a new snapshot.
        Raises ValueError for a cluster name that does not fit into a subject.
        """
        if not _CLUSTER.fullmatch(cluster):
            raise ValueError(f"cluster {cluster!r} must be lower-case letters, digits, '-' and '.'")
        link = Link(addresses(url), name, credentials, ca)
        bus = cls(link, cluster, clock or LoopClock(), limits or Limits(), backlog)
        link.start()
        return bus

    @classmethod
    async def of(
        cls, settings: BusSettings, name: str, clock: Clock, *, cluster: str = "", limits: Limits | None = None
    ) -> "NatsBus":
        """``start`` with address, credentials and cluster (unless given) of an executable's settings."""
        return await cls.start(
            settings.nats_url,
            name=name,
            cluster=cluster or settings.cluster,
            credentials=settings.nats_credentials,
            ca=settings.bus_ca,
            clock=clock,
            limits=limits,
        )

    @property
    def connected(self) -> bool:
        """Whether the connection is up right now."""
        session = self._link.session
        return session is not None and session.alive

    def on_connect(self, tell: Callable[[], None]) -> None:
        """See ports.Bus."""
        self._link.on_up.append(lambda _session: tell())
        if self.connected:
            tell()

    def _down(self) -> None:
        self._writer.disconnected()
        for follow in self._follows:
            follow.interrupted()

    def _session(self) -> Session:
        session = self._link.session
        if session is None:
            raise BusUnavailable("not connected to the bus")
        return session

    # --- out ---------------------------------------------------------------------------------------------------

    async def publish(self, event: Event, *, durable: bool = False) -> None:
        """See ports.Bus."""
        try:
            parcel = pack(event, self._cluster)
        except Unsendable as err:
            if durable:
                raise BusRefused(str(err)) from err
            drop_unsendable(err)
            return
        if durable:
            await self._publish_durable(parcel)
        else:
            await self._publish(parcel)

    async def _publish(self, parcel: Parcel) -> None:
        session = self._link.session
        write = None
        if parcel.bucket is not None and not self._outbox.outdated(parcel):
            write, kept = self._outbox.offer(parcel, parcel.bucket)
            if not kept:
                drop("capacity")
        if session is None or not session.alive:
            drop("disconnected")
            return
        if await session.congested():
            drop("congested")
            if write is not None:
                self._writer.hold(write.bucket)
            return
        try:
            if write is not None:
                await self._writer.write(session, write)
            await self._send_live(session, parcel)
        except BusUnavailable:
            drop("disconnected")

    async def _send_live(self, session: Session, parcel: Parcel) -> None:
        await session.send(parcel.subject, parcel.raw, live_headers(parcel))
        if parcel.sampled is not None and self._sampler.due(parcel.sampled, self._clock.monotonic()):
            await session.send(parcel.sampled, parcel.raw)
        inbound.count_sent(parcel.event)

    async def _publish_durable(self, parcel: Parcel) -> None:
        session = self._session()
        if parcel.bucket is not None and not self._outbox.outdated(parcel):
            payload, headers = state_message(parcel)
            subject = state_subject(parcel.bucket, parcel.key)
            answer = await session.ask(subject, payload, headers)
            absent = f"bucket {bucket_name(parcel.bucket)} does not exist yet; the manager creates it"
            _stored(check(answer, f"writing {subject}", absent), subject)
            write, _ = self._outbox.offer(parcel, parcel.bucket)
            self._outbox.stored(write)
        if not parcel.logged:
            await self._send_live(session, parcel)
            await self._flushed(session)
            return
        answer = await session.ask(parcel.subject, parcel.raw, live_headers(parcel))
        absent = f"the log {LOG_STREAM} does not exist yet; the manager creates it"
        if answer.problem == "timeout":
            # With live readers on the subject nobody says that the stream is missing.
            await self._log_exists(session, absent)
        _stored(check(answer, f"logging {parcel.subject}", absent), parcel.subject)
        inbound.count_sent(parcel.event)

    async def _log_exists(self, session: Session, absent: str) -> None:
        try:
            await session.api(f"STREAM.INFO.{LOG_STREAM}")
        except ApiRefused as err:
            if err.code == snapshot.NO_STREAM:
                raise BusRefused(absent) from err

    async def _flushed(self, session: Session) -> None:
        try:
            async with asyncio.timeout(5.0):
                await session.settled()
        except (OSError, TimeoutError) as err:
            raise BusUnavailable(f"the bus did not take the event in time: {err}") from err

    # --- in ----------------------------------------------------------------------------------------------------

    async def follow(
        self, types: Sequence[type[EventData]], sink: Callable[[BusFact], None], names: Sequence[str] = ()
    ) -> NatsFollow:
        """See ports.Bus. Demand and load keys vanish by age only: readers go by the events' times."""
        follow = NatsFollow(self._link, self._cluster, inbound.topics_of(types, names), sink, self._backlog)
        self._follows = {other for other in self._follows if not other.closed} | {follow}
        try:
            await follow.start()
        except BaseException:  # cancelled while waiting: nobody else could free it
            await follow.close()
            raise
        return follow

    async def state(self, types: Sequence[type[EventData]], names: Sequence[str] = ()) -> tuple[Event, ...]:
        """See ports.Bus."""
        return await snapshot.read(self._session(), inbound.topics_of(types, names))

    async def history(self, since: float | None = None, *, follow: bool = False) -> AsyncIterator[Event]:
        """See ports.Bus."""
        reader = LogReader(self._link, self._cluster, since, follow=follow)
        await reader.open()
        return reader.read()

    # --- life --------------------------------------------------------------------------------------------------

    async def ensure(self) -> None:
        """See ports.Bus."""
        session = self._session()
        born = await provision(session, self._limits)
        # Another one that provisions may have been faster to make it again.
        made = {bucket for bucket, at in born.items() if self._born.get(bucket, at) != at}
        self._born = born
        for bucket in made:
            self._writer.renew(session, bucket)
        # Hardware and demand are said again within seconds, by those whose they are; what we know of them stands.
        for follow in self._follows:
            follow.renew(made - {"nodes", "demand"})

    async def close(self) -> None:
        """Wait shortly for what was sent to be stored, then disconnect."""
        await self._writer.settle(2.0)
        for follow in self._follows:
            await follow.close()
        self._follows.clear()
        await self._background.close()
        await self._link.close()


def _stored(ack: dict[str, object], subject: str) -> None:
    """Raises BusRefused when the server answered with an error instead of an acknowledgement."""
    error = ack.get("error")
    if isinstance(error, dict):
        raise BusRefused(f"{subject}: {error.get('description', error)}")
    if "seq" not in ack:
        raise BusUnavailable(f"{subject}: the answer is no acknowledgement")
