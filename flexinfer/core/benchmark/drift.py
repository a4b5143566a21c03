"""Whether an engine that serves is slower than it was measured.

Its live tokens/s are compared with the measured curve at the number of requests it is running. Both are averaged
over half a minute, because a request that ends or begins moves one before the other. Below 80 % for five busy
minutes in a row is drift; a minute of idleness or silence begins the count anew, but clears no flag.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from flexinfer.contracts.events import BenchCompleted, CurvePoint

FLAG_BELOW = 0.8
FLAG_AFTER_SECONDS = 300.0
CLEAR_ABOVE = 0.85  # once flagged, so that a node on the edge does not flap
SMOOTHING_SECONDS = 30.0
MAX_GAP_SECONDS = 60.0  # a longer silence starts over: nobody knows what happened in it


@dataclass(frozen=True, slots=True)
class Drift:
    """State of one engine. ``ratio`` is live / measured speed; ``slow_seconds`` the busy time below the limit."""

    at: float | None = None
    live: float | None = None
    expected: float | None = None
    slow_seconds: float = 0.0
    flagged: bool = False

    @property
    def ratio(self) -> float | None:
        """None until the engine was seen busy."""
        if self.live is None or not self.expected:
            return None
        return self.live / self.expected


def observe(
    drift: Drift, at: float, running: int | None, tokens_per_second: float | None, expected: float | None
) -> Drift:
    """The state after one telemetry sample taken at ``at`` (Unix seconds).

    ``expected`` is ``expected_speed`` of the result at ``running``. Samples that are older than the last, idle,
    or without numbers change nothing.
    """
    if not running or tokens_per_second is None or not expected or (drift.at is not None and at <= drift.at):
        return drift
    if drift.at is None or drift.live is None or drift.expected is None or at - drift.at > MAX_GAP_SECONDS:
        return Drift(at=at, live=tokens_per_second, expected=expected, flagged=drift.flagged)
    step = at - drift.at
    keep = math.exp(-step / SMOOTHING_SECONDS)
    live = keep * drift.live + (1 - keep) * tokens_per_second
    wanted = keep * drift.expected + (1 - keep) * expected
    ratio = live / wanted
    slow = drift.slow_seconds + step if ratio < FLAG_BELOW else 0.0
    flagged = (drift.flagged and ratio < CLEAR_ABOVE) or slow >= FLAG_AFTER_SECONDS
    return replace(drift, at=at, live=live, expected=wanted, slow_seconds=slow, flagged=flagged)


def expected_speed(result: BenchCompleted, running: int) -> float | None:
    """Measured tokens/s of all streams with ``running`` requests at once; None without a usable point.

    Straight lines between measured points of the headline's prompt length; beyond the last point its value, since
    a saturated engine does not get faster.
    """
    points = _line(result)
    if not points or running < 1:
        return None
    if running <= points[0].concurrency:
        return points[0].tokens_per_second * running / points[0].concurrency
    for low, high in itertools.pairwise(points):
        if running <= high.concurrency:
            share = (running - low.concurrency) / (high.concurrency - low.concurrency)
            return low.tokens_per_second + share * (high.tokens_per_second - low.tokens_per_second)
    return points[-1].tokens_per_second


def _line(result: BenchCompleted) -> Sequence[CurvePoint]:
    first = result.settings.prompt_tokens[0] if result.settings.prompt_tokens else 0
    points = {p.concurrency: p for p in result.curve if p.prompt_tokens == first and p.tokens_per_second > 0}
    if 1 not in points:
        points[1] = CurvePoint(
            concurrency=1,
            prompt_tokens=first,
            tokens_per_second=result.tokens_per_second,
            per_request_tokens_per_second=result.tokens_per_second,
            requests=result.iterations,
        )
    return [points[concurrency] for concurrency in sorted(points)]
