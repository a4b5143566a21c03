"""Runs are found by the start of their key, put in order, and compared quantity by quantity."""

import pytest
from msgspec.structs import replace

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import BenchCompleted, CurvePoint, Latencies, NodeStatus
from flexinfer.core.benchmark.comparison import Row, Run, compare, find, history, identity_changes, latest, runs_of

OLD = BenchCompleted(
    key="m-aaaa", namespace="d", model="m", workload="w", source="s", backend="llamacpp", device_class="c",
    tokens_per_second=50.0, iterations=5, duration_seconds=30.0, image="img:1", driver_major="550",
    first_token=Latencies(p50=0.1, p95=0.2, p99=0.3),
    curve=(CurvePoint(concurrency=1, prompt_tokens=64, tokens_per_second=50.0,
                      per_request_tokens_per_second=50.0, requests=5),),
)  # fmt: skip
NEW = replace(OLD, key="m-bbbb", tokens_per_second=60.0, image="img:2", driver_major="575")
OTHER = replace(OLD, key="x-cccc", workload="x", tokens_per_second=10.0)
RUNS = (Run(1.0, OLD), Run(2.0, OTHER), Run(3.0, replace(OLD, tokens_per_second=51.0)), Run(4.0, NEW))


def test_runs_come_once_and_in_order():
    mint = EventMint.start("bench", "m", "boot", lambda: 9.0)
    late, early = mint.mint(NEW, at=5.0), mint.mint(OLD, at=4.0)
    status = mint.mint(NodeStatus(node="n", state="online"))
    assert runs_of([late, early, status, late]) == (Run(4.0, OLD), Run(5.0, NEW))


def test_the_last_run_of_each_key_fastest_first():
    assert [run.at for run in latest(RUNS)] == [4.0, 3.0, 2.0]


def test_history_spans_images_and_drivers():
    assert [run.at for run in history(RUNS, RUNS[3])] == [1.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("name", "at"), [("m-aaaa", 3.0), ("m-aaaa@1970-01-01T00:00:01", 1.0), ("m-b", 4.0), ("x", 2.0)]
)
def test_a_run_is_found_by_the_start_of_its_name(name: str, at: float):
    assert find(RUNS, name).at == at


def test_an_ambiguous_name_lists_the_candidates():
    with pytest.raises(LookupError, match="m-aaaa, m-bbbb"):
        find(RUNS, "m-")


def test_an_unknown_name_lists_what_is_known():
    with pytest.raises(LookupError, match="known are m-aaaa, m-bbbb, x-cccc"):
        find(RUNS, "zzz")
    with pytest.raises(LookupError, match="none at all"):
        find((), "zzz")


def test_comparison_tells_change_and_direction():
    rows = {row.name: row for row in compare(OLD, NEW)}
    assert rows["tokens/s"].change_percent == pytest.approx(20.0)
    assert rows["tokens/s"].better is True
    assert rows["first token p50 s"].change_percent == 0
    assert rows["first token p50 s"].better is None
    assert "joules/token" not in rows
    assert rows["tokens/s at 1 x 64 prompt tokens"].old == 50.0


def test_slower_latency_is_worse():
    assert Row("x", 1.0, 2.0, higher_is_better=False).better is False
    assert Row("x", None, 2.0, higher_is_better=False).better is None
    assert Row("x", 0.0, 2.0, higher_is_better=True).change_percent is None


def test_what_changed_in_the_identity_is_named():
    assert identity_changes(OLD, OLD) == ()
    assert identity_changes(OLD, NEW) == ("image: img:1 → img:2", "driver major: 550 → 575")
