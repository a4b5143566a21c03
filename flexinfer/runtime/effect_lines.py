"""Effects of the lifecycle and their outcomes as JSON, and back."""

from typing import Any

import msgspec
from msgspec import Struct

from flexinfer.contracts.kubernetes import Object
from flexinfer.contracts.topics import TOPIC_OF, TOPICS
from flexinfer.core.effects import Apply, Create, Delete, Effect, Note, Patch, Publish, Refusal, Write
from flexinfer.core.lifecycle.description import ModelKey
from flexinfer.runtime.interpreter import Outcome
from flexinfer.runtime.redaction import redact

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Apply, Create, Patch, Delete, Note)}


class _Refused(Struct, frozen=True):
    code: str
    message: str
    retry_after: float | None = None


class _OutcomeBody(Struct, frozen=True):
    key: str
    effect: dict[str, Any]
    result: Object | None = None
    refusal: _Refused | None = None


def key_text(key: ModelKey) -> str:
    """``<kind>/<namespace>/<name>``."""
    return "/".join(key)


def read_key(text: str) -> ModelKey:
    """The inverse. Raises ValueError."""
    parts = text.split("/")
    if len(parts) != 3:
        raise ValueError(f"{text!r} is not <kind>/<namespace>/<name>")
    return ModelKey(*parts)


def effect_body(effect: Effect) -> dict[str, Any]:
    """An effect as a JSON object, without secrets; ``do`` names what it does."""
    if isinstance(effect, Publish):
        body = {"type": TOPIC_OF[type(effect.data)].name, "data": msgspec.to_builtins(effect.data), "at": effect.at}
    elif isinstance(effect, Note):
        body = {**msgspec.to_builtins(effect), "regarding": _reference(effect.regarding)}
    else:
        body = msgspec.to_builtins(effect)
    return {"do": type(effect).__name__, **redact(body)}


def _reference(body: Object) -> Object:
    """Which object, without what is in it."""
    meta = body.get("metadata") or {}
    names = {name: meta[name] for name in ("namespace", "name", "uid") if name in meta}
    return {"apiVersion": body.get("apiVersion"), "kind": body.get("kind"), "metadata": names}


def outcome_body(outcome: Outcome) -> bytes:
    """What happened to an effect, as one JSON object."""
    refusal = outcome.refusal
    refused = None if refusal is None else _Refused(refusal.code, refusal.message, refusal.retry_after)
    found = _OutcomeBody(key_text(outcome.key), effect_body(outcome.effect), redact(outcome.result), refused)
    return msgspec.json.encode(found, order="deterministic")


def read_outcome(raw: msgspec.Raw) -> Outcome:
    """The inverse, as far as no secret was left out. Raises msgspec.DecodeError or ValueError."""
    found = msgspec.json.decode(raw, type=_OutcomeBody)
    effect = _read_effect(found.effect)
    key = read_key(found.key)
    told = found.refusal
    if told is None or not isinstance(effect, Write):
        return Outcome(key, effect, found.result)
    return Outcome(key, effect, found.result, Refusal(effect, told.code, told.message, told.retry_after))


def _read_effect(body: dict[str, Any]) -> Effect:
    fields = dict(body)
    name = fields.pop("do", None)
    if name == Publish.__name__:
        topic = TOPICS.get(str(fields.get("type")))
        if topic is None:
            raise ValueError(f"unknown event type {fields.get('type')!r}")
        at = msgspec.convert(fields.get("at"), type=float | None)
        return Publish(msgspec.convert(fields.get("data"), type=topic.data), at)
    kind = _KINDS.get(str(name))
    if kind is None:
        raise ValueError(f"unknown effect {name!r}")
    effect: Effect = msgspec.convert(fields, type=kind)
    return effect
