"""An engine slower than measured for five busy minutes is flagged; idleness and noise are not drift."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.contracts.events import BenchCompleted, CurvePoint
from flexinfer.core.benchmark.drift import Drift, expected_speed, observe


def point(concurrency: int, speed: float, prompt: int = 64) -> CurvePoint:
    return CurvePoint(
        concurrency=concurrency, prompt_tokens=prompt, tokens_per_second=speed,
        per_request_tokens_per_second=speed / concurrency, requests=5,
    )  # fmt: skip


def result(*points: CurvePoint, speed: float = 100.0) -> BenchCompleted:
    return BenchCompleted(
        key="k", namespace="d", model="m", workload="w", source="s", backend="b", device_class="c",
        tokens_per_second=speed, iterations=5, duration_seconds=30.0, curve=points,
    )  # fmt: skip


MEASURED = result(point(1, 100.0), point(8, 450.0), point(4, 1.0, prompt=2048))


def run(seconds: float, speed: float, *, running: int = 1, drift: Drift | None = None, step: float = 2.0) -> Drift:
    drift = drift or Drift()
    at = drift.at or 1000.0
    end = at + seconds
    while at < end:
        at += step
        drift = observe(drift, at, running, speed, expected_speed(MEASURED, running))
    return drift


@pytest.mark.parametrize(("running", "speed"), [(1, 100.0), (2, 150.0), (4, 250.0), (8, 450.0), (20, 450.0)])
def test_the_curve_is_read_between_its_points(running: int, speed: float):
    assert expected_speed(MEASURED, running) == pytest.approx(speed)


def test_a_result_without_a_curve_still_has_its_headline():
    assert expected_speed(result(), 1) == 100.0
    assert expected_speed(result(), 5) == 100.0


def test_nothing_running_is_not_compared():
    assert expected_speed(MEASURED, 0) is None


def test_a_healthy_engine_is_never_flagged():
    drift = run(3600, 95.0)
    assert not drift.flagged
    assert drift.ratio == pytest.approx(0.95)


def test_five_slow_minutes_are_drift_and_less_is_not():
    assert not run(290, 70.0).flagged
    assert run(310, 70.0).flagged


def test_the_same_concurrency_is_compared():
    assert not run(600, 400.0, running=8).flagged
    assert run(600, 150.0, running=8).flagged


def test_one_good_stretch_starts_the_count_anew():
    drift = run(200, 70.0)
    drift = run(60, 100.0, drift=drift)
    assert drift.slow_seconds == 0
    assert not run(250, 70.0, drift=drift).flagged


def test_one_odd_sample_is_smoothed():
    drift = run(600, 95.0)
    drift = run(2, 0.0, drift=drift)
    assert drift.ratio is not None
    assert drift.ratio > 0.85


def test_a_flag_stays_until_the_engine_is_clearly_well():
    drift = run(400, 70.0)
    assert run(300, 82.0, drift=drift).flagged
    assert not run(300, 95.0, drift=drift).flagged


def test_idleness_clears_no_flag_and_counts_nothing():
    drift = run(400, 70.0)
    later = observe(drift, 5000.0, 0, 0.0, None)
    assert later == drift
    back = observe(later, 5002.0, 1, 70.0, 100.0)
    assert back.flagged
    assert back.slow_seconds == 0


@pytest.mark.parametrize(
    ("running", "speed", "expected"), [(None, 50.0, 100.0), (1, None, 100.0), (1, 50.0, None), (1, 50.0, 0.0)]
)
def test_missing_numbers_change_nothing(running, speed, expected):
    assert observe(Drift(), 1.0, running, speed, expected) == Drift()


def test_an_older_sample_changes_nothing():
    drift = run(10, 70.0)
    assert observe(drift, 1000.0, 1, 10.0, 100.0) == drift
    assert drift.at is not None
    assert observe(drift, drift.at, 1, 10.0, 100.0) == drift


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 20), st.floats(0, 1e5)), max_size=60))
def test_repeats_never_change_the_outcome(samples: list[tuple[float, int, float]]):
    once = twice = Drift()
    at = 0.0
    for step, running, speed in samples:
        at += step
        expected = expected_speed(MEASURED, running)
        once = observe(once, at, running, speed, expected)
        twice = observe(observe(twice, at, running, speed, expected), at, running, speed, expected)
    assert once == twice
