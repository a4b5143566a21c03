"""CloudEvents 1.0 envelope, structured JSON, one self-contained document per message."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from flexinfer.contracts.events import EventData
from flexinfer.contracts.topics import TOPIC_OF, TOPICS, entity_of

CONTENT_TYPE = "application/cloudevents+json"
SCHEMA_BASE = "https://flexinfer.ai/schemas"
MAX_EVENT_BYTES = 1_000_000  # nats-server's default max_payload is 1 MiB


class MalformedEvent(ValueError):
    """The bytes are no event of ours; the text says why in one sentence."""


class UnknownEvent(MalformedEvent):
    """A well-formed envelope of a type or major version this release does not read."""


class Event(Struct, frozen=True, kw_only=True):
    """One fact with its origin. ``time`` is when it was observed (UTC)."""

    id: str
    source: str
    type: str
    subject: str
    time: datetime
    bootid: str
    seq: int
    data: EventData

    @property
    def at(self) -> float:
        """Observation time in Unix seconds."""
        return self.time.timestamp()


class _Header(Struct, kw_only=True):
    specversion: str
    id: Annotated[str, Meta(min_length=1, max_length=1024)]  # ours holds an instance name of up to 253
    source: Annotated[str, Meta(min_length=1, max_length=512)]
    type: Annotated[str, Meta(min_length=1, max_length=256)]
    time: Annotated[datetime, Meta(tz=True)]
    bootid: Annotated[str, Meta(min_length=1, max_length=128)]
    seq: Annotated[int, Meta(ge=0)]
    data: msgspec.Raw
    subject: str = ""


class _Wire(Struct, frozen=True, kw_only=True):
    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: datetime
    datacontenttype: str
    dataschema: str
    bootid: str
    seq: int
    data: Any


_header = msgspec.json.Decoder(_Header)
_encoder = msgspec.json.Encoder()


@lru_cache(maxsize=64)
def _payload(event_type: str) -> msgspec.json.Decoder[Any] | None:
    topic = TOPICS.get(event_type)
    return msgspec.json.Decoder(topic.data) if topic else None


def schema_uri(event_type: str) -> str:
    """``dataschema`` of a type: the published JSON Schema of its payload."""
    return f"{SCHEMA_BASE}/{event_type}.json"


def decode_event(raw: bytes) -> Event:
    """Bytes to Event.

    Raises UnknownEvent for a type or major this release does not know, MalformedEvent for anything else wrong.
    """
    if len(raw) > MAX_EVENT_BYTES:
        raise MalformedEvent(f"event of {len(raw)} bytes is larger than {MAX_EVENT_BYTES}")
    try:
        head = _header.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise MalformedEvent(f"not a CloudEvents envelope: {err}") from err
    if not head.specversion.startswith("1."):
        raise UnknownEvent(f"CloudEvents specversion {head.specversion!r} is not 1.x")
    decoder = _payload(head.type)
    if decoder is None:
        raise UnknownEvent(f"unknown event type {head.type!r}")
    try:
        data = decoder.decode(head.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise MalformedEvent(f"{head.type}: {err}") from err
    return Event(
        id=head.id,
        source=head.source,
        type=head.type,
        subject=head.subject,
        time=head.time,
        bootid=head.bootid,
        seq=head.seq,
        data=data,
    )


def encode_event(event: Event) -> bytes:
    """Event to bytes, the inverse of decode_event."""
    wire = _Wire(
        specversion="1.0",
        id=event.id,
        source=event.source,
        type=event.type,
        subject=event.subject,
        time=event.time,
        datacontenttype="application/json",
        dataschema=schema_uri(event.type),
        bootid=event.bootid,
        seq=event.seq,
        data=event.data,
    )
    return _encoder.encode(wire)


@dataclass(slots=True)
class EventMint:
    """Makes the events of one process: one source, one boot, a sequence per type, ids made once.

    ``component`` is ``agent``, ``manager``, …; ``instance`` the node, pod or proxy; ``bootid`` must be new at
    each start of the process. ``clock`` gives Unix seconds.
    """

    cluster: str
    component: str
    instance: str
    bootid: str
    clock: Callable[[], float]
    _seq: dict[str, int]

    @classmethod
    def start(
        cls, component: str, instance: str, bootid: str, clock: Callable[[], float], cluster: str = "default"
    ) -> "EventMint":
        """A mint whose sequences begin at 1."""
        return cls(cluster, component, instance, bootid, clock, {})

    @property
    def source(self) -> str:
        """CloudEvents ``source``."""
        return f"/clusters/{self.cluster}/{self.component}/{self.instance}"

    def mint(self, data: EventData, at: float | None = None) -> Event:
        """The next event; ``at`` is the observation time in Unix seconds, now unless given."""
        topic = TOPIC_OF[type(data)]
        seq = self._seq.get(topic.name, 0) + 1
        self._seq[topic.name] = seq
        noun = topic.name.removeprefix("ai.flexinfer.")
        return Event(
            id=f"{self.component}-{self.instance}-{self.bootid}-{noun}-{seq}",
            source=self.source,
            type=topic.name,
            subject=entity_of(data),
            time=datetime.fromtimestamp(self.clock() if at is None else at, UTC),
            bootid=self.bootid,
            seq=seq,
            data=data,
        )
