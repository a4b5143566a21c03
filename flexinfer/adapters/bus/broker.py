"""The store and the fan-out of the in-memory bus: what a server process would do."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from flexinfer.adapters.bus import inbound
from flexinfer.adapters.bus.background import LoopClock
from flexinfer.contracts.envelope import Event
from flexinfer.contracts.topics import (
    BUCKETS,
    DEMAND_TTL_SECONDS,
    LOG_STREAM,
    Bucket,
    Topic,
    bucket_name,
    key_pattern,
    log_subjects,
)
from flexinfer.ports import BusRefused, Clock

_LOG_EVENTS = 100_000
_DEDUPE_SECONDS = 120.0


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject falls under a pattern with ``*`` and a final ``>``."""
    wanted, given = pattern.split("."), subject.split(".")
    for position, part in enumerate(wanted):
        if part == ">":
            return len(given) > position
        if position >= len(given) or part not in ("*", given[position]):
            return False
    return len(wanted) == len(given)


@dataclass(frozen=True, slots=True)
class _Logged:
    sequence: int
    at: float  # Unix seconds
    subject: str
    raw: bytes


@dataclass(slots=True)
class _Store:
    """What a disk would hold: gone after ``wipe``, missing until ``ensure``."""

    buckets: dict[Bucket, dict[str, tuple[float, bytes]]] = field(default_factory=dict)
    log: deque[_Logged] = field(default_factory=lambda: deque(maxlen=_LOG_EVENTS))
    ids: OrderedDict[str, float] = field(default_factory=OrderedDict)


class Client(Protocol):
    """What the broker tells those attached to it."""

    def broker_went(self) -> None:
        """The broker stopped."""
        ...

    def broker_came(self) -> None:
        """The broker runs again."""
        ...

    def buckets_came(self) -> None:
        """Buckets were made."""
        ...

    def deliver(self, subject: str, raw: bytes) -> None:
        """A message."""
        ...


class MemoryBroker:
    """What all buses of one test or process share. ``stop``, ``start`` and ``wipe`` are the server's life."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or LoopClock()
        self.up = True
        self._store = _Store()
        self._sequence = 0
        self._clients: set[Client] = set()
        self._grew = asyncio.Event()

    def stop(self) -> None:
        """Everyone is disconnected; the store stays."""
        self.up = False
        for client in list(self._clients):
            client.broker_went()

    def start(self) -> None:
        """Everyone is connected again."""
        self.up = True
        for client in list(self._clients):
            client.broker_came()

    def wipe(self) -> None:
        """The disk is lost, with buckets and log."""
        self._store = _Store()
        self._sequence = 0

    def inject(self, subject: str, raw: bytes) -> None:
        """Any bytes on any subject, as a faulty or hostile client would send them."""
        self.send(subject, raw)

    def inject_state(self, bucket: Bucket, key: str, raw: bytes) -> None:
        """Any bytes under any key."""
        self._store.buckets[bucket][key] = (self.clock.monotonic(), raw)

    def attach(self, client: Client) -> None:
        """A client."""
        self._clients.add(client)

    def detach(self, client: Client) -> None:
        """A client left."""
        self._clients.discard(client)

    def ensure(self) -> None:
        """Make the buckets and the log; wakes who waits for them."""
        missing = [bucket for bucket in BUCKETS if bucket not in self._store.buckets]
        for bucket in missing:
            self._store.buckets[bucket] = {}
        if missing:
            for client in list(self._clients):
                client.buckets_came()

    def has(self, bucket: Bucket) -> bool:
        """Whether a bucket exists."""
        return bucket in self._store.buckets

    def put(self, bucket: Bucket, key: str, raw: bytes | None, *, only_absent: bool = False) -> bool:
        """Write, or remove with None; whether anything was done. The bucket must exist."""
        held = self._store.buckets[bucket]
        if only_absent and key in held:
            return False
        if raw is None:
            held.pop(key, None)
        else:
            held[key] = (self.clock.monotonic(), raw)
        return True

    def read(self, topics: Iterable[Topic]) -> tuple[Event, ...]:
        """Stored events of the topics. Raises BusRefused for a missing bucket."""
        found: list[Event] = []
        oldest = self.clock.monotonic() - DEMAND_TTL_SECONDS
        for topic in topics:
            if topic.bucket is None:
                continue
            if not self.has(topic.bucket):
                raise BusRefused(f"bucket {bucket_name(topic.bucket)} does not exist yet; the manager creates it")
            for key, (at, raw) in list(self._store.buckets[topic.bucket].items()):
                if (topic.bucket == "demand" and at < oldest) or not matches(key_pattern(topic), key):
                    continue
                event = inbound.from_state(topic.bucket, key, raw)
                if event is not None:
                    found.append(event)
        return tuple(found)

    def send(self, subject: str, raw: bytes, event_id: str = "") -> bool:
        """To live readers and the log; False if the log should have taken it and does not exist."""
        for client in list(self._clients):
            client.deliver(subject, raw)
        if not any(matches(pattern, subject) for pattern in log_subjects()):
            return True
        if not self._store.buckets:
            return False
        if not self._repeated(event_id):
            self._sequence += 1
            self._store.log.append(_Logged(self._sequence, self.clock.now(), subject, raw))
            self._grew.set()
            self._grew = asyncio.Event()
        return True

    def _repeated(self, event_id: str) -> bool:
        ids, now = self._store.ids, self.clock.monotonic()
        while ids and next(iter(ids.values())) < now - _DEDUPE_SECONDS:
            ids.popitem(last=False)
        if not event_id:
            return False
        if event_id in ids:
            return True
        ids[event_id] = now
        return False

    def logged(self, pattern: str, since: float | None, after: int) -> list[_Logged]:
        """Log entries. Raises BusRefused without a log."""
        if not self._store.buckets:
            raise BusRefused(f"the log {LOG_STREAM} does not exist yet; the manager creates it")
        return [
            entry
            for entry in self._store.log
            if entry.sequence > after and (since is None or entry.at >= since) and matches(pattern, entry.subject)
        ]

    @property
    def sequence(self) -> int:
        """The last number the log gave; lower than before after a wipe."""
        return self._sequence

    async def growth(self) -> None:
        """Return when the log has got more."""
        await self._grew.wait()
