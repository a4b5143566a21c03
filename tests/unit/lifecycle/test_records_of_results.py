"""The record of results: written once, sharded, read back, and robust against what people put there."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flexinfer.contracts.events import BenchCompleted
from flexinfer.core.effects import Create, Patch
from flexinfer.core.lifecycle import records
from flexinfer.core.lifecycle.fold_results import put_result, read_record, write_record
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.lifecycle.view import LifecycleView


def result(key: str = "k", tps: float = 10.0, **fields: Any) -> BenchCompleted:
    return BenchCompleted(
        key=key, namespace="d", model="m", workload="w", source="s", backend="vllm", device_class="c",
        tokens_per_second=tps, iterations=1, duration_seconds=1.0, **fields,
    )  # fmt: skip


@given(st.floats(0.1, 1e6), st.floats(0, 2e9))
def test_a_record_gives_back_what_was_written(tps: float, at: float) -> None:
    assert read_record(write_record(result(tps=tps), at)) == (result(tps=tps), at)


@pytest.mark.parametrize("text", ["", "x", "{}", "[]", '{"key":"k"}', '{"observedAt":"soon"}', "null"])
def test_what_is_no_record_is_left_alone(text: str) -> None:
    assert read_record(text) is None


def test_the_newest_result_of_a_key_wins_whatever_the_order() -> None:
    for order in (((1.0, 10.0), (2.0, 20.0)), ((2.0, 20.0), (1.0, 10.0))):
        view = LifecycleView(Policy())
        for at, tps in order:
            put_result(view, result(tps=tps), at)
        assert (view.fleet.results["k"].tokens_per_second, view.measured_at["k"]) == (20.0, 2.0)


def test_new_results_go_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "SHARD_BYTES", 1600)
    view = LifecycleView(Policy())
    for number in range(6):
        put_result(view, result(f"k{number}"), 1.0)
    effects = records.plan_records(view).effects

    assert all(isinstance(effect, Create) for effect in effects)
    names = [effect.body["metadata"]["name"] for effect in effects if isinstance(effect, Create)]
    assert names == [f"flexinfer-benchmark-results{suffix}" for suffix in ("", "-2", "-3")]
    assert sorted(key for effect in effects if isinstance(effect, Create) for key in effect.body["data"]) == [
        f"k{number}" for number in range(6)
    ]


def test_a_changed_result_replaces_its_entry_and_nothing_else_is_written(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.run()
    known = next(iter(sim.view.fleet.results.values()))
    sim.log.clear()
    sim.now += 5
    sim.tell(replace(known, tokens_per_second=77.0))
    sim.settle()

    writes = [e for e in sim.writes() if e.resource.plural == "configmaps"]
    assert len(writes) == 1
    assert isinstance(writes[0], Patch)
    assert list(writes[0].body["data"]) == [known.key]
    assert sim.status()["tokensPerSecond"] == "77.0"


def test_a_deleted_record_is_written_again(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.run()
    sim.delete(("configmaps", "flexinfer-system", "flexinfer-benchmark-results"))
    sim.settle()

    assert ("configmaps", "flexinfer-system", "flexinfer-benchmark-results") in sim.objects
