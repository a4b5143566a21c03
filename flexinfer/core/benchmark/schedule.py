"""What a run does, in which order, and when a stage has enough.

Warm-up, then the headline stage (concurrency 1, first prompt length) until both the number of iterations and the
least duration are reached, then one stage per other point of the curve.
"""

from dataclasses import dataclass
from typing import Literal

from flexinfer.contracts.events import BenchSettings

Kind = Literal["warmup", "headline", "curve"]

WAVES = 2  # requests per stream of a curve point, at least: one alone would be all ramp-up
CURVE_SHARE = 1 / 3  # of the least duration, spent on each other point of the curve
MAX_CONCURRENCY = 1024
MAX_TOKENS = 1 << 20
MAX_POINTS = 64


@dataclass(frozen=True, slots=True)
class Stage:
    """Requests of one shape: ``at_least`` of them and for ``min_seconds``."""

    kind: Kind
    concurrency: int
    prompt_tokens: int
    at_least: int
    min_seconds: float

    @property
    def tolerant(self) -> bool:
        """Whether an error costs only this point: warm-up and headline must be whole, or there is no result."""
        return self.kind == "curve"


def stages(settings: BenchSettings) -> tuple[Stage, ...]:
    """The stages of a run in order; concurrency 1 is measured whether or not it is listed."""
    first = settings.prompt_tokens[0]
    found = []
    if settings.warmup_iterations:
        found.append(Stage("warmup", 1, first, settings.warmup_iterations, 0.0))
    found.append(Stage("headline", 1, first, settings.iterations, settings.min_duration_seconds))
    seen = {(1, first)}
    for prompt_tokens in settings.prompt_tokens:
        for concurrency in sorted({1, *settings.concurrency}):
            if (concurrency, prompt_tokens) not in seen:
                seen.add((concurrency, prompt_tokens))
                seconds = settings.min_duration_seconds * CURVE_SHARE
                found.append(Stage("curve", concurrency, prompt_tokens, WAVES * concurrency, seconds))
    return tuple(found)


def wants_more(stage: Stage, begun: int, elapsed: float) -> bool:
    """Whether another request of the stage should begin, after ``begun`` of them and ``elapsed`` seconds."""
    return begun < stage.at_least or elapsed < stage.min_seconds


def problems(settings: BenchSettings) -> tuple[str, ...]:
    """One sentence for each setting that cannot be measured with; empty when all are fine."""
    points = len(settings.concurrency) * len(settings.prompt_tokens)
    checks = (
        (settings.iterations < 1, "iterations must be at least 1"),
        (settings.warmup_iterations < 0, "warmup iterations must not be negative"),
        (settings.min_duration_seconds < 0, "the least duration must not be negative"),
        (not 1 <= settings.batch_size <= MAX_TOKENS, f"batch size must be 1 to {MAX_TOKENS} tokens"),
        (not settings.concurrency, "concurrency must name at least one number"),
        (not settings.prompt_tokens, "prompt tokens must name at least one length"),
        (
            any(not 1 <= c <= MAX_CONCURRENCY for c in settings.concurrency),
            f"each concurrency must be 1 to {MAX_CONCURRENCY}",
        ),
        (
            any(not 1 <= n <= MAX_TOKENS for n in settings.prompt_tokens),
            f"each prompt must be 1 to {MAX_TOKENS} tokens",
        ),
        (points > MAX_POINTS, f"the curve has {points} points, more than {MAX_POINTS}"),
    )
    return tuple(sentence for wrong, sentence in checks if wrong)


def numbers(text: str) -> tuple[int, ...]:
    """``1, 8`` as (1, 8). Raises ValueError with a sentence for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(f"{text!r} is not a list of whole numbers above 0; write 1,8")
    return tuple(dict.fromkeys(int(part) for part in parts))
