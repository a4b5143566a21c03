"""A pod that waits for its volumes says nothing; what its kubelet says of it reaches the model."""

from typing import Any

import pytest

from flexinfer.core.lifecycle.mounting import MOUNTS_KEPT

OFF = {"enabled": False}
NOTE = 'MountVolume.SetUp failed for volume "models" : hostPath type check failed: /models is not a directory'


def waiting(sim: Any, address: Any, note: str = NOTE, name: str = "e1") -> None:
    """The pod has a node and no container runs; the kubelet says why."""
    pod = {**sim.objects[address], "spec": {**sim.objects[address]["spec"], "nodeName": "n1"}}
    state = {"waiting": {"reason": "PodInitializing"}}
    pod["status"] = {"phase": "Pending", "containerStatuses": [{"name": "engine", "image": "i", "state": state}]}
    sim.store(address, pod)
    regarding = {"kind": "Pod", "namespace": address[1], "name": address[2], "uid": pod["metadata"]["uid"]}
    meta = {"name": name, "namespace": address[1]}
    sim.store(("events", address[1], name), {"metadata": meta, "regarding": regarding, "note": note})
    sim.settle()


def test_a_folder_that_is_not_there_is_a_condition_and_an_event_with_a_remedy(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark=OFF)
    sim.settle()
    waiting(sim, sim.pods()[0])
    found = sim.condition("Available")

    assert found["reason"] == "SourceNotFound"
    assert found["message"] == (
        f"node n1 does not have the folder of /models/tiny-1b.gguf: {NOTE}; put the weights there, or name nodes that "
        "have them under nodeSelector"
    )
    assert any(code == "SourceNotFound" and found["message"] in text for code, text in sim.notes())
    assert sim.status()["phase"] == "Pending", "the kubelet tries again"


def test_other_volumes_are_told_in_the_words_of_the_kubelet(one_node: Any) -> None:
    sim = one_node
    sim.apply(model="pvc://weights/m.gguf", benchmark=OFF)
    sim.settle()
    [address] = sim.pods()
    waiting(sim, address, 'MountVolume.MountDevice failed for volume "pvc-1" : rpc error')
    found = sim.condition("Available")

    assert found["reason"] == "MountFailed"
    assert found["message"].endswith(f'volume "pvc-1" : rpc error; see kubectl describe pod {address[2]}')


def test_it_is_over_when_a_container_starts_or_the_event_goes(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark=OFF)
    sim.settle()
    [address] = sim.pods()
    waiting(sim, address)
    sim.set_pod(address, initContainerStatuses=[{"name": "fetch", "image": "i", "state": {"running": {}}}])
    sim.settle()
    assert sim.condition("Available")["reason"] == "Starting"

    waiting(sim, address)
    sim.set_pod(address, initContainerStatuses=[])
    sim.settle()
    assert sim.condition("Available")["reason"] == "SourceNotFound"
    sim.delete(("events", "default", "e1"))
    sim.dirty |= set(sim.view.models)
    sim.settle()
    assert sim.condition("Available")["reason"] == "Starting"


def test_a_benchmark_does_not_wait_for_its_deadline(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.settle()
    waiting(sim, sim.pods(bench=True)[0])
    assert "waits: node n1 does not have the folder" in sim.condition("BenchmarkComplete")["message"]

    sim.pass_time(31)
    found = sim.condition("BenchmarkComplete")
    assert found["reason"] == "BenchmarkFailed"
    assert "put the weights there" in found["message"]
    assert (
        "BenchmarkFailed",
        f"cpu-test-cpu-2t: {found['message'].partition(': ')[2].partition('; deployed')[0]}",
    ) in (sim.notes())


@pytest.mark.parametrize("event", [{}, {"regarding": {}}, {"regarding": {"uid": "x"}}, {"regarding": None}])
def test_events_of_nobody_change_nothing(one_node: Any, event: Any) -> None:
    sim = one_node
    sim.apply(benchmark=OFF)
    sim.settle()
    sim.store(("events", "default", "e9"), {"metadata": {"name": "e9", "namespace": "default"}, **event})
    sim.delete(("events", "default", "e9"))
    sim.settle()

    assert sim.view.mounts == {}


def test_only_so_many_are_kept(one_node: Any) -> None:
    sim = one_node
    for number in range(MOUNTS_KEPT + 5):
        meta = {"name": f"e{number}", "namespace": "default"}
        sim.store(("events", "default", meta["name"]), {"metadata": meta, "regarding": {"uid": f"u{number}"}})

    assert len(sim.view.mounts) == MOUNTS_KEPT
    assert "u0" not in sim.view.mounts
