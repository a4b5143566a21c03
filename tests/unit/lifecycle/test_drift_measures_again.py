"""An engine slower than its result has the class measured again, beside serving and not in a loop."""

from typing import Any

from flexinfer.contracts.events import BenchDrifted
from flexinfer.core.lifecycle.benchmarks import IDLE_SECONDS
from flexinfer.core.lifecycle.fold_results import REMEASURE_SECONDS


def jobs(sim: Any) -> list[str]:
    return sorted(a[2] for a in sim.objects if a[0] == "jobs")


def unfinished(sim: Any) -> list[str]:
    return sorted(a[2] for a, o in sim.objects.items() if a[0] == "jobs" and not o.get("status"))


def drift(sim: Any, *, drifted: bool = True) -> None:
    key = next(iter(sim.view.fleet.results))
    sim.tell(
        BenchDrifted(
            key=key, namespace="default", model="m", pod="m-0", node="n1", device_class="c", drifted=drifted, ratio=0.7,
            tokens_per_second=35.0, expected_tokens_per_second=50.0,
        )
    )  # fmt: skip
    sim.settle()


def test_drift_of_an_old_result_is_measured_again(one_node: Any) -> None:
    sim = one_node
    sim.apply(minReplicas=1)
    sim.run().pass_time(REMEASURE_SECONDS + 10)
    drift(sim)
    sim.pass_time(2 * IDLE_SECONDS)

    assert len(unfinished(sim)) == 1
    assert sim.status()["phase"] == "Running"
    assert sim.status()["benchmarks"][0]["tokensPerSecond"] == 50.0
    sim.tell(sim.result(35.0))
    sim.finish_job()
    sim.settle().pass_time(10)
    assert sim.status()["benchmarks"][0]["tokensPerSecond"] == 35.0
    assert unfinished(sim) == []
    assert not [o for a, o in sim.objects.items() if "claim" in str(o.get("metadata", {}).get("labels", {}))]


def test_a_fresh_result_is_not_measured_again(one_node: Any) -> None:
    sim = one_node
    sim.apply(minReplicas=1)
    sim.run().pass_time(REMEASURE_SECONDS / 2)
    drift(sim)
    sim.pass_time(2 * IDLE_SECONDS)

    assert unfinished(sim) == []


def test_the_end_of_a_drift_starts_nothing(one_node: Any) -> None:
    sim = one_node
    sim.apply(minReplicas=1)
    sim.run().pass_time(REMEASURE_SECONDS + 10)
    drift(sim, drifted=False)
    sim.pass_time(2 * IDLE_SECONDS)

    assert unfinished(sim) == []


def test_drift_of_a_result_nobody_knows_is_no_error(one_node: Any) -> None:
    sim = one_node
    sim.apply(minReplicas=1)
    sim.run()
    sim.tell(
        BenchDrifted(
            key="unheard-of", namespace="default", model="m", pod="m-0", node="n1", device_class="c", drifted=True,
            ratio=0.7, tokens_per_second=35.0, expected_tokens_per_second=50.0,
        )
    )  # fmt: skip
    sim.settle()
    assert sim.status()["phase"] == "Running"
