"""Reasons a person can act on: pods that cannot run, hardware that is missing, names that are taken."""

from itertools import pairwise
from typing import Any

import pytest

from flexinfer.contracts.events import Candidate, PlacementDecided
from flexinfer.core.effects import Apply
from flexinfer.core.lifecycle.fold import BACKOFF_CEILING

OFF = {"enabled": False}


def engine(**state: Any) -> dict[str, Any]:
    return {"name": "engine", "image": "img:1", "ready": False, "restartCount": 0, **state}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


@pytest.mark.parametrize(
    ("entry", "phase", "reason", "sentence"),
    [
        (
            engine(state=waiting("ImagePullBackOff", "not found")),
            "Failed", "ImagePullFailed", "image img:1 cannot be pulled: not found; check spec.image",
        ),
        (engine(state=waiting("ErrImagePull", "timeout")), "Pending", "ImagePullFailed", "cannot be pulled: timeout"),
        (
            engine(state=waiting("CreateContainerConfigError", 'secret "x" not found')),
            "Failed", "ContainerConfigError", 'secret "x" not found; check spec.env',
        ),
        (
            engine(state=waiting("CrashLoopBackOff"), restartCount=4, lastState={"terminated": {"exitCode": 2}}),
            "Failed", "CrashLoop", "ends with exit code 2; see kubectl logs",
        ),
        (
            engine(state={"running": {}}, restartCount=3, lastState={"terminated": {"exitCode": 1, "message": "a\nb"}}),
            "Failed", "CrashLoop", "ends with exit code 1 (b)",
        ),
        (
            engine(state=waiting("CrashLoopBackOff"), lastState={"terminated": {"reason": "OOMKilled"}}),
            "Failed", "OutOfMemory", "raise spec.resources.limits.memory",
        ),
        (engine(state=waiting("ContainerCreating")), "Deploying", "Starting", "0 of 1 replica(s) are ready"),
        (
            engine(state={"running": {}}, restartCount=1, lastState={"terminated": {"exitCode": 1}}),
            "Deploying", "Starting", "0 of 1 replica(s) are ready",
        ),
    ],
)  # fmt: skip
def test_a_pod_that_does_not_start(one_node: Any, entry: Any, phase: str, reason: str, sentence: str) -> None:
    sim = one_node
    sim.apply(benchmark=OFF)
    sim.settle()
    sim.set_pod(sim.pods()[0], phase="Pending", containerStatuses=[entry])
    sim.settle()

    available = sim.condition("Available")
    assert (sim.status()["phase"], available["reason"]) == (phase, reason)
    assert sentence in available["message"]
    trouble = reason != "Starting"
    assert (sim.condition("ReplicaFailure")["status"] == "True") == trouble
    if phase == "Failed":
        assert any(r == reason for r, _ in sim.notes())
        assert sim.endpoint().failure


def test_a_failed_model_recovers_when_its_cause_goes_away(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark=OFF)
    sim.settle()
    sim.set_pod(sim.pods()[0], containerStatuses=[engine(state=waiting("ImagePullBackOff"))])
    sim.settle()
    assert sim.status()["phase"] == "Failed"

    sim.run_pod(sim.pods()[0])
    sim.settle()
    assert sim.status()["phase"] == "Running"
    assert sim.endpoint().failure == ""


def test_an_unschedulable_pod_is_pending_and_says_why(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark=OFF)
    sim.settle()
    text = "0/1 nodes are available: 1 flexinfer: insufficient free VRAM."
    sim.set_pod(sim.pods()[0], conditions=[{"type": "PodScheduled", "status": "False", "message": text}])
    sim.settle()

    assert (sim.status()["phase"], sim.condition("Available")["message"]) == ("Pending", text)
    assert (sim.condition("NodeSelected")["status"], sim.condition("NodeSelected")["reason"]) == (
        "False", "Unschedulable",
    )  # fmt: skip
    assert sim.condition("ReplicaFailure")["status"] == "False"
    assert sim.endpoint().failure == ""  # a request may still wait for a device


def test_one_replica_that_serves_is_running_whatever_the_others_do(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark=OFF, replicas=2)
    sim.settle()
    sim.run_pod(sim.pods()[0])
    sim.set_pod(sim.pods()[1], containerStatuses=[engine(state=waiting("ImagePullBackOff"))])
    sim.settle()

    assert sim.status()["phase"] == "Running"
    assert sim.condition("ReplicaFailure")["reason"] == "ImagePullFailed"


def test_a_quota_on_pods_is_a_condition(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark=OFF)
    sim.settle()
    address = ("deployments", "default", "m")
    message = 'pods "m-1" is forbidden: exceeded quota: small'
    body = dict(sim.objects[address])
    body["status"] = {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": message}]}
    sim.controllers = False
    sim.store(address, body)
    for pod in sim.pods():
        sim.delete(pod)
    sim.settle()

    assert (sim.status()["phase"], sim.condition("ReplicaFailure")["reason"]) == ("Pending", "QuotaExceeded")
    assert "exceeded quota: small" in sim.condition("ReplicaFailure")["message"]


def test_a_refusal_by_quota_is_tried_again_ever_more_slowly(one_node: Any) -> None:
    sim = one_node
    sim.refuse = lambda e: "Forbidden" if isinstance(e, Apply) and e.resource.plural == "deployments" else ""
    sim.apply(benchmark=OFF)
    sim.settle()
    assert (sim.status()["phase"], sim.condition("ReplicaFailure")["reason"]) == ("Pending", "Forbidden")

    tries = []
    for _ in range(3600):
        before = len([e for e in sim.log if isinstance(e, Apply)])
        sim.pass_time(1)
        if len([e for e in sim.log if isinstance(e, Apply)]) > before:
            tries.append(sim.now)
    waits = [b - a for a, b in pairwise(tries)]
    assert waits[:4] == [2, 4, 8, 16]
    assert max(waits) <= BACKOFF_CEILING + 1

    sim.refuse = lambda _e: ""
    sim.pass_time(BACKOFF_CEILING + 1)
    sim.run()
    assert sim.status()["phase"] == "Running"


def test_a_changed_spec_does_not_wait_for_the_backoff_of_the_old_one(one_node: Any) -> None:
    sim = one_node
    sim.refuse = lambda e: "Invalid" if isinstance(e, Apply) else ""
    sim.apply(benchmark=OFF)
    sim.settle()
    assert (sim.status()["phase"], sim.condition("Available")["reason"]) == ("Failed", "Rejected")

    sim.refuse = lambda _e: ""
    sim.apply(benchmark=OFF, args=["--threads", "1"])
    sim.run()
    assert sim.status()["phase"] == "Running"


def test_somebody_elses_deployment_of_that_name_is_left_alone(one_node: Any) -> None:
    sim = one_node
    theirs = {
        "kind": "Deployment",
        "metadata": {
            "name": "m", "namespace": "default", "labels": {},
            "ownerReferences": [{"uid": "other", "controller": True, "kind": "Thing", "name": "t"}],
        },
        "spec": {"replicas": 0, "template": {}},
    }  # fmt: skip
    sim.controllers = False
    sim.store(("deployments", "default", "m"), theirs)
    sim.apply(benchmark=OFF)
    sim.settle()

    assert (sim.status()["phase"], sim.condition("Available")["reason"]) == ("Failed", "NameTaken")
    assert "rename the model or that object" in sim.condition("Available")["message"]
    assert sim.objects[("deployments", "default", "m")]["spec"] == {"replicas": 0, "template": {}}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"gpu": {"vendor": "amd"}}, "1× GPU vendor does not match (gpu.vendor is amd)"),
        ({"gpu": {"vendor": "nvidia", "count": 4}}, "1× too few GPUs on one node (gpu.count is 4)"),
        ({"gpu": {"vendor": "nvidia", "arch": "sm_100"}}, "GPU architecture does not match (gpu.arch is sm_100)"),
        (
            {"gpu": {"vendor": "nvidia", "vramEstimateMB": 90000}},
            "1× GPU memory is too small (gpu.vramEstimateMB is 90000)",
        ),
        (
            {"model": "hf://o/huge-70b:Q8_0", "gpu": {"vendor": "nvidia"}},
            "(estimated; set it if that is wrong)",
        ),
        ({"nodeSelector": {"zone": "b"}}, "1× nodeSelector does not match (see nodeSelector)"),
    ],
)
def test_a_demand_nothing_in_the_fleet_can_meet(sim: Any, gpu: Any, spec: dict[str, Any], sentence: str) -> None:
    sim.node("n1", gpu())
    sim.apply(**spec)
    sim.settle()

    available = sim.condition("Available")
    assert (sim.status()["phase"], available["reason"]) == ("Pending", "NoMatchingHardware")
    assert sentence in available["message"]
    assert sentence in sim.endpoint().failure
    assert not [a for a in sim.objects if a[0] in {"jobs", "deployments"}]


def test_it_goes_on_when_the_hardware_arrives(sim: Any, gpu: Any) -> None:
    sim.apply(gpu={"vendor": "nvidia", "count": 1})
    sim.settle()
    assert (sim.status()["phase"], sim.condition("Available")["reason"]) == ("Pending", "WaitingForHardware")

    sim.node("n1", gpu())
    sim.run()
    assert sim.status()["phase"] == "Running"


def test_without_any_word_of_the_fleet_the_scheduler_decides_alone_in_the_end(sim: Any) -> None:
    sim.bus_up = False
    sim.restart()
    sim.apply(gpu={"vendor": "nvidia", "count": 1})
    sim.settle()
    sim.pass_time(299)
    assert sim.status()["phase"] == "Pending"

    sim.pass_time(2)
    assert sim.status()["phase"] == "Deploying"


def test_no_image_for_the_only_vendor(sim: Any, gpu: Any) -> None:
    sim.node("n1", gpu("AMD Instinct MI210", vendor="AMD", arch="gfx90a"))
    sim.apply(backend="tensorrt-llm", model="hf://o/r", gpu={"vendor": "amd"})
    sim.settle()

    assert (sim.status()["phase"], sim.condition("Available")["reason"]) == ("Failed", "ImageMissing")
    assert "spec.image: tensorrt-llm has no default image for AMD" in sim.condition("Available")["message"]


def test_an_invalid_spec_fails_with_the_field_and_the_loop_goes_on(one_node: Any) -> None:
    sim = one_node
    sim.apply("bad", backend="mlc-llm")
    sim.apply("m")
    sim.run()

    assert sim.status("bad")["phase"] == "Failed"
    assert sim.condition("Available", "bad")["message"].startswith("spec.backend: 'mlc-llm' is not supported")
    assert any(r == "UnknownBackend" for r, _ in sim.notes())
    assert sim.status("m")["phase"] == "Running"


def test_a_spec_that_becomes_invalid_keeps_what_runs(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.run()
    before = sim.endpoint()
    sim.apply(backend="nope")
    sim.settle()

    assert sim.status()["phase"] == "Failed"
    assert sim.endpoint() == before
    assert ("deployments", "default", "m") in sim.objects

    sim.apply()
    sim.run()
    assert sim.status()["phase"] == "Running"


def test_the_older_of_two_objects_keeps_a_name(one_node: Any) -> None:
    sim = one_node
    sim.apply("same")
    sim.run()
    sim.now += 10
    sim.apply("same", kind="Model")
    sim.settle()

    assert sim.status("same")["phase"] == "Running"
    assert sim.status("same", "Model")["phase"] == "Failed"
    text = sim.condition("Available", "same", "Model")["message"]
    assert text == "metadata.name: a ModelDeployment of this name was there first; rename one of them"
    assert sim.phase_event("same").kind == "ModelDeployment"

    sim.delete(("modeldeployments", "default", "same"))
    sim.settle().pass_time(5)
    sim.run()
    assert sim.status("same", "Model")["phase"] == "Running"


def test_an_alias_belongs_to_whoever_had_it_first(one_node: Any) -> None:
    sim = one_node
    sim.apply("a", litellm={"aliases": ["gpt-4", "b"]})
    sim.now += 10
    sim.apply("b", litellm={"aliases": ["gpt-4", "mine"]})
    sim.settle()

    assert sim.endpoint("a").aliases == ("gpt-4",)
    assert sim.endpoint("b").aliases == ("mine",)
    assert any(r == "DuplicateAlias" and "'gpt-4' belongs to default/a already" in t for r, t in sim.notes())

    sim.delete(("modeldeployments", "default", "a"))
    sim.settle().pass_time(5)
    assert sim.endpoint("b").aliases == ("gpt-4", "mine")


def test_fields_without_effect_are_said_once(one_node: Any) -> None:
    sim = one_node
    sim.apply(gpuGroupRef="g")
    sim.run()
    sim.restart()
    sim.settle()

    found = [text for reason, text in sim.notes() if reason == "FieldIgnored"]
    assert len(found) == 1
    assert found[0].startswith("spec.gpuGroupRef has no effect: ")


def test_the_chosen_node_is_shown_with_class_speed_and_score(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.settle()
    sim.measure()
    name = sim.pods()[0][2]
    sim.tell(
        PlacementDecided(
            namespace="default", pod=name, pod_uid="x", outcome="ranked", demand={},
            candidates=(Candidate(node="n1", score=9, sum=1.0),),
        )
    )  # fmt: skip
    sim.run()

    assert sim.condition("NodeSelected")["message"] == (
        f"{name} on n1 (cpu-test-cpu-2t, 50.0 tokens/s, score 9 of 10); 1881 MB estimated by its name"
    )


@pytest.mark.parametrize("kind", ["deployments", "services"])
def test_a_child_that_lost_its_owner_is_taken_back(one_node: Any, kind: str) -> None:
    sim = one_node
    sim.apply(benchmark=OFF)
    sim.run()
    address = (kind, "default", "m")
    before = sim.objects[address]["metadata"]
    bare = {**sim.objects[address], "metadata": {**before, "ownerReferences": []}}
    sim.store(address, bare)
    sim.settle()

    assert sim.objects[address]["metadata"]["ownerReferences"] == before["ownerReferences"]
    assert sim.objects[address]["metadata"]["uid"] == before["uid"]
