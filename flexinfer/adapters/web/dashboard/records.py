"""One event as the page reads it, encoded once: every viewer gets the same bytes."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import (
    BenchCompleted,
    EventData,
    ModelEndpoint,
    ModelLoad,
    ModelPhase,
    NodeHardware,
    NodeStatus,
    NodeTelemetry,
    PlacementDecided,
)
from flexinfer.contracts.topics import order_key
from flexinfer.core.placement.explanation import sentence

KEPT: dict[type[EventData], str] = {
    NodeHardware: "hardware", NodeTelemetry: "telemetry", NodeStatus: "status", ModelPhase: "phase",
    ModelEndpoint: "endpoint", ModelLoad: "load", BenchCompleted: "result",
}  # fmt: skip
SHOWN_BYTES = 64 << 10  # of one payload in the list of events; the views of nodes and models get it whole
SKEW_SECONDS = 10.0

_encode = msgspec.json.Encoder().encode


class Record(Struct, frozen=True, kw_only=True, eq=False):
    """An event for the page. ``at``: when it was observed, ``heard``: the time its age counts from, Unix seconds."""

    id: str
    type: str
    subject: str
    source: str
    at: float
    heard: float
    data: Raw
    why: str = ""


def key_of(data: EventData) -> str:
    """Subject tokens of a payload: the same for all facts that replace each other."""
    return order_key(data).partition(".v1.")[2]


def record_of(event: Event, received: float | None = None) -> Record:
    """The record. A clock more than ten seconds off its reader's is not believed: age counts from receipt then."""
    at = event.at
    late = received is not None and abs(received - at) > SKEW_SECONDS
    data = event.data
    return Record(
        id=event.id, type=event.type.removeprefix("ai.flexinfer."), subject=event.subject, source=event.source, at=at,
        heard=received if received is not None and late else at, data=Raw(_encode(data)),
        why=sentence(data) if isinstance(data, PlacementDecided) else "",
    )  # fmt: skip


def listed(record: Record) -> Record:
    """The record for the list of events: a huge payload is named, not shown."""
    size = len(bytes(record.data))
    if size <= SHOWN_BYTES:
        return record
    note: dict[str, Any] = {"notShown": f"a payload of {size} bytes; flexinfer events show prints it"}
    return msgspec.structs.replace(record, data=Raw(_encode(note)))
