"""The outcome of a benchmark in its container's termination message: one JSON line of at most 4096 bytes.

``{"type": "ai.flexinfer.bench.completed.v1", "data": {…}}``, or ``bench.failed.v1``: the payload of the event of
that type. Kubernetes cuts longer messages, so what matters least is left out first: points of the curve, then
notes, then the end of long texts.
"""

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flexinfer.contracts.envelope import MalformedEvent
from flexinfer.contracts.events import BenchCompleted, BenchFailed
from flexinfer.contracts.topics import TOPIC_OF, TOPICS

MAX_BYTES = 4096
_SHORT = 200

Outcome = BenchCompleted | BenchFailed


class _Line(Struct):
    type: str
    data: msgspec.Raw


_decoder = msgspec.json.Decoder(_Line)
_payloads: dict[str, msgspec.json.Decoder[Any]] = {
    TOPIC_OF[cls].name: msgspec.json.Decoder(cls) for cls in (BenchCompleted, BenchFailed)
}


def encode_outcome(outcome: Outcome) -> bytes:
    """One line without a newline inside, ended by one, at most MAX_BYTES long."""
    while len(line := _line(outcome)) > MAX_BYTES:
        smaller = _smaller(outcome)
        if smaller == outcome:
            raise ValueError(f"the outcome of {outcome.key} does not fit {MAX_BYTES} bytes")
        outcome = smaller
    return line


def decode_outcome(text: str | bytes) -> Outcome:
    """The inverse. Raises MalformedEvent for anything else, such as half a line."""
    raw = text.encode() if isinstance(text, str) else text
    try:
        line = _decoder.decode(raw.strip())
        payload = _payloads.get(line.type)
        if payload is None:
            known = line.type in TOPICS
            raise MalformedEvent(f"{'event' if known else 'unknown'} type {line.type!r} is no benchmark outcome")
        outcome: Outcome = payload.decode(line.data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as err:
        raise MalformedEvent(f"not a benchmark outcome: {err}") from err
    return outcome


def _line(outcome: Outcome) -> bytes:
    return msgspec.json.encode({"type": TOPIC_OF[type(outcome)].name, "data": outcome}) + b"\n"


def _smaller(outcome: Outcome) -> Outcome:
    if isinstance(outcome, BenchFailed):
        return replace(outcome, message=outcome.message[:_SHORT], remedy=outcome.remedy[:_SHORT])
    if len(outcome.curve) > 1:
        return replace(outcome, curve=outcome.curve[: len(outcome.curve) // 2])
    if outcome.notes:
        return replace(outcome, notes=outcome.notes[:-1])
    return replace(outcome, source=outcome.source[:_SHORT], image=outcome.image[:_SHORT])
