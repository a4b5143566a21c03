"""What is said about a model when it is written."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.core.lifecycle.admission import LONGEST_WARNING, completed, judge


def deployment(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "ai.flexinfer/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": "m"},
        "spec": {"backend": "vllm", "model": "hf://Qwen/Qwen3-8B", **spec},
    }  # fmt: skip


def model(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "ai.flexinfer/v1alpha2", "kind": "Model", "metadata": {"name": "m"},
        "spec": {"backend": "vllm", "source": "hf://Qwen/Qwen3-8B", **spec},
    }  # fmt: skip


@pytest.mark.parametrize("obj", [deployment(), model()])
def test_a_model_that_can_work_passes_without_a_word(obj: dict[str, Any]) -> None:
    verdict = judge(obj)

    assert (verdict.refusal, verdict.warnings) == ("", ())


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        (deployment(backend="vlm"), "spec.backend: 'vlm' is not supported; use one of"),
        (deployment(model="ollama://llama3:8b"), "vllm cannot load ollama:// sources"),
        (deployment(replicas=-1), "spec.replicas"),
        (model(backend="custom"), "spec.image"),
        (model(serverless={"idleTimeout": "soon"}), "is not a duration"),
        ({"kind": "Model", "metadata": {"name": "m"}, "spec": "none"}, "spec"),
    ],
)
def test_what_cannot_work_is_refused_with_the_field_and_the_remedy(obj: dict[str, Any], words: str) -> None:
    assert words in judge(obj).refusal


def test_fields_without_effect_are_named() -> None:
    verdict = judge(deployment(gpuGroupRef="a", replicsa=2))

    assert verdict.refusal == ""
    assert any(
        line.startswith("spec.gpuGroupRef has no effect: GPU groups do not exist here") for line in verdict.warnings
    )
    assert any("spec.replicsa" in line for line in verdict.warnings)
    assert all(len(line) <= LONGEST_WARNING for line in verdict.warnings)


def test_an_update_that_leaves_the_spec_alone_passes_whatever_the_spec() -> None:
    old = deployment(backend="vlm")
    new = copy.deepcopy(old)
    new["metadata"]["finalizers"] = []

    assert judge(new, old).refusal == ""
    assert judge(new).refusal != ""


def test_what_is_being_deleted_passes() -> None:
    obj = deployment(backend="vlm")
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert judge(obj, deployment()).refusal == ""


def test_a_name_that_the_server_makes_is_no_problem() -> None:
    obj = deployment()
    obj["metadata"] = {"generateName": "m-"}

    assert judge(obj).refusal == ""


def test_other_kinds_are_not_ours() -> None:
    assert judge({"kind": "Pod", "spec": {}}).refusal == ""
    assert completed({"kind": "Pod", "spec": {"a": 1}}) == {"a": 1}


def test_defaults_are_those_of_the_crd() -> None:
    spec = completed(deployment())

    assert (spec["replicas"], spec["minReplicas"], spec["idleTimeoutSeconds"]) == (1, 0, 300)
    assert spec["gpu"]["vendor"] == "auto"
    assert completed(model())["serverless"]["idleTimeout"] == "5m"


def test_what_was_written_stays_and_nothing_is_done_twice() -> None:
    obj = deployment(replicas=3, gpu={"vendor": "amd"})
    spec = completed(obj)

    assert (spec["replicas"], spec["gpu"]["vendor"]) == (3, "amd")
    assert completed({**obj, "spec": spec}) == spec
    assert obj["spec"] == {"backend": "vllm", "model": "hf://Qwen/Qwen3-8B", "replicas": 3, "gpu": {"vendor": "amd"}}


def test_the_earlier_place_of_the_memory_estimate_is_moved_unless_both_are_there() -> None:
    assert completed(deployment(vramEstimateMB=9000))["gpu"]["vramEstimateMB"] == 9000
    assert completed(deployment(vramEstimateMB=9000, gpu={"vramEstimateMB": 7}))["gpu"]["vramEstimateMB"] == 7


def test_a_completed_model_is_judged_as_the_one_that_was_written() -> None:
    for obj in (deployment(), model(), deployment(vramEstimateMB=9000)):
        assert judge({**obj, "spec": completed(obj)}).refusal == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["backend", "model", "source", "gpu", "serverless", "env", "tolerations", "resources", "cache"]
)


@given(st.sampled_from(["Model", "ModelDeployment"]), JSON | st.dictionaries(FIELDS, JSON))
def test_nothing_that_can_be_written_raises(kind: str, spec: Any) -> None:
    obj = {"kind": kind, "metadata": {}, "spec": spec}

    judge(obj)
    completed(obj)
