"""Writing state: acknowledged, repeated until stored, offered again where the bus lost it."""

import asyncio
import logging
import random
from functools import partial

from flexinfer.adapters.bus.background import Background
from flexinfer.adapters.bus.nats.link import REQUEST_SECONDS, Link, Session
from flexinfer.adapters.bus.nats.replies import Answer
from flexinfer.adapters.bus.outbound import Outbox, Parcel, Write
from flexinfer.contracts.topics import Bucket, bucket_name
from flexinfer.ports import BusUnavailable

log = logging.getLogger(__name__)

MARKER_SECONDS = 3600  # how long a retraction stays visible to a writer with an older state
RETRY_FIRST = 0.1
RETRY_LONGEST = 2.0
REOFFER_SECONDS = 300.0  # how often stored state is offered again, in case the bus lost it unseen
_WRONG_SEQUENCE = (10071, 10164)


def state_subject(bucket: Bucket, key: str) -> str:
    """Where a key of a bucket is written."""
    return f"$KV.{bucket_name(bucket)}.{key}"


def state_message(parcel: Parcel) -> tuple[bytes, dict[str, str] | None]:
    """Payload and headers that write or retract the parcel's key.

    No message id: writing a value twice changes nothing, and the server would keep 120 s of ids per bucket.
    """
    if parcel.retract:
        # The marker has a limited life, or a cluster that makes and removes models would fill the bucket.
        return b"", {"KV-Operation": "DEL", "Nats-TTL": f"{MARKER_SECONDS}s"}
    return parcel.raw, None


def live_headers(parcel: Parcel) -> dict[str, str] | None:
    """The log stream drops repeats by this id; subjects it does not take need no header."""
    return {"Nats-Msg-Id": parcel.event.id} if parcel.logged else None


class Writer:
    """Sends what the outbox holds; one bucket that refuses does not hold up the others."""

    def __init__(self, link: Link, outbox: Outbox, background: Background) -> None:
        self._link = link
        self._outbox = outbox
        self._background = background
        self._blocked: dict[Bucket, float] = {}  # until when (loop time)
        self._wait: dict[Bucket, float] = {}
        self._stored: dict[Bucket, int] = {}  # sequence of the newest write
        self._missed: set[Bucket] = set()  # were not there when last written to
        self._wake = asyncio.Event()
        self._answered = asyncio.Event()
        background.start("retry", self._retry())
        background.start("reoffer", self._reoffer_now_and_then())

    async def write(self, session: Session, write: Write) -> None:
        """Send now unless its bucket is known to refuse. Raises BusUnavailable."""
        if write.bucket in self._blocked:
            self._wake.set()
            return
        await self._send(session, write)

    def hold(self, bucket: Bucket) -> None:
        """The connection is congested: leave the write for a little later."""
        self._blocked.setdefault(bucket, asyncio.get_running_loop().time() + RETRY_FIRST)
        self._wake.set()

    def connected(self, session: Session) -> None:
        """A new connection: send what waits, then offer what was stored, in case the store was lost."""
        self._blocked.clear()
        self._wait.clear()
        self._background.start("flush", self._flush(session))

    def renew(self, session: Session, bucket: Bucket) -> None:
        """It was made anew while we were connected: say again what it held of ours."""
        self._background.start("renew", self._renew(session, bucket))

    def disconnected(self) -> None:
        """Whatever was not answered has to be sent again."""
        self._outbox.disconnected()

    async def settle(self, seconds: float) -> None:
        """Wait for answers, at most so long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self._link.session is not None and self._outbox.unconfirmed():
            self._answered.clear()
            try:
                await asyncio.wait_for(self._answered.wait(), deadline - loop.time())
            except TimeoutError:
                return

    async def _flush(self, session: Session) -> None:
        try:
            for write in self._outbox.pending():
                # Nobody was there to see it live when it happened.
                if self._outbox.current(write):
                    await self._send(session, write)
                    await session.send(write.parcel.subject, write.parcel.raw, live_headers(write.parcel))
            await self._reoffer(session)
        except BusUnavailable as err:
            log.debug("flush ended early: %s", err)

    async def _send(self, session: Session, write: Write) -> None:
        write.state = "sent"
        write.tries += 1
        write.owed = write.owed or write.tries > 1
        payload, headers = state_message(write.parcel)
        subject = state_subject(write.bucket, write.parcel.key)
        await session.send_expecting(subject, payload, headers, partial(self._on_answer, session, write))

    def _on_answer(self, session: Session, write: Write, answer: Answer) -> None:
        self._answered.set()
        error = answer.decoded().get("error") if not answer.problem else None
        if not answer.problem and not error:
            self._outbox.stored(write)
            self._unblock(write.bucket)
            self._look_for_loss(session, write.bucket, answer.decoded().get("seq"))
            if write.owed and session.alive:
                write.owed = False
                # Who took a snapshot between the live copy and this write saw neither.
                self._background.start("live", self._live(session, write))
            return
        write.state = "pending"
        if answer.problem != "closed":
            self._block(write, answer, error or {})

    def _look_for_loss(self, session: Session, bucket: Bucket, seq: object) -> None:
        """A bucket that is there again, or a sequence that fell back: somebody deleted the stream before this one.

        Answers may overtake each other by a few.
        """
        fell = isinstance(seq, int) and 2 * seq < self._stored.get(bucket, 0)
        if fell or bucket in self._missed:
            self._missed.discard(bucket)
            self.renew(session, bucket)
        if isinstance(seq, int):
            self._stored[bucket] = seq

    async def _renew(self, session: Session, bucket: Bucket) -> None:
        try:
            await self._reoffer(session, bucket)
        except BusUnavailable as err:
            log.debug("saying it again ended early: %s", err)

    async def _live(self, session: Session, write: Write) -> None:
        try:
            await session.send(write.parcel.subject, write.parcel.raw, live_headers(write.parcel))
        except BusUnavailable as err:
            log.debug("late live copy lost: %s", err)

    def _block(self, write: Write, answer: Answer, error: dict[str, object]) -> None:
        bucket = write.bucket
        if answer.problem == "absent":
            self._missed.add(bucket)
        first = bucket not in self._wait
        wait = self._wait[bucket] = min(self._wait.get(bucket, RETRY_FIRST / 2) * 2, RETRY_LONGEST)
        jitter = random.uniform(0.7, 1.0)  # noqa: S311 - jitter, not a secret
        self._blocked[bucket] = asyncio.get_running_loop().time() + wait * jitter
        self._wake.set()
        if first:
            log.warning("%s: %s; keeping the newest state and trying on", bucket_name(bucket), _why(answer, error))

    def _unblock(self, bucket: Bucket) -> None:
        if self._wait.pop(bucket, None) is not None:
            self._blocked.pop(bucket, None)
            log.info("%s accepts writes again", bucket_name(bucket))
            self._wake.set()

    async def _retry(self) -> None:
        """Probe blocked buckets with one write each; send the rest once a probe is stored."""
        loop = asyncio.get_running_loop()
        while True:
            pause = min((at - loop.time() for at in self._blocked.values()), default=None)
            try:
                await asyncio.wait_for(self._wake.wait(), None if pause is None else max(pause, 0.01))
            except TimeoutError:
                pass
            else:
                self._wake.clear()
            session = self._link.session
            if session is None:
                await self._link.up()
                continue
            try:
                await self._send_due(session, loop.time())
            except BusUnavailable as err:
                log.debug("retry ended early: %s", err)

    async def _send_due(self, session: Session, now: float) -> None:
        for bucket in [bucket for bucket, until in self._blocked.items() if until <= now]:
            del self._blocked[bucket]
        for write in self._outbox.pending():
            if write.bucket in self._blocked or not self._outbox.current(write):
                continue
            if write.bucket in self._wait:
                # One probe; its answer opens the bucket or closes it for longer.
                self._blocked[write.bucket] = now + 2 * REQUEST_SECONDS
            await self._send(session, write)

    async def _reoffer_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(REOFFER_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311 - jitter, not a secret
            session = self._link.session
            if session is not None:
                try:
                    await self._reoffer(session)
                except BusUnavailable as err:
                    log.debug("offering state again ended early: %s", err)

    async def _reoffer(self, session: Session, only: Bucket | None = None) -> None:
        for write in self._outbox.keepsakes():
            if not self._outbox.current(write) or write.bucket in self._blocked or only not in {None, write.bucket}:
                continue
            subject = state_subject(write.bucket, write.parcel.key)
            # Only where the key is absent: another writer may have newer state, or have retracted it.
            headers = {"Nats-Expected-Last-Subject-Sequence": "0"}
            await session.send_expecting(subject, write.parcel.raw, headers, partial(self._on_reoffer, session, write))

    def _on_reoffer(self, session: Session, write: Write, answer: Answer) -> None:
        error = answer.decoded().get("error") if not answer.problem else None
        if not self._outbox.current(write) or (error and error.get("err_code") in _WRONG_SEQUENCE):
            return
        if not answer.problem and not error:
            log.debug("%s had lost %s; written again", bucket_name(write.bucket), write.parcel.key)
            self._background.start("live", self._live(session, write))
        elif answer.problem == "absent":  # wiped, and nobody has made the bucket again yet
            write.state = "pending"
            self._block(write, answer, error or {})


def _why(answer: Answer, error: dict[str, object]) -> str:
    match answer.problem:
        case "absent":
            return "the bucket does not exist yet (the manager creates it)"
        case "denied":
            return "our credentials may not write this key"
        case "timeout":
            return "no acknowledgement"
        case _:
            return f"write refused: {error.get('description', error)}"
