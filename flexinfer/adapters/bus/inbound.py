"""What a message must pass before a consumer sees it: decoding, and agreement of subject, key and payload."""

import logging
from collections.abc import Sequence

from flexinfer.contracts.envelope import Event, MalformedEvent, UnknownEvent, decode_event
from flexinfer.contracts.events import EventData
from flexinfer.contracts.topics import TOPIC_OF, Bucket, Topic, narrowed, sampled_subject, subject_of
from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

_MALFORMED = metrics.counter(
    "flexinfer_bus_malformed_total",
    "Messages dropped before any consumer saw them: bytes, unknown (type or version), subject (speaks for another).",
    ("reason",),
)
EVENTS = metrics.counter("flexinfer_bus_events_total", "Events published and delivered.", ("direction", "type"))
DROPPED = metrics.counter(
    "flexinfer_bus_dropped_total",
    "Events not sent or not delivered: disconnected, congested, slow-reader, too-large, bad-name, capacity.",
    ("reason",),
)
RESYNCS = metrics.counter("flexinfer_bus_resyncs_total", "Snapshots taken again.", ("reason",))
CONNECTED = metrics.gauge("flexinfer_bus_connected", "Whether the connection to the bus is up.", ("client",))

_SENT = {topic.data: EVENTS.labels(direction="out", type=topic.name) for topic in TOPIC_OF.values()}
_RECEIVED = {topic.data: EVENTS.labels(direction="in", type=topic.name) for topic in TOPIC_OF.values()}


def count_sent(event: Event) -> None:
    """One event went out."""
    _SENT[type(event.data)].inc()


def count_received(event: Event) -> None:
    """One event reached a consumer."""
    _RECEIVED[type(event.data)].inc()


def reject(where: str, reason: str, why: str) -> None:
    """Count and log a message that no consumer will see."""
    _MALFORMED.labels(reason=reason).inc()
    log.warning("dropped a message on %s: %s", where, why, extra={"reason": reason})


def decode(where: str, raw: bytes) -> Event | None:
    """The event, or None after counting and logging why not."""
    try:
        return decode_event(raw)
    except UnknownEvent as err:
        reject(where, "unknown", str(err))
    except MalformedEvent as err:
        reject(where, "bytes", str(err))
    return None


def topics_of(types: Sequence[type[EventData]], names: Sequence[str] = ()) -> tuple[Topic, ...]:
    """Topic rows of event types, in the given order, each once, narrowed to ``names``."""
    return tuple(narrowed(topic, names) for topic in dict.fromkeys(TOPIC_OF[data] for data in types))


def from_live(subject: str, raw: bytes) -> Event | None:
    """An event from a live subject. The payload must name what the subject names."""
    event = decode(subject, raw)
    if event is None:
        return None
    if subject_of(event.data, subject.split(".", 3)[2]) != subject:
        reject(subject, "subject", f"{event.type} from {event.source} is about {event.subject}, not this subject")
        return None
    return event


def from_log(subject: str, raw: bytes) -> Event | None:
    """An event of the log stream, where sampled copies have their own subject."""
    event = decode(subject, raw)
    if event is None:
        return None
    expected = subject_of(event.data, subject.split(".", 3)[2])
    if subject not in (expected, sampled_subject(expected)):
        reject(subject, "subject", f"{event.type} from {event.source} is about {event.subject}, not this subject")
        return None
    return event


def from_state(bucket: Bucket, key: str, raw: bytes) -> Event | None:
    """An event from a state bucket. The payload must belong to the key."""
    event = decode(f"{bucket}/{key}", raw)
    if event is None:
        return None
    topic = TOPIC_OF[type(event.data)]
    if topic.bucket != bucket or topic.key is None or topic.key(event.data) != key:
        reject(f"{bucket}/{key}", "subject", f"{event.type} from {event.source} does not belong to this key")
        return None
    return event


def forget_client(name: str) -> None:
    """A connection was closed for good."""
    metrics.forget(CONNECTED, name)
