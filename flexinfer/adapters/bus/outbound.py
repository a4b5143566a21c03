"""What leaves a process: the parts of one event, the newest state per key until it is stored, and samples."""

import re
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal

from flexinfer.contracts.envelope import MAX_EVENT_BYTES, Event, encode_event
from flexinfer.contracts.topics import TOPIC_OF, Bucket, sampled_subject, subject_of

SAMPLE_SECONDS = 60.0
OUTBOX_KEYS = 20_000

_SUBJECT = re.compile(r"[A-Za-z0-9_=/-]+(\.[A-Za-z0-9_=/-]+)*")


class Unsendable(ValueError):
    """The event cannot travel; ``reason`` is ``too-large`` or ``bad-name``."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Parcel:
    """One event, encoded and addressed. ``logged``: the log stream takes the live subject."""

    event: Event
    raw: bytes
    subject: str
    bucket: Bucket | None
    key: str
    retract: bool
    logged: bool
    sampled: str | None


def pack(event: Event, cluster: str) -> Parcel:
    """Encode and address. Raises Unsendable."""
    topic = TOPIC_OF[type(event.data)]
    subject = subject_of(event.data, cluster)
    if not _SUBJECT.fullmatch(subject):
        raise Unsendable("bad-name", f"{event.type}: {event.subject!r} does not fit into a subject")
    raw = encode_event(event)
    if len(raw) > MAX_EVENT_BYTES:
        raise Unsendable("too-large", f"{event.type} of {event.subject} has {len(raw)} bytes, over {MAX_EVENT_BYTES}")
    return Parcel(
        event=event,
        raw=raw,
        subject=subject,
        bucket=topic.bucket,
        key=topic.key(event.data) if topic.key else "",
        retract=topic.retracts(event.data),
        logged=topic.log == "all",
        sampled=sampled_subject(subject) if topic.log == "sampled" else None,
    )


class Sampler:
    """Lets one event per subject through each SAMPLE_SECONDS."""

    def __init__(self, period: float = SAMPLE_SECONDS) -> None:
        self._period = period
        self._last: dict[str, float] = {}

    def due(self, subject: str, now: float) -> bool:
        """True if the copy should be logged. ``now``: monotonic seconds."""
        last = self._last.get(subject)
        if last is not None and now - last < self._period:
            return False
        if len(self._last) >= OUTBOX_KEYS:
            self._last = {k: at for k, at in self._last.items() if now - at < self._period}
        self._last[subject] = now
        return True


@dataclass(slots=True, eq=False)
class Write:
    """The newest state of one key. ``pending``: to be sent; ``sent``: no answer yet; ``stored``: acknowledged."""

    parcel: Parcel
    bucket: Bucket
    state: Literal["pending", "sent", "stored"] = "pending"
    tries: int = 0
    owed: bool = False  # a live copy has to follow once the write is stored


@dataclass(slots=True)
class Outbox:
    """The newest state per key of this process, kept after it was stored too.

    The producer keeps the truth and the bus is a hint: what the bus lost while away, or with its disk, is written
    again from here. Bounded by keys: the oldest stored entry goes first.
    """

    capacity: int = OUTBOX_KEYS
    writes: OrderedDict[tuple[Bucket, str], Write] = field(default_factory=OrderedDict)

    def offer(self, parcel: Parcel, bucket: Bucket) -> tuple[Write, bool]:
        """Replace what is kept for the key; the new write, and False if another key had to go unsaved for it."""
        key = (bucket, parcel.key)
        self.writes.pop(key, None)
        kept = True
        if len(self.writes) >= self.capacity:
            victim = next((k for k, w in self.writes.items() if w.state == "stored"), next(iter(self.writes)))
            kept = self.writes.pop(victim).state == "stored"
        write = self.writes[key] = Write(parcel, bucket)
        return write, kept

    def outdated(self, parcel: Parcel) -> bool:
        """Whether this process has said something newer about the key already (a late retry)."""
        kept = self.writes.get((parcel.bucket, parcel.key)) if parcel.bucket else None
        if kept is None:
            return False
        new, old = parcel.event, kept.parcel.event
        return new.source == old.source and new.bootid == old.bootid and new.seq < old.seq

    def current(self, write: Write) -> bool:
        """Whether nothing newer replaced it."""
        return self.writes.get((write.bucket, write.parcel.key)) is write

    def stored(self, write: Write) -> None:
        """The bus has it. A retraction needs no keeping."""
        write.state = "stored"
        if write.parcel.retract and self.current(write):
            del self.writes[(write.bucket, write.parcel.key)]

    def disconnected(self) -> None:
        """Answers to what was sent will never come."""
        for write in self.writes.values():
            if write.state == "sent":
                write.state = "pending"

    def pending(self) -> list[Write]:
        """What has to be sent, oldest first."""
        return [write for write in self.writes.values() if write.state == "pending"]

    def unconfirmed(self) -> bool:
        """Whether an answer is still awaited."""
        return any(write.state == "sent" for write in self.writes.values())

    def keepsakes(self) -> list[Write]:
        """Stored state to offer again where the bus lost it; demand is too short-lived to bring back."""
        return [write for write in self.writes.values() if write.state == "stored" and write.bucket != "demand"]
