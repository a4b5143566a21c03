"""What a run measured, before it becomes a result: requests, errors and stages as plain data."""

from dataclasses import dataclass

from flexinfer.core.benchmark.schedule import Stage


@dataclass(frozen=True, slots=True)
class Measured:
    """One finished request; times in seconds from sending it."""

    completion_tokens: int
    duration: float
    prompt_tokens: int
    first_token: float | None
    token_times: tuple[float, ...]
    engine_tokens_per_second: float | None = None
    cached_tokens: int | None = None
    endpoint: str | None = None
    model: str | None = None

    @property
    def tokens_per_second(self) -> float:
        """Completion tokens / request duration."""
        return self.completion_tokens / self.duration if self.duration > 0 else 0.0

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Rate after the first token; None for answers of one event."""
        if self.completion_tokens < 2 or len(self.token_times) < 2:
            return None
        seconds = self.token_times[-1] - self.token_times[0]
        return (self.completion_tokens - 1) / seconds if seconds > 0 else None

    @property
    def gaps(self) -> tuple[float, ...]:
        """Seconds between text events."""
        return tuple(late - early for early, late in zip(self.token_times, self.token_times[1:], strict=False))


@dataclass(frozen=True, slots=True)
class Failure:
    """One request that failed: reason code and sentence."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class StageResult:
    """A stage that ran: ``seconds`` is its wall time; ``began`` and ``ended`` are Unix seconds."""

    stage: Stage
    measured: tuple[Measured, ...]
    failures: tuple[Failure, ...]
    seconds: float
    began: float = 0.0
    ended: float = 0.0


class Unusable(Exception):
    """The run can give no result. ``reason`` is a CamelCase code, the text one sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


TOLERATED = frozenset({"Limited", "ContextTooLong"})


def check_request(measured: Measured, asked: int, first: Measured | None) -> None:
    """Raise Unusable for an answer no number may be made of: no tokens, or another instance than the first's."""
    if measured.completion_tokens == 0:
        raise Unusable("NoTokens", "the engine answered with zero completion tokens")
    if len(measured.token_times) > measured.completion_tokens + 1:
        raise Unusable(
            "CountMismatch",
            f"the stream carried {len(measured.token_times)} text events but usage counts "
            f"{measured.completion_tokens} tokens",
        )
    if measured.completion_tokens > asked:
        raise Unusable("CountMismatch", f"usage counts {measured.completion_tokens} tokens, {asked} were asked for")
    if first is not None and measured.endpoint != first.endpoint:
        raise Unusable(
            "InstanceChanged", f"requests were answered by {measured.endpoint} after {first.endpoint} answered before"
        )


def check_stage(result: StageResult) -> str | None:
    """A note if the point has to be left out of the curve, None if it stands.

    Raises Unusable when most requests failed for another reason than a limit: then the engine is broken, and a
    partial run is no result.
    """
    failures = result.failures
    if len(failures) <= len(result.measured):
        return None
    worst = next((f for f in failures if f.reason not in TOLERATED), failures[0])
    stage = result.stage
    if worst.reason not in TOLERATED:
        raise Unusable(worst.reason, f"at concurrency {stage.concurrency}: {worst.message}")
    return (
        f"no point at concurrency {stage.concurrency} with {stage.prompt_tokens} prompt tokens: "
        f"{len(failures)} requests failed with {worst.reason}"
    )
