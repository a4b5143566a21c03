"""The bus inside one process: same contract as over NATS, for tests and for parts that run together.

Messages are encoded and decoded as on the wire, so that what passes here passes there. Broker and buses belong to
one event loop.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from flexinfer.adapters.bus import inbound
from flexinfer.adapters.bus.broker import MemoryBroker, matches
from flexinfer.adapters.bus.following import BACKLOG, Delivery
from flexinfer.adapters.bus.outbound import Outbox, Parcel, Sampler, Unsendable, Write, pack
from flexinfer.adapters.bus.sending import drop, drop_unsendable
from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import EventData
from flexinfer.contracts.topics import LOG_STREAM, PREFIX, Topic, bucket_name, token
from flexinfer.ports import BusFact, BusRefused, BusUnavailable

__all__ = ["MemoryBroker", "MemoryBus"]


class MemoryFollow:
    """ports.Subscription."""

    def __init__(self, bus: "MemoryBus", topics: tuple[Topic, ...], sink: Callable[[BusFact], None]) -> None:
        self._bus = bus
        self._topics = topics
        self._patterns = [f"{PREFIX}.{bus.cluster_token}.{topic.wildcard}" for topic in topics]
        self._delivery = Delivery(topics, sink, bus.backlog)
        self._queue: deque[tuple[str, bytes]] = deque()
        self._scheduled = False
        self._lossy = False
        self._open = True
        self._first = asyncio.Event()

    @property
    def synced(self) -> bool:
        """A snapshot of the present connection was delivered."""
        return self._delivery.synced

    async def start(self) -> None:
        """Return after the first snapshot."""
        self.resync("reconnect")
        await self._first.wait()

    def interrupted(self) -> None:
        """The connection was lost, with what was on its way."""
        self._queue.clear()
        self._delivery.interrupted()

    def resync(self, reason: str) -> None:
        """Snapshot if it can be had now."""
        if not (self._open and self._bus.connected):
            return
        try:
            events = self._bus.broker.read(self._delivery.stateful)
        except BusRefused:
            return  # tried again when the buckets come
        self._queue.clear()  # older than the snapshot
        self._delivery.hold()
        self._delivery.snapshot(events, reason)
        self._first.set()

    def offer(self, subject: str, raw: bytes) -> None:
        """A message from the broker."""
        if not any(matches(pattern, subject) for pattern in self._patterns):
            return
        if len(self._queue) >= self._bus.backlog:
            inbound.DROPPED.labels(reason="slow-reader").inc()
            self._lossy = True
        else:
            self._queue.append((subject, raw))
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        self._scheduled = False
        queue, self._queue = self._queue, deque()
        for subject, raw in queue:
            event = inbound.from_live(subject, raw)
            if event is not None and self._open:
                self._delivery.live(event)
        if self._lossy:
            self._lossy = False
            self.resync("slow-reader")

    async def close(self) -> None:
        """Stop delivering."""
        self._open = False
        self._delivery.synced = False
        self._bus.forget(self)


class MemoryBus:
    """ports.Bus on a MemoryBroker. ``cut`` and ``mend`` interrupt this client alone."""

    def __init__(self, broker: MemoryBroker, cluster: str = "default", backlog: int = BACKLOG) -> None:
        self.broker = broker
        self.backlog = backlog
        self.cluster_token = token(cluster)
        self._cluster = cluster
        self._cut = False
        self._outbox = Outbox()
        self._sampler = Sampler()
        self._follows: set[MemoryFollow] = set()
        self._on_connect: list[Callable[[], None]] = []
        broker.attach(self)

    @property
    def connected(self) -> bool:
        """Whether the broker can be reached."""
        return self.broker.up and not self._cut

    def cut(self) -> None:
        """Lose the connection."""
        self._cut = True
        self.broker_went()

    def mend(self) -> None:
        """Get it back."""
        self._cut = False
        self.broker_came()

    def on_connect(self, tell: Callable[[], None]) -> None:
        """See ports.Bus."""
        self._on_connect.append(tell)
        if self.connected:
            tell()

    def broker_went(self) -> None:
        """The broker stopped."""
        for follow in self._follows:
            follow.interrupted()

    def broker_came(self) -> None:
        """The broker is back: resync, send what waited, offer what was stored."""
        if not self.connected:
            return
        for tell in self._on_connect:
            tell()
        self.buckets_came()

    def buckets_came(self) -> None:
        """Buckets may exist now that did not before."""
        if not self.connected:
            return
        for follow in list(self._follows):
            if not follow.synced:
                follow.resync("reconnect")
        for write in self._outbox.pending():
            self._store(write)
            self._send_live(write.parcel)
        for write in self._outbox.keepsakes():
            known = self.broker.has(write.bucket)
            if known and self.broker.put(write.bucket, write.parcel.key, write.parcel.raw, only_absent=True):
                self._send_live(write.parcel)

    def deliver(self, subject: str, raw: bytes) -> None:
        """A message for whoever follows its subject here."""
        if self.connected:
            for follow in list(self._follows):
                follow.offer(subject, raw)

    def forget(self, follow: MemoryFollow) -> None:
        """A follow was closed."""
        self._follows.discard(follow)

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
            self._publish_durable(parcel)
            return
        write = None
        if parcel.bucket is not None and not self._outbox.outdated(parcel):
            write, kept = self._outbox.offer(parcel, parcel.bucket)
            if not kept:
                drop("capacity")
        if not self.connected:
            drop("disconnected")
            return
        if write is not None:
            self._store(write)
        self._send_live(parcel)

    def _publish_durable(self, parcel: Parcel) -> None:
        if not self.connected:
            raise BusUnavailable("not connected to the bus")
        if parcel.bucket is not None:
            if not self.broker.has(parcel.bucket):
                raise BusRefused(f"bucket {bucket_name(parcel.bucket)} does not exist yet; the manager creates it")
            if not self._outbox.outdated(parcel):
                write, _ = self._outbox.offer(parcel, parcel.bucket)
                self._store(write)
        if not self._send_live(parcel) and parcel.logged:
            raise BusRefused(f"the log {LOG_STREAM} does not exist yet; the manager creates it")

    def _store(self, write: Write) -> None:
        if self.broker.has(write.bucket):
            self.broker.put(write.bucket, write.parcel.key, None if write.parcel.retract else write.parcel.raw)
            self._outbox.stored(write)

    def _send_live(self, parcel: Parcel) -> bool:
        logged = self.broker.send(parcel.subject, parcel.raw, parcel.event.id)
        if parcel.sampled is not None and self._sampler.due(parcel.sampled, self.broker.clock.monotonic()):
            self.broker.send(parcel.sampled, parcel.raw)
        inbound.count_sent(parcel.event)
        return logged

    async def follow(
        self, types: Sequence[type[EventData]], sink: Callable[[BusFact], None], names: Sequence[str] = ()
    ) -> MemoryFollow:
        """See ports.Bus."""
        follow = MemoryFollow(self, inbound.topics_of(types, names), sink)
        self._follows.add(follow)
        try:
            await follow.start()
        except BaseException:  # cancelled while waiting: nobody else could free it
            await follow.close()
            raise
        return follow

    async def state(self, types: Sequence[type[EventData]], names: Sequence[str] = ()) -> tuple[Event, ...]:
        """See ports.Bus."""
        if not self.connected:
            raise BusUnavailable("not connected to the bus")
        return self.broker.read(inbound.topics_of(types, names))

    async def history(self, since: float | None = None, *, follow: bool = False) -> AsyncIterator[Event]:
        """See ports.Bus."""
        if not self.connected:
            raise BusUnavailable("not connected to the bus")
        pattern = f"{PREFIX}.{self.cluster_token}.>"
        self.broker.logged(pattern, since, 0)  # raises without a log
        return self._read_log(pattern, since, follow=follow)

    async def _read_log(self, pattern: str, since: float | None, *, follow: bool) -> AsyncIterator[Event]:
        last = 0
        while True:
            if last > self.broker.sequence:
                last = 0  # wiped: the log counts anew
            try:
                entries = self.broker.logged(pattern, since, last) if self.connected else []
            except BusRefused:
                entries = []
            for entry in entries:
                last = entry.sequence
                event = inbound.from_log(entry.subject, entry.raw)
                if event is not None:
                    inbound.count_received(event)
                    yield event
            if not follow:
                return
            if not entries:
                await self.broker.growth()

    async def ensure(self) -> None:
        """See ports.Bus."""
        if not self.connected:
            raise BusUnavailable("not connected to the bus")
        self.broker.ensure()

    async def close(self) -> None:
        """Leave the broker."""
        for follow in list(self._follows):
            await follow.close()
        self.broker.detach(self)
