"""Replay a manager's tape through the real reducers: the same facts and times give the same effects."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from flexinfer.config.manager import ManagerSettings, policy_of
from flexinfer.contracts.kubernetes import KubeDelta, Object
from flexinfer.core.effects import Apply, Create, Effect, Refusal, Write
from flexinfer.core.lifecycle.description import ModelKey
from flexinfer.core.lifecycle.fold import FINGERPRINT
from flexinfer.core.lifecycle.plan import plan
from flexinfer.core.lifecycle.view import LifecycleView
from flexinfer.ports import Relisted
from flexinfer.runtime.effect_lines import effect_body, read_key
from flexinfer.runtime.interpreter import Outcome
from flexinfer.runtime.journal import Fact, Tick, Webhook
from flexinfer.runtime.lifecycle import Fact as ManagerFact
from flexinfer.runtime.lifecycle import evolve

_encode = msgspec.json.Encoder(order="deterministic").encode

Body = dict[str, Any]


class ManagerReplay:
    """One manager made of its tape. Nothing is performed: outcomes come from the tape, too.

    Fingerprints on the tape are of manifests with their secrets, those planned here of manifests without: each that
    is seen on both sides of one write is translated from then on.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Settings of other releases are passed over. Raises ValueError for values that make no sense."""
        known = {name: value for name, value in settings.items() if name in ManagerSettings.model_fields}
        self.view = LifecycleView(policy_of(ManagerSettings(**known)))
        self._planned: dict[ModelKey, dict[bytes, Effect]] = {}
        self._marks: dict[str, str] = {}

    def feed(self, at: float, fact: Fact) -> Iterator[tuple[ModelKey, Body]]:
        """One line of a tape; what was decided, effect by effect. ``do`` of a failed plan is ``Error``."""
        match fact:
            case Tick(key=text, bus_up=bus_up, boot=boot):
                self.view.boot = boot or ""
                yield from self._plan(text, at, bus_up=bus_up is not False)
            case Webhook():
                return
            case _:
                evolve(self.view, self._translated(fact), at)

    def _plan(self, text: str, at: float, *, bus_up: bool) -> Iterator[tuple[ModelKey, Body]]:
        try:
            key = read_key(text)
        except ValueError:
            return  # a tick for all: nothing of this component
        self.view.bus_up = bus_up
        try:
            decision = plan(self.view, key, at)
        except Exception as err:  # noqa: BLE001 - the running manager goes on after our own bug, and so must its tape
            yield key, {"do": "Error", "error": f"{type(err).__name__}: {err}"}
            return
        planned = self._planned[key] = {}
        for effect in decision.effects:
            body = effect_body(effect)
            planned[_encode(_unmarked(body))] = effect
            yield key, body

    def _translated(self, fact: ManagerFact) -> ManagerFact:
        match fact:
            case Outcome():
                return self._as_planned(fact)
            case KubeDelta(plural=plural, action=action, object=body) if self._marks:
                return KubeDelta(plural=plural, action=action, object=self._marked(body))
            case Relisted(plural=plural, objects=objects) if self._marks:
                return Relisted(plural, tuple(map(self._marked, objects)))
            case _:
                return fact

    def _as_planned(self, outcome: Outcome) -> Outcome:
        """With the very effect that was planned, if one like it was; the tape has it without secrets."""
        planned = self._planned.get(outcome.key, {}).get(_encode(_unmarked(effect_body(outcome.effect))))
        if planned is None:
            return outcome
        told, meant = _mark(outcome.effect), _mark(planned)
        if told and meant and told != meant:
            self._marks[told] = meant
        result = outcome.result and self._marked(outcome.result)
        refusal = outcome.refusal
        if refusal is not None and isinstance(planned, Write):
            refusal = Refusal(planned, refusal.code, refusal.message, refusal.retry_after)
        return Outcome(outcome.key, planned, result, refusal)

    def _marked(self, body: Object) -> Object:
        mark = _annotations(body).get(FINGERPRINT)
        known = self._marks.get(mark) if isinstance(mark, str) else None
        return body if known is None else _with_mark(body, known)


def _annotations(body: Object) -> Object:
    found = (body.get("metadata") or {}).get("annotations")
    return found if isinstance(found, dict) else {}


def _mark(effect: Effect) -> str:
    return str(_annotations(effect.body).get(FINGERPRINT, "")) if isinstance(effect, Apply | Create) else ""


def _with_mark(body: Object, mark: str) -> Object:
    return {**body, "metadata": {**body["metadata"], "annotations": {**_annotations(body), FINGERPRINT: mark}}}


def _unmarked(effect: Body) -> Body:
    """What is compared: an effect, whatever its fingerprint."""
    body = effect.get("body")
    return {**effect, "body": _with_mark(body, "")} if body and FINGERPRINT in _annotations(body) else effect
