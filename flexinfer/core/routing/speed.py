"""How fast a replica serves one of n requests, from what was measured.

A benchmark gives aggregate tokens/s at a few concurrencies. Between them the curve is read as straight lines, after
the last one as flat: an engine that is full shares what it has.
"""

from collections.abc import Sequence
from itertools import pairwise

Curve = tuple[tuple[int, float], ...]  # (concurrency, aggregate tokens/s), concurrency growing, first is 1
FLAT: Curve = ((1, 1.0),)


def throughput(curve: Curve, requests: int) -> float:
    """Aggregate tokens/s with so many requests at once (1 or more)."""
    if requests <= curve[0][0]:
        return curve[0][1]
    for (left, low), (right, high) in pairwise(curve):
        if requests <= right:
            return low + (high - low) * (requests - left) / (right - left)
    return curve[-1][1]


def seconds_per_token(curve: Curve, requests: int) -> float:
    """What one of so many requests waits for its next token."""
    return requests / throughput(curve, requests)


def most(curve: Curve) -> float:
    """The highest aggregate tokens/s."""
    return max(speed for _, speed in curve)


def curve_of(points: Sequence[tuple[int, float]], single: float) -> Curve:
    """A usable curve from measured points; empty if they say nothing about concurrency.

    Points of one concurrency count by their best. ``single`` is the headline at concurrency 1, which replaces the
    point measured there so that curves and headlines rank alike.
    """
    best: dict[int, float] = {}
    for concurrency, speed in points:
        if concurrency >= 1 and speed > 0:
            best[concurrency] = max(speed, best.get(concurrency, 0.0))
    if single <= 0 or not any(concurrency > 1 for concurrency in best):
        return ()
    best[1] = single
    return tuple(sorted(best.items()))


def scaled(shape: Curve, single: float) -> Curve:
    """A curve of the same shape for another speed at concurrency 1."""
    factor = single / shape[0][1]
    return tuple((concurrency, speed * factor) for concurrency, speed in shape)
