"""Replay a manager's tape through the real reducers: the same facts and times give the same effects."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from flexinfer.config.manager import ManagerSettings, policy_of
from flexinfer.core.effects import Effect
from flexinfer.core.lifecycle.description import ModelKey
from flexinfer.core.lifecycle.plan import plan
from flexinfer.core.lifecycle.view import LifecycleView
from flexinfer.runtime.effect_lines import effect_body, read_key
from flexinfer.runtime.interpreter import Outcome
from flexinfer.runtime.journal import Fact, Tick, Webhook
from flexinfer.runtime.lifecycle import evolve

_encode = msgspec.json.Encoder(order="deterministic").encode

Body = dict[str, Any]


class ManagerReplay:
    """One manager made of its tape. Nothing is performed: outcomes come from the tape, too."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Settings of other releases are passed over. Raises ValueError for values that make no sense."""
        known = {name: value for name, value in settings.items() if name in ManagerSettings.model_fields}
        self.view = LifecycleView(policy_of(ManagerSettings(**known)))
        self._planned: dict[ModelKey, dict[bytes, Effect]] = {}

    def feed(self, at: float, fact: Fact) -> Iterator[tuple[ModelKey, Body]]:
        """One line of a tape; what was decided, effect by effect. ``do`` of a failed plan is ``Error``."""
        match fact:
            case Tick(key=text, bus_up=bus_up):
                yield from self._plan(text, at, bus_up=bus_up is not False)
            case Webhook():
                return
            case Outcome():
                evolve(self.view, self._as_planned(fact), at)
            case _:
                evolve(self.view, fact, at)

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
            planned[_encode(body)] = effect
            yield key, body

    def _as_planned(self, outcome: Outcome) -> Outcome:
        """With the very effect that was planned, in which no secret is missing, if it still is planned like that."""
        effect = self._planned.get(outcome.key, {}).get(_encode(effect_body(outcome.effect)))
        return outcome if effect is None else Outcome(outcome.key, effect, outcome.result, outcome.refusal)
