"""Prometheus metrics: the one door to prometheus_client.

Metric objects are made once at import with fixed label names; values of label sets that vanished are removed by
their owner with ``forget``. The registry is our own so that tests and embedded parts do not collide.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

REGISTRY = CollectorRegistry(auto_describe=True)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Metric = Counter | Gauge | Histogram


def counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
    """A counter; the ``_total`` suffix is part of ``name``."""
    return Counter(name, text, labels, registry=REGISTRY)


def gauge(name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
    """A gauge."""
    return Gauge(name, text, labels, registry=REGISTRY)


def histogram(name: str, text: str, labels: Sequence[str] = (), buckets: Sequence[float] | None = None) -> Histogram:
    """A histogram in base units; prometheus_client's default buckets unless given."""
    if buckets is None:
        return Histogram(name, text, labels, registry=REGISTRY)
    return Histogram(name, text, labels, registry=REGISTRY, buckets=tuple(buckets))


class Spread:
    """Observations of one label set of a LoopHistogram."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class LoopHistogram(Collector):
    """A histogram that only one event loop writes: without locks an observation costs a tenth."""

    def __init__(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> None:
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._bounds = tuple(buckets)
        self._spreads: dict[tuple[str, ...], Spread] = {}
        REGISTRY.register(self)

    def labels(self, *values: str) -> Spread:
        """The observations of one label set, made if new."""
        found = self._spreads.get(values)
        if found is None:
            found = self._spreads[values] = Spread(self._bounds)
        return found

    def remove(self, *values: str) -> None:
        """Drop one label set. Raises KeyError."""
        del self._spreads[values]

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """The name, for the registry's check of doubles."""
        yield HistogramMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """All label sets."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for values, spread in tuple(self._spreads.items()):
            so_far, rows = 0, []
            for bound, count in zip((*map(str, self._bounds), "+Inf"), spread.counts, strict=True):
                so_far += count
                rows.append((bound, so_far))
            family.add_metric(values, rows, spread.total)
        yield family


def forget(metric: Metric | LoopHistogram, *values: str) -> None:
    """Drop one label set; a set that is not there is no error."""
    try:
        metric.remove(*values)
    except KeyError:
        return


def expose() -> bytes:
    """Everything in the Prometheus text format."""
    return generate_latest(REGISTRY)


def value_of(name: str, labels: dict[str, str] | None = None) -> float:
    """Current value of one sample, 0.0 if it does not exist; for tests and status pages."""
    return REGISTRY.get_sample_value(name, labels or {}) or 0.0
