"""Following topics over NATS: subscribe, snapshot, then live; the same again on each connection."""

import asyncio
import logging
import random
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.errors import Error as NatsError

from flexinfer.adapters.bus import inbound
from flexinfer.adapters.bus.background import Background
from flexinfer.adapters.bus.following import BACKLOG, Delivery
from flexinfer.adapters.bus.nats.cursor import Cursor
from flexinfer.adapters.bus.nats.link import Link, Session
from flexinfer.adapters.bus.nats.snapshot import by_bucket, entry, open_bucket
from flexinfer.contracts.envelope import Event
from flexinfer.contracts.topics import PREFIX, Bucket, Topic, token
from flexinfer.ports import BusFact, BusRefused, BusUnavailable

log = logging.getLogger(__name__)

# A write can be under way inside the server when the snapshot is read and its live copy before we subscribed:
# reading on for a moment closes that gap.
LINGER_SECONDS = 2.0
RETRY_FIRST = 0.1
RETRY_LONGEST = 2.0
BACKLOG_BYTES = 64 << 20


class NatsFollow:
    """ports.Subscription. The consumers it makes on the server are deleted after each snapshot."""

    def __init__(
        self,
        link: Link,
        cluster: str,
        topics: tuple[Topic, ...],
        sink: Callable[[BusFact], None],
        backlog: int = BACKLOG,
    ) -> None:
        self._link = link
        self._cluster = token(cluster)
        self._topics = topics
        self._delivery = Delivery(topics, sink, backlog)
        self._backlog = backlog
        self._background = Background("follow")
        self._subscriptions: list[NatsSubscription] = []
        self._first = asyncio.Event()
        self._closed = False
        self._wake = asyncio.Event()  # set with either of the two below
        self._stale = ""  # why a new snapshot is needed
        self._ended = False
        self._lingering = 0
        self._seen: set[str] = set()

    @property
    def synced(self) -> bool:
        """A snapshot of the present connection was delivered."""
        return self._delivery.synced

    @property
    def closed(self) -> bool:
        """Whether close was called."""
        return self._closed

    async def start(self) -> None:
        """Return after the first snapshot."""
        self._background.start("follow", self._run())
        await self._first.wait()

    def interrupted(self) -> None:
        """The connection was lost."""
        self._delivery.interrupted()
        self._ended = True
        self._wake.set()

    def renew(self, buckets: AbstractSet[Bucket]) -> None:
        """These were made anew: what they held is gone, so read again what depends on them."""
        if any(topic.bucket in buckets for topic in self._topics):
            self._stale = "renewed"
            self._wake.set()

    async def close(self) -> None:
        """Stop delivering and free what the server holds for us."""
        self._closed = True
        await self._background.close()
        await self._unsubscribe()
        self._delivery.synced = False

    async def _run(self) -> None:
        while True:
            session = await self._link.up()
            self._ended, self._stale = False, ""
            self._delivery.hold()
            try:
                await self._subscribe(session)
                await self._stay(session)
            except BusUnavailable as err:
                log.debug("follow: %s", err)
            await self._unsubscribe()
            if session is self._link.session:
                await asyncio.sleep(RETRY_FIRST)

    async def _subscribe(self, session: Session) -> None:
        try:
            for topic in self._topics:
                subject = f"{PREFIX}.{self._cluster}.{topic.wildcard}"
                subscription = await session.client.subscribe(
                    subject,
                    cb=self._on_live,
                    pending_msgs_limit=self._backlog,
                    pending_bytes_limit=BACKLOG_BYTES,
                )
                self._subscriptions.append(subscription)
                session.when_slow(subscription, self._on_slow)
            await session.settled()
        except (NatsError, OSError) as err:
            raise BusUnavailable(f"cannot subscribe: {err}") from err

    async def _unsubscribe(self) -> None:
        for subscription in self._subscriptions:
            with suppress(NatsError, OSError):
                await subscription.unsubscribe()
        self._subscriptions.clear()

    async def _on_live(self, msg: Msg) -> None:
        event = inbound.from_live(msg.subject, msg.data)
        if event is not None:
            self._take(event)

    def _take(self, event: Event) -> None:
        if self._lingering:
            # The same event comes live and from the bucket.
            if event.id in self._seen:
                return
            self._seen.add(event.id)
        if not self._closed:
            self._delivery.live(event)

    def _on_slow(self) -> None:
        inbound.DROPPED.labels(reason="slow-reader").inc()
        self._stale = "slow-reader"
        self._wake.set()

    async def _stay(self, session: Session) -> None:
        """Snapshot now and whenever live events were dropped, until the connection ends."""
        reason = "reconnect"
        while True:
            await self._resync(session, reason)
            self._first.set()
            while not (self._stale or self._ended):
                self._wake.clear()
                await self._wake.wait()
            if self._ended:
                return
            # Let the burst pass; the newest values are what counts.
            await asyncio.sleep(RETRY_FIRST)
            reason, self._stale = self._stale, ""
            self._delivery.hold()

    async def _resync(self, session: Session, reason: str) -> None:
        """Read the state, trying until it is there; then deliver it. Raises BusUnavailable if the session ends."""
        wait = RETRY_FIRST
        told = ""
        while True:
            try:
                events = await self._read(session)
                break
            except (BusRefused, BusUnavailable) as err:
                if not session.alive or self._ended:
                    raise BusUnavailable(str(err)) from err
                if str(err) != told:
                    told = str(err)
                    log.warning("waiting to follow %s: %s", ", ".join(t.wildcard for t in self._topics), err)
            await asyncio.sleep(wait * random.uniform(0.7, 1.0))  # noqa: S311 - jitter, not a secret
            wait = min(wait * 2, RETRY_LONGEST)
        self._delivery.snapshot(events, reason)

    async def _read(self, session: Session) -> tuple[Event, ...]:
        found: list[Event] = []
        open_cursors: list[tuple[Bucket, Cursor]] = []
        try:
            for bucket, topics in by_bucket(self._delivery.stateful).items():
                cursor = await open_bucket(session, bucket, topics)
                open_cursors.append((bucket, cursor))
                messages = await cursor.available()
                found += [event for event in (entry(bucket, msg) for msg in messages) if event is not None]
        except (BusRefused, BusUnavailable):
            for _, cursor in open_cursors:
                await cursor.close()
            raise
        for bucket, cursor in open_cursors:
            self._lingering += 1
            self._background.start("linger", self._linger(bucket, cursor))
        return tuple(found)

    async def _linger(self, bucket: Bucket, cursor: Cursor) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LINGER_SECONDS
        try:
            while (left := deadline - loop.time()) > 0:
                for msg in await cursor.wait(max(left, 0.05)):
                    event = entry(bucket, msg)
                    if event is not None:
                        self._take(event)
        except BusUnavailable as err:
            log.debug("follow: %s", err)
        finally:
            self._lingering -= 1
            if not self._lingering:
                self._seen.clear()
            await cursor.close()
