"""Stages become a result whose headline is a median, with notes where it should not be trusted blindly."""

from dataclasses import replace

import pytest

from flexinfer.contracts.events import BenchSettings
from flexinfer.core.benchmark.findings import Failure, Measured, StageResult, Unusable
from flexinfer.core.benchmark.schedule import Stage
from flexinfer.core.benchmark.summary import Subject, cost_per_million, started, summarise

SUBJECT = Subject(
    key="m-0123", namespace="default", model="m", workload="m-4567", source="m.gguf", backend="llamacpp",
    device_class="cpu-x-2t", node="n1", image="img", driver_major="",
)  # fmt: skip
SETTINGS = BenchSettings(iterations=3, batch_size=10, concurrency=(1, 2))
HEADLINE = Stage("headline", 1, 64, 3, 0.0)
CURVE = Stage("curve", 2, 64, 4, 0.0)


def request(duration: float = 1.0, tokens: int = 10, **changes) -> Measured:
    """``tokens`` spread evenly over the second half of ``duration``."""
    step = duration / 2 / max(1, tokens)
    times = tuple(duration / 2 + step * (n + 1) for n in range(tokens))
    return replace(Measured(tokens, duration, 64, times[0] if times else None, times), **changes)


def result(*durations: float, stage: Stage = HEADLINE, seconds: float = 3.0, **changes) -> StageResult:
    return StageResult(stage, tuple(request(d, **changes) for d in durations), (), seconds)


def test_headline_is_the_median_of_the_measured_iterations():
    warm = result(9.0, stage=Stage("warmup", 1, 64, 1, 0.0))
    done = summarise(SUBJECT, SETTINGS, [warm, result(1.0, 2.0, 1.25)], 12.0)
    assert done.tokens_per_second == pytest.approx(8.0)
    assert done.iterations == 3
    assert done.spread_percent == pytest.approx((10 - 5) / 8 * 100)
    assert done.duration_seconds == 12.0
    assert done.end_to_end is not None
    assert done.end_to_end.p50 == pytest.approx(1.25)


def test_decode_rate_leaves_the_first_token_out():
    done = summarise(SUBJECT, SETTINGS, [result(1.0)], 1.0)
    assert done.decode_tokens_per_second == pytest.approx(20.0)
    assert done.first_token is not None
    assert done.first_token.p50 == pytest.approx(0.55)
    assert done.inter_token is not None
    assert done.inter_token.p99 == pytest.approx(0.05)


def test_curve_counts_all_streams_over_the_wall_time():
    curve = replace(result(1.0, 1.0, 1.0, 1.0, stage=CURVE, seconds=2.0), failures=(Failure("Limited", "x"),))
    done = summarise(SUBJECT, SETTINGS, [result(1.0, seconds=1.0), curve], 3.0)
    assert [(p.concurrency, p.tokens_per_second, p.errors) for p in done.curve] == [(1, 10.0, 0), (2, 20.0, 1)]
    assert done.errors == 1


def test_engine_speed_is_told_only_if_every_iteration_has_it():
    told = summarise(SUBJECT, SETTINGS, [result(1.0, engine_tokens_per_second=10.1)], 1.0)
    assert told.engine_tokens_per_second == pytest.approx(10.1)
    mixed = StageResult(HEADLINE, (request(engine_tokens_per_second=10.1), request()), (), 2.0)
    assert summarise(SUBJECT, SETTINGS, [mixed], 2.0).engine_tokens_per_second is None


def test_identity_is_copied():
    done = summarise(SUBJECT, SETTINGS, [result(1.0)], 1.0)
    assert (done.key, done.workload, done.device_class, done.node) == ("m-0123", "m-4567", "cpu-x-2t", "n1")
    assert done.settings == SETTINGS
    assert started(SUBJECT, SETTINGS).key == "m-0123"


def test_nothing_measured_is_no_result():
    with pytest.raises(Unusable):
        summarise(SUBJECT, SETTINGS, [], 1.0)
    with pytest.raises(Unusable):
        summarise(SUBJECT, SETTINGS, [StageResult(HEADLINE, (), (), 1.0)], 1.0)


def test_zero_speed_is_no_result():
    with pytest.raises(Unusable):
        summarise(SUBJECT, SETTINGS, [result(1.0, tokens=0)], 1.0)


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ({"tokens": 7}, "ended before 10 tokens"),
        ({"prompt_tokens": 60}, "another prompt length"),
        ({"cached_tokens": 3}, "from a cache"),
        ({"token_times": (0.5, 1.0)}, "several tokens per event"),
    ],
)
def test_doubts_are_noted(measured: dict, words: str):
    done = summarise(SUBJECT, SETTINGS, [result(1.0, **measured)], 1.0, notes=["first"])
    assert done.notes[0] == "first"
    assert any(words in note for note in done.notes)


def test_a_wide_spread_is_noted():
    assert any("spread" in note for note in summarise(SUBJECT, SETTINGS, [result(1.0, 2.0)], 3.0).notes)


def test_a_clean_run_has_no_notes():
    assert summarise(SUBJECT, SETTINGS, [result(1.0, 1.0)], 2.0).notes == ()


def test_cost_needs_a_price():
    curve = summarise(SUBJECT, SETTINGS, [result(1.0, seconds=1.0)], 1.0).curve
    assert cost_per_million(None, curve) is None
    assert cost_per_million(3.6, ()) is None
    assert cost_per_million(3.6, curve) == pytest.approx(100.0)
