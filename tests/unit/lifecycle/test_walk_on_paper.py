"""A model from create to delete, decided on paper."""

from typing import Any

from flexinfer.contracts.events import ModelPhase
from flexinfer.core.effects import Publish


def _phases(sim: Any) -> list[str]:
    found = [e.data.phase for e in sim.log if isinstance(e, Publish) and isinstance(e.data, ModelPhase)]
    return [phase for index, phase in enumerate(found) if index == 0 or found[index - 1] != phase]


def test_a_model_is_measured_then_deployed_then_serves(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.run()

    assert _phases(sim) == ["Pending", "Benchmarking", "Deploying", "Running"]
    status = sim.status()
    assert (status["phase"], status["readyReplicas"], status["tokensPerSecond"]) == ("Running", 1, "50.0")
    assert status["endpoints"][0]["deviceClass"] == "cpu-test-cpu-2t"
    assert status["benchmarks"][0]["tokensPerSecond"] == 50.0
    assert sim.endpoint().endpoints[0].tokens_per_second == 50.0
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Available": "True",
        "Progressing": "False",
        "ReplicaFailure": "False",
        "BenchmarkComplete": "True",
        "NodeSelected": "True",
    }


def test_deleting_stops_traffic_removes_everything_and_keeps_the_result(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.run()
    sim.delete(("modeldeployments", "default", "m"))
    sim.settle()

    assert all(entry.state == "draining" for entry in sim.endpoint().endpoints)
    assert sim.status()["phase"] == "Terminating"

    sim.pass_time(5)

    assert {address[0] for address in sim.objects} == {"nodes", "configmaps"}
    assert sim.endpoint() is None
    assert sim.phase_event() is None
    assert [a[2] for a in sim.objects if a[0] == "configmaps"] == ["flexinfer-benchmark-results"]


def test_the_next_identical_model_skips_the_benchmark(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.run()
    sim.delete(("modeldeployments", "default", "m"))
    sim.settle().pass_time(5)
    sim.log.clear()

    sim.apply()
    sim.run()

    assert _phases(sim) == ["Pending", "Deploying", "Running"]
    assert sim.status()["tokensPerSecond"] == "50.0"


def test_nothing_is_written_once_it_runs(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.run()
    sim.log.clear()

    sim.pass_time(200)
    sim.restart()
    sim.settle()
    sim.snapshot()
    sim.settle()

    assert sim.log == []


def test_a_model_without_benchmark_costs_at_most_fourteen_writes(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark={"enabled": False})
    sim.run()

    assert sim.status()["phase"] == "Running"
    assert len(sim.writes()) + len(sim.notes()) <= 14
