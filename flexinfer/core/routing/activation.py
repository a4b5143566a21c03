"""Waking models at zero: who may wait, for how long, and when the bus hears of it."""

from collections import deque
from dataclasses import dataclass, field

from flexinfer.contracts.events import ModelEndpoint
from flexinfer.core.routing.refusal import Refusal
from flexinfer.core.routing.table import key_of

PACE_SECONDS = 0.1  # least time between two demand events of one model
REPEAT_SECONDS = 2.0  # a standing demand is repeated: its state key lives 10 s, and a lost event must not strand it
RETRY_SOON = 5
RETRY_LATER = 30


def admit(spec: ModelEndpoint, waiting: int, limit: int, *, background: bool) -> None:
    """Whether one more request may wait for this model. Raises Refusal 503 with when to come again."""
    name = key_of(spec)
    if spec.failure:
        raise Refusal(
            503, "activation_failed", f"the model '{name}' cannot be started: {spec.failure}", retry_after=RETRY_LATER
        )
    if not spec.wakeable:
        raise Refusal(503, "no_endpoint", f"the model '{name}' has no ready replica", retry_after=RETRY_SOON)
    if background:
        raise Refusal(
            503, "model_asleep", f"the model '{name}' is at zero and a background request does not wake it",
            retry_after=RETRY_LATER,
        )  # fmt: skip
    if waiting >= limit:
        raise Refusal(
            503, "queue_full", f"{waiting} requests wait for the model '{name}' already", retry_after=RETRY_SOON
        )


def patience(spec: ModelEndpoint, longest: float) -> float:
    """Seconds a request waits for this model."""
    return min(longest, spec.cold_start_timeout_seconds) if spec.cold_start_timeout_seconds > 0 else longest


@dataclass(slots=True)
class Demand:
    """Requests waiting for one model at this proxy; times are Unix seconds."""

    since: deque[float] = field(default_factory=deque)
    told: int = 0  # the count last published
    told_at: float = float("-inf")

    def due(self, now: float) -> float | None:
        """Seconds until an event is due: 0 now, None while there is nothing to say."""
        if len(self.since) != self.told:
            return max(0.0, self.told_at + PACE_SECONDS - now)
        return max(0.0, self.told_at + REPEAT_SECONDS - now) if self.since else None

    def tell(self, now: float) -> tuple[int, float]:
        """(waiting, oldest age) for the event published now."""
        self.told, self.told_at = len(self.since), now
        return self.told, max(0.0, now - min(self.since)) if self.since else 0.0
