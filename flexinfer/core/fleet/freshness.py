"""How old facts count. Only telemetry ages, by the interval it promised to keep; silence never helps."""

from enum import IntEnum
from math import inf

from flexinfer.core.fleet.view import NodeView

AGING_INTERVALS = 3
LOST_INTERVALS = 10
UNKNOWN_PERCENT = 50.0


class Level(IntEnum):
    """FRESH: as reported. AGING: load counts as at least half. LOST: no headroom, VRAM by what is bound."""

    FRESH = 0
    AGING = 1
    LOST = 2


def level(node: NodeView, now: float) -> Level:
    """Of a node's telemetry; LOST when there was none, or when its agent said goodbye after the last."""
    if node.telemetry is None:
        return Level.LOST
    if node.assumed:
        return Level.AGING
    if node.status is not None and node.status.state == "offline" and node.status_at >= node.telemetry_at:
        return Level.LOST
    age = now - node.telemetry_at
    interval = node.telemetry.interval_seconds
    if age > LOST_INTERVALS * interval:
        return Level.LOST
    return Level.AGING if age > AGING_INTERVALS * interval else Level.FRESH


def next_change(node: NodeView, now: float) -> float:
    """When the level changes by itself; infinity if it will not."""
    if node.telemetry is None or node.assumed:
        return inf
    for intervals in (AGING_INTERVALS, LOST_INTERVALS):
        # A hair later than the boundary, which itself still counts as younger.
        at = node.telemetry_at + intervals * node.telemetry.interval_seconds + 1e-3
        if at > now:
            return at
    return inf


def observed(reported: float, interval: float, now: float, *, live: bool) -> float:
    """When a fact counts as observed, by our clock.

    A live event whose producer's clock disagrees by more than its interval is dated by its receipt. Stored state
    is legitimately old, so there only the future is not believed.
    """
    if not live:
        return min(reported, now)
    return reported if abs(now - reported) <= interval and reported <= now else now


def load_percent(value: float | None, at: Level) -> float:
    """Utilisation or KV use, 0..100: unknown is half, and a silent node is at least half busy."""
    if value is None:
        return UNKNOWN_PERCENT
    return value if at is Level.FRESH else max(value, UNKNOWN_PERCENT)
