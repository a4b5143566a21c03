"""A run warms up, measures the headline, then the other points of the curve."""

import pytest

from flexinfer.contracts.events import BenchSettings
from flexinfer.core.benchmark.schedule import Stage, numbers, problems, stages, wants_more


def shapes(settings: BenchSettings) -> list[tuple[str, int, int]]:
    return [(s.kind, s.concurrency, s.prompt_tokens) for s in stages(settings)]


def test_default_run():
    assert shapes(BenchSettings()) == [("warmup", 1, 64), ("headline", 1, 64), ("curve", 8, 64)]


def test_concurrency_one_is_measured_even_if_not_listed():
    assert shapes(BenchSettings(concurrency=(4,))) == [("warmup", 1, 64), ("headline", 1, 64), ("curve", 4, 64)]


def test_every_prompt_length_gets_its_points():
    settings = BenchSettings(warmup_iterations=0, concurrency=(4, 1), prompt_tokens=(64, 2048))
    assert shapes(settings) == [("headline", 1, 64), ("curve", 4, 64), ("curve", 1, 2048), ("curve", 4, 2048)]


def test_a_stage_lasts_until_both_count_and_time_are_reached():
    stage = Stage("headline", 1, 64, 5, 30.0)
    assert wants_more(stage, 5, 29.9)
    assert wants_more(stage, 4, 100.0)
    assert not wants_more(stage, 5, 30.0)


def test_each_stream_of_a_curve_point_sends_at_least_twice():
    assert stages(BenchSettings())[-1].at_least == 16


def test_only_curve_points_may_fail_alone():
    assert [s.tolerant for s in stages(BenchSettings())] == [False, False, True]


def test_good_settings_have_no_problems():
    assert problems(BenchSettings()) == ()


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (BenchSettings(iterations=0), "iterations"),
        (BenchSettings(warmup_iterations=-1), "warmup"),
        (BenchSettings(min_duration_seconds=-1.0), "duration"),
        (BenchSettings(batch_size=0), "batch size"),
        (BenchSettings(batch_size=-5), "batch size"),
        (BenchSettings(concurrency=()), "concurrency"),
        (BenchSettings(concurrency=(0,)), "concurrency"),
        (BenchSettings(concurrency=(100_000,)), "concurrency"),
        (BenchSettings(prompt_tokens=()), "prompt"),
        (BenchSettings(prompt_tokens=(0,)), "prompt"),
        (BenchSettings(concurrency=tuple(range(1, 100))), "points"),
    ],
)
def test_each_bad_setting_is_named(settings: BenchSettings, word: str):
    found = problems(settings)
    assert len(found) == 1
    assert word in found[0]


def test_lists_of_numbers():
    assert numbers("1, 8,8") == (1, 8)


@pytest.mark.parametrize("text", ["", "1,", "-1", "a", "1;8", "1.5", "²"])
def test_other_lists_are_refused(text: str):
    with pytest.raises(ValueError, match="write 1,8"):
        numbers(text)
