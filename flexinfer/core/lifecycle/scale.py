"""How many replicas: as many as asked for while in use, the floor while idle, never zero under a request.

Going to zero takes its time (draining endpoint event, grace, then the Deployment), coming back takes none.
"""

from dataclasses import dataclass

from flexinfer.contracts.kubernetes import Object
from flexinfer.core.lifecycle.description import Scale
from flexinfer.core.lifecycle.objects import condition, parse_time
from flexinfer.core.lifecycle.view import ModelState, Use

DEMAND_TTL = 10.0  # proxies repeat what still waits more often than that
DRAIN_GRACE = 5.0  # two load reports of every proxy
MIN_AWAKE = 30.0  # least time between waking and going to zero again, however short the idle timeout


@dataclass(frozen=True, slots=True)
class Want:
    """``draining``: the endpoints must be taken out of rotation now. ``wake_at``: when to look again."""

    replicas: int
    draining: bool = False
    wake_at: float | None = None
    reason: str = ""


def in_use(use: Use, now: float) -> str:
    """Why the model is in use right now; empty if it is not."""
    waiting = sum(count for count, at in use.waiting.values() if now - at < DEMAND_TTL)
    if waiting:
        return "Demand"
    if sum(count for count, at in use.outstanding.values() if now - at < DEMAND_TTL):
        return "Busy"
    return ""


def want_replicas(
    scale: Scale,
    state: ModelState,
    deployment: Object | None,
    drain_since: float | None,
    signs_since: float,
    now: float,
) -> Want:
    """The number of replicas to ask for now. ``signs_since``: since when signs of use reach us (0: they do not)."""
    if scale.active == 0:
        return Want(0, reason="SwitchedOff")
    if scale.idle_seconds <= 0 or scale.floor >= scale.active or deployment is None:
        return Want(scale.active)
    current = int((deployment.get("spec") or {}).get("replicas", 1))
    why = in_use(state.use, now)
    if why:
        # Looked at again even if no proxy lives to say that it ended.
        return Want(scale.active, wake_at=now + DEMAND_TTL, reason=why)
    if current <= scale.floor:
        return Want(scale.floor, reason="Idle")
    if not signs_since:
        # Nobody tells us of use: silence is no reason to stop anything.
        return Want(scale.active)
    ready_since = _ready_since(deployment)
    if ready_since is None:
        return Want(scale.active)
    idle_at = max(
        max(state.use.last, state.since, signs_since, ready_since) + scale.idle_seconds, state.woken_at + MIN_AWAKE
    )
    if now < idle_at:
        return Want(scale.active, wake_at=idle_at)
    if scale.floor > 0:
        return Want(scale.floor, reason="Idle")
    if drain_since is None or now < drain_since + DRAIN_GRACE:
        return Want(current, draining=True, wake_at=(now if drain_since is None else drain_since) + DRAIN_GRACE)
    return Want(0, draining=True, reason="Idle")


def _ready_since(deployment: Object) -> float | None:
    found = condition(deployment, "Available")
    if not found or found.get("status") != "True":
        return None
    return parse_time(found.get("lastTransitionTime")) or 0.0
