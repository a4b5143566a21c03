"""What one request or stage may look like before it counts."""

import pytest

from flexinfer.core.benchmark.failures import EXIT_ENGINE, failed, kind_of, reasons
from flexinfer.core.benchmark.findings import Failure, Measured, StageResult, Unusable, check_request, check_stage
from flexinfer.core.benchmark.schedule import Stage
from flexinfer.core.benchmark.summary import Subject

GOOD = Measured(4, 1.0, 64, 0.1, (0.1, 0.2, 0.3, 0.4), endpoint="pod-a")
STAGE = Stage("curve", 8, 64, 16, 0.0)


def test_a_good_request_counts():
    check_request(GOOD, 4, GOOD)
    assert GOOD.tokens_per_second == 4.0
    assert GOOD.decode_tokens_per_second == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        (Measured(0, 1.0, 64, None, ()), "NoTokens"),
        (Measured(2, 1.0, 64, 0.1, (0.1, 0.2, 0.3, 0.4)), "CountMismatch"),
        (Measured(5, 1.0, 64, 0.1, (0.1,), endpoint="pod-a"), "CountMismatch"),
        (Measured(4, 1.0, 64, 0.1, (0.1,), endpoint="pod-b"), "InstanceChanged"),
    ],
)
def test_a_request_that_cannot_count_names_its_reason(measured: Measured, reason: str):
    with pytest.raises(Unusable) as caught:
        check_request(measured, 4, GOOD)
    assert caught.value.reason == reason


def test_rates_of_degenerate_requests():
    assert Measured(4, 0.0, 64, None, ()).tokens_per_second == 0.0
    assert Measured(1, 1.0, 64, 0.1, (0.1,)).decode_tokens_per_second is None
    assert Measured(2, 1.0, 64, 0.1, (0.1, 0.1)).decode_tokens_per_second is None


def stage(good: int, *failures: str) -> StageResult:
    return StageResult(STAGE, (GOOD,) * good, tuple(Failure(r, "why") for r in failures), 1.0)


def test_a_few_errors_are_counted_not_fatal():
    assert check_stage(stage(16)) is None
    assert check_stage(stage(3, "Connection", "Limited")) is None


def test_a_limited_point_is_left_out_with_a_note():
    note = check_stage(stage(1, "Limited", "Limited"))
    assert note is not None
    assert "concurrency 8" in note
    assert "Limited" in note


def test_a_broken_engine_ends_the_run():
    with pytest.raises(Unusable) as caught:
        check_stage(stage(0, "Limited", "Connection"))
    assert caught.value.reason == "Connection"


def test_every_reason_has_a_remedy_and_an_exit_code():
    for reason, kind in reasons().items():
        assert kind.remedy.endswith("."), reason
        assert 1 < kind.exit_code < 128, reason
    assert kind_of("SomethingNew").exit_code == EXIT_ENGINE


def test_a_failed_event_is_whole_even_without_identity():
    subject = Subject("", "", "", "", "", "", "")
    event = failed(subject, "BadSettings", "url must not be empty")
    assert (event.key, event.namespace, event.model) == ("unset", "unset", "unset")
    assert event.remedy
    assert event.device_class is None
