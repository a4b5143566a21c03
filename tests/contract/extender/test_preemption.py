"""The preempt verb vetoes evictions that would not help, in both shapes of the request."""

import pytest

from flexinfer.contracts.kubernetes import KubeDelta
from flexinfer.core.fleet.fold import fold
from tests.contract.extender import go_rules
from tests.contract.extender.conftest import NOW

ONE_GPU = {"limits": {"nvidia.com/gpu": "1"}}
POD = {
    "metadata": {"name": "urgent", "namespace": "default", "uid": "urgent"},
    "spec": {"containers": [{"name": "c", "resources": ONE_GPU}]},
}


@pytest.fixture
def full(extender):
    """gpu-a and gpu-b each have their only card taken by a pod of the same name."""
    for node in ("gpu-a", "gpu-b"):
        body = {
            "metadata": {"name": f"on-{node}", "namespace": "default", "uid": f"on-{node}"},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": ONE_GPU}]},
        }
        fold(extender.view, KubeDelta(plural="pods", action="ADDED", object=body), NOW)
    return extender


def by_uid(**victims):
    return {node.replace("_", "-"): {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}
            for node, uids in victims.items()}  # fmt: skip


async def test_a_node_stays_exactly_if_its_victims_make_room(full):
    asked = by_uid(gpu_a=["on-gpu-a"], gpu_b=["somebody-else"], cpu_c=["any"])

    answer = await full.post("/preempt", {"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": asked})

    assert go_rules.preemption(answer.body, set(asked)) == {"gpu-a": asked["gpu-a"]}


async def test_whole_victims_are_answered_by_uid(full):
    victims = {"gpu-a": {"Pods": [{"metadata": {"name": "on-gpu-a", "uid": "on-gpu-a"}}], "NumPDBViolations": 1}}

    answer = await full.post("/preempt", {"Pod": POD, "NodeNameToVictims": victims, "NodeNameToMetaVictims": None})

    assert answer.json == {"NodeNameToMetaVictims": {"gpu-a": {"Pods": [{"UID": "on-gpu-a"}], "NumPDBViolations": 1}}}


@pytest.mark.parametrize("victims", [{"Pods": [], "NumPDBViolations": 0}, {"Pods": None, "NumPDBViolations": 0}, None])
async def test_candidates_without_victims(full, extender, victims):
    full_answer = await full.post("/preempt", {"Pod": POD, "NodeNameToMetaVictims": {"gpu-a": victims}})

    assert full_answer.json == {"NodeNameToMetaVictims": {}}


async def test_nodes_that_pass_as_they_are_stay(extender):
    answer = await extender.post("/preempt", {"Pod": POD, "NodeNameToMetaVictims": {"gpu-a": None}})

    assert answer.json == {"NodeNameToMetaVictims": {"gpu-a": {"Pods": [], "NumPDBViolations": 0}}}


async def test_reasons_evictions_could_cure_are_kept_apart(full):
    answer = await full.post("/filter", {"Pod": POD, "NodeNames": ["gpu-a", "cpu-c"]})

    assert answer.json["FailedNodes"] == {"gpu-a": "flexinfer: no free accelerator"}
    assert set(answer.json["FailedAndUnresolvableNodes"]) == {"cpu-c"}
