"""The init step that fetches: what it gets, and what people see when it cannot."""

from typing import Any

import pytest

from flexinfer.config.common import env_name
from flexinfer.config.fetch import FetchSettings
from flexinfer.contracts.events import CachedModel
from flexinfer.contracts.labels import DEFAULT_PREFIX
from flexinfer.core.hardware.projection import cache_labels
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.fetching.entries import entry_of
from flexinfer.core.lifecycle.fetching.failures import REMEDIES, FetchFailed, decode, encode
from flexinfer.core.lifecycle.fit import Option
from flexinfer.core.lifecycle.job import Run, bench_job
from flexinfer.core.lifecycle.manifests import deployment
from flexinfer.core.lifecycle.pods import Placement, engine_pod
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.lifecycle.reading import describe

FETCHING = Policy(fetch_image="flexinfer:1", node_cache="/var/lib/flexinfer/models")
OFF = {"enabled": False}


def pod(source: str, backend: str = "vllm", policy: Policy = FETCHING, **spec: Any) -> Any:
    found = describe(
        {
            "kind": "Model",
            "metadata": {"name": "m", "namespace": "d", "uid": "u1"},
            "spec": {"backend": backend, "source": source, **spec},
        }
    )
    assert isinstance(found, Description), found
    return engine_pod(found, Placement("NVIDIA", 1), "img", policy)


def test_without_an_image_engines_fetch_their_own() -> None:
    plain = pod("hf://o/r", policy=Policy(), sourceSecret="hub")

    assert plain.prepare == ()
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    assert token in plain.container["env"]


def test_the_secret_is_mounted_by_reference_and_may_be_missing() -> None:
    found = pod("hf://o/r", sourceSecret="hub")
    [step] = found.prepare

    assert {"name": "source-secret", "secret": {"secretName": "hub", "optional": True}} in found.volumes
    assert {"name": "FLEXINFER_SECRET_NAME", "value": "hub"} in step["env"]
    assert "HF_TOKEN" not in str(found.container)


@pytest.mark.parametrize(
    ("storage", "volume", "user"),
    [
        (None, {"hostPath": {"path": "/var/lib/flexinfer/models", "type": "DirectoryOrCreate"}}, 0),
        ({"pvcName": "c"}, {"persistentVolumeClaim": {"claimName": "c"}}, None),
        ({"strategy": "Memory", "size": "8Gi"}, {"emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}, None),
    ],
)
def test_where_the_cache_is(storage: Any, volume: Any, user: int | None) -> None:
    found = pod("hf://o/r", **({"cache": storage} if storage else {}))

    assert found.volumes[0] == {"name": "models", **volume}
    assert found.prepare[0]["securityContext"].get("runAsUser") == user


def affinity(**spec: Any) -> Any:
    found = describe(
        {
            "kind": "Model",
            "metadata": {"name": "m", "namespace": "d", "uid": "u1"},
            "spec": {"backend": "vllm", "source": "hf://o/r", **spec},
        }
    )
    assert isinstance(found, Description), found
    run = Run("k", Option("c", "", "NVIDIA", 1, ("n1", "n2")), "img")
    job = bench_job(found, run, FETCHING)["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    deployed = deployment(found, Placement("NVIDIA", 1), "img", 2, FETCHING)["spec"]["template"]["spec"]
    return job, deployed.get("affinity", {}).get("nodeAffinity", {}), found


def test_benchmark_and_replicas_rather_go_where_the_model_is() -> None:
    job, replicas, found = affinity()
    [term] = replicas["preferredDuringSchedulingIgnoredDuringExecution"]
    [wish] = term["preference"]["matchExpressions"]
    here = CachedModel(entry=entry_of(found.source, "folder").name, source="hf://o/r", bytes=1)

    assert wish == {"key": next(iter(cache_labels([here], DEFAULT_PREFIX))), "operator": "Exists"}
    assert job["preferredDuringSchedulingIgnoredDuringExecution"] == [term]
    assert "requiredDuringSchedulingIgnoredDuringExecution" in job
    assert set(replicas) == {"preferredDuringSchedulingIgnoredDuringExecution"}


def test_a_claim_is_as_near_from_everywhere() -> None:
    job, replicas, _ = affinity(cache={"pvcName": "c"})

    assert replicas == {}
    assert set(job) == {"requiredDuringSchedulingIgnoredDuringExecution"}


def test_every_variable_of_the_step_is_one_it_knows() -> None:
    known = {env_name(name, info) for name, info in FetchSettings.model_fields.items()}
    proxied = {"env": {"HTTPS_PROXY": "http://proxy", "HF_ENDPOINT": "http://mirror", "OTHER": "1"}}
    found = pod("hf://o/r", sourceSecret="hub", config=proxied)

    names = {entry["name"] for entry in found.prepare[0]["env"]}
    assert names - {"HTTPS_PROXY"} <= known
    assert "OTHER" not in names
    assert {"HTTPS_PROXY", "HF_ENDPOINT"} <= names


def test_two_models_of_one_source_share_an_entry_and_others_do_not() -> None:
    entries = [
        pod(source, backend).annotations["flexinfer.ai/cache-entry"]
        for source, backend in [("hf://o/r", "vllm"), ("hf://o/r", "sglang"), ("hf://o/r", "llamacpp"),
                                ("hf://o/r@v2", "vllm")]
    ]  # fmt: skip

    assert entries[0] == entries[1]
    assert len(set(entries)) == 3


def test_adapters_are_fetched_too() -> None:
    found = pod("hf://o/r", config={"loraAdapters": [{"name": "sql", "source": "hf://o/lora"}]})
    steps, entries = found.prepare, found.annotations["flexinfer.ai/cache-entry"].split(",")

    assert [(step["name"], step["args"]) for step in steps] == [("fetch", ["hf://o/r"]), ("fetch-1", ["hf://o/lora"])]
    assert f"sql=/models/entries/{entries[1]}" in found.container["args"]


def test_weights_in_place_are_looked_at() -> None:
    [step] = pod("pvc://weights/llama").prepare

    assert step["args"] == ["/models/llama"]
    assert step["volumeMounts"] == [{"name": "models", "mountPath": "/models", "readOnly": True}]
    assert "runAsUser" not in step["securityContext"]


def ended(reason: str, **entry: Any) -> dict[str, Any]:
    message = encode(FetchFailed(reason, "hub answers 404"))
    return {"name": "fetch", "image": "i", "state": {"terminated": {"exitCode": 1, "message": message}}, **entry}


@pytest.mark.parametrize("reason", sorted(REMEDIES))
def test_a_failed_fetch_is_a_condition_and_an_event_with_a_remedy(one_node: Any, reason: str) -> None:
    sim = one_node
    sim.apply(benchmark=OFF)
    sim.settle()
    sim.set_pod(sim.pods()[0], phase="Pending", initContainerStatuses=[ended(reason)])
    sim.settle()
    available = sim.condition("Available")

    assert available["reason"] == reason
    assert available["message"] == f"hub answers 404; {REMEDIES[reason]}"
    assert any(code == reason and available["message"] in text for code, text in sim.notes())
    assert sim.status()["phase"] == ("Failed" if FetchFailed(reason, "").final else "Pending")


def test_a_fetch_that_is_tried_again_still_says_why(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark=OFF)
    sim.settle()
    last = ended("SourceUnavailable")["state"]
    again = {"name": "fetch", "image": "i", "state": {"running": {}}, "lastState": last}
    sim.set_pod(sim.pods()[0], phase="Pending", initContainerStatuses=[again])
    sim.settle()
    assert sim.condition("Available")["reason"] == "SourceUnavailable"

    done = {"name": "fetch", "image": "i", "ready": True, "state": {"terminated": {"exitCode": 0}}, "lastState": last}
    sim.set_pod(sim.pods()[0], phase="Pending", initContainerStatuses=[done])
    sim.settle()
    assert sim.condition("Available")["reason"] == "Starting"


def test_a_benchmark_that_could_not_fetch_says_why(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.settle()
    [address] = sim.pods(bench=True)
    sim.set_pod(address, phase="Failed", initContainerStatuses=[ended("SourceNotFound")])
    sim.settle()
    [failure] = sim.view.failed_runs.values()

    assert (failure.reason, failure.model) == ("SourceNotFound", "m")
    assert failure.remedy == REMEDIES["SourceNotFound"]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"fetch": "Other"}', '{"fetch": 1}', "{}\n", '{"fetch": ["x"]}'])
def test_other_termination_messages_are_none(text: str) -> None:
    assert decode(text) is None
