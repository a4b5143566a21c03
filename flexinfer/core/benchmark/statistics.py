"""The few statistics a result is made of; plain sequences in, floats out."""

from collections.abc import Sequence

from flexinfer.contracts.events import Latencies


def quantile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between order statistics (method 7 of Hyndman and Fan, numpy's default).

    Raises ValueError if there are no values.
    """
    if not values:
        raise ValueError("a quantile of nothing")
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def median(values: Sequence[float]) -> float:
    """The middle value. Raises ValueError if there are none."""
    return quantile(values, 0.5)


def spread_percent(values: Sequence[float]) -> float | None:
    """(max - min) / median in percent; None below two values, where it says nothing."""
    if len(values) < 2 or (middle := median(values)) <= 0:
        return None
    return (max(values) - min(values)) / middle * 100.0


def latencies(values: Sequence[float]) -> Latencies | None:
    """p50, p95 and p99 in seconds; None without values."""
    if not values:
        return None
    return Latencies(p50=quantile(values, 0.5), p95=quantile(values, 0.95), p99=quantile(values, 0.99))
