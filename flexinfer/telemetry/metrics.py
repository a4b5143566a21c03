"""Prometheus metrics: the one door to prometheus_client.

Metric objects are made once at import with fixed label names; values of label sets that vanished are removed by
their owner with ``forget``. The registry is our own so that tests and embedded parts do not collide.
"""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

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


def forget(metric: Metric, *values: str) -> None:
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
