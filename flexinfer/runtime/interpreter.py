"""Performs effects of the lifecycle against the Kubernetes API, the bus and the event recorder."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, assert_never

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.kubernetes import Object
from flexinfer.contracts.labels import FIELD_MANAGER
from flexinfer.core.effects import Apply, Create, Delete, Effect, Note, Patch, Publish, Refusal, Write
from flexinfer.core.lifecycle.description import ModelKey
from flexinfer.ports import (
    Bus,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KubeApi,
    KubeError,
    KubeUnavailable,
    NotFound,
)
from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

_WRITES = metrics.counter("flexinfer_controller_writes_total", "Writes to the Kubernetes API.", ("verb", "kind"))
_REFUSED = metrics.counter("flexinfer_controller_refusals_total", "Writes that were refused.", ("code", "kind"))


class Recorder(Protocol):
    """Kubernetes Events; never blocks."""

    def emit(self, regarding: Object, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:  # noqa: A002 - the API's own name
        """Queue one."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """An effect happened, with the object the server answered, or was refused."""

    key: ModelKey
    effect: Effect
    result: Object | None = None
    refusal: Refusal | None = None


class Interpreter:
    """``perform`` for the pump. It decides nothing: what a refusal means is for the fold and the plan.

    ``mint`` makes an EventMint with a bootid of its own: readers never go back to a boot that was superseded, so a
    manager that leads again after another one did must not come as the one it was.
    """

    def __init__(self, api: KubeApi, bus: Bus, recorder: Recorder, mint: Callable[[], EventMint]) -> None:
        self._api = api
        self._bus = bus
        self._recorder = recorder
        self._new_mint = mint
        self._mint = mint()

    def begin(self) -> str:
        """A new boot for a new term of leading; its id."""
        self._mint = self._new_mint()
        return self._mint.bootid

    async def perform(self, key: ModelKey, effect: Effect) -> tuple[Outcome, bool]:
        """The outcome as a fact, and whether the effects after this one still make sense."""
        match effect:
            case Publish(data, at):
                await self._bus.publish(self._mint.mint(data, at))
                return Outcome(key, effect), True
            case Note(regarding, kind, reason, message):
                self._recorder.emit(regarding, kind, reason, message)
                return Outcome(key, effect), True
            case Apply() | Create() | Patch() | Delete():
                outcome = await self._write(key, effect)
                return outcome, outcome.refusal is None
            case _:
                assert_never(effect)

    async def _write(self, key: ModelKey, effect: Write) -> Outcome:
        kind = effect.resource.kind
        try:
            result = await self._call(effect)
        except _Taken as err:
            return self._refused(key, effect, "Taken", str(err), None)
        except (KubeError, KubeUnavailable) as err:
            return self._refused(key, effect, code_of(err), getattr(err, "message", "") or str(err), err.retry_after)
        _WRITES.labels(verb=type(effect).__name__.lower(), kind=kind).inc()
        return Outcome(key, effect, result)

    def _refused(self, key: ModelKey, effect: Write, code: str, message: str, retry_after: float | None) -> Outcome:
        _REFUSED.labels(code=code, kind=effect.resource.kind).inc()
        level = logging.INFO if code in {"Conflict", "AlreadyExists"} else logging.WARNING
        log.log(level, "%s %s for %s refused: %s", type(effect).__name__, effect.resource.kind, "/".join(key), message)
        return Outcome(key, effect, refusal=Refusal(effect, code, message, retry_after))

    async def _call(self, effect: Write) -> Object | None:
        api = self._api
        match effect:
            case Apply(resource, body, owner):
                meta = body["metadata"]
                namespace = meta.get("namespace")
                if owner:
                    await self._guard(effect)
                return await api.patch(
                    resource, meta["name"], body, namespace, kind="apply", field_manager=FIELD_MANAGER
                )
            case Create(resource, body):
                return await api.create(resource, body, body["metadata"].get("namespace"))
            case Patch(resource, namespace, name, body, subresource):
                return await api.patch(
                    resource, name, body, namespace, subresource=subresource, field_manager=FIELD_MANAGER
                )
            case Delete(resource, namespace, name, uid):
                try:
                    await api.delete(resource, name, namespace, uid=uid)
                except NotFound:
                    return None
                return None
            case _:
                assert_never(effect)

    async def _guard(self, effect: Apply) -> None:
        """Apply creates or overwrites: look first, so that nobody else's object of that name is taken over."""
        meta = effect.body["metadata"]
        try:
            found = await self._api.get(effect.resource, meta["name"], meta.get("namespace"))
        except NotFound:
            return
        owners = found.get("metadata", {}).get("ownerReferences") or []
        holder = next((owner for owner in owners if owner.get("controller")), None)
        labels = found.get("metadata", {}).get("labels") or {}
        ours = labels.get("app.kubernetes.io/managed-by") == FIELD_MANAGER
        if (holder and holder.get("uid") != effect.owner) or (not holder and not ours):
            whose = f"{holder.get('kind')} {holder.get('name')}" if holder else "somebody else"
            raise _Taken(f"{effect.resource.kind} {meta['name']} exists and belongs to {whose}")


class _Taken(Exception):
    """The name is in use by an object that is not ours."""


def code_of(err: KubeError | KubeUnavailable) -> str:
    """The refusal code of an API error."""
    if isinstance(err, Conflict) and err.reason == "AlreadyExists":
        return "AlreadyExists"
    table = {Conflict: "Conflict", NotFound: "NotFound", Invalid: "Invalid", Forbidden: "Forbidden", Expired: "Expired"}
    return next((code for cls, code in table.items() if isinstance(err, cls)), "Unavailable")
