"""Quantiles, median and spread."""

import statistics as stdlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.core.benchmark.statistics import latencies, median, quantile, spread_percent

VALUES = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=50)


@given(VALUES)
def test_median_is_the_middle(values: list[float]):
    assert median(values) == pytest.approx(stdlib.median(values))


@given(VALUES, st.floats(0, 1), st.floats(0, 1))
def test_quantiles_grow_and_stay_inside(values: list[float], a: float, b: float):
    low, high = sorted((quantile(values, a), quantile(values, b)))
    assert min(values) <= low + 1e-9
    assert high <= max(values) + 1e-9
    assert (quantile(values, min(a, b)) <= quantile(values, max(a, b)) + 1e-6) is True


def test_quantiles_are_interpolated():
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.25) == pytest.approx(1.75)


def test_a_quantile_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="nothing"):
        quantile([], 0.5)


def test_spread_is_relative_to_the_median():
    assert spread_percent([90.0, 100.0, 110.0]) == pytest.approx(20.0)


def test_one_value_has_no_spread():
    assert spread_percent([5.0]) is None
    assert spread_percent([0.0, 0.0]) is None


def test_latencies_of_nothing_are_unknown():
    assert latencies([]) is None


def test_latencies_are_ordered():
    found = latencies([3.0, 1.0, 2.0])
    assert found is not None
    assert found.p50 == 2.0
    assert found.p50 < found.p95 < found.p99 < 3.0
