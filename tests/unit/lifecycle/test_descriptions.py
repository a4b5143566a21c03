"""What users write, field by field: defaults, both kinds, earlier releases, and sentences for what is wrong."""

from typing import Any

import pytest

from flexinfer.core.lifecycle.description import Demand, Description, Problem, Scale, Storage
from flexinfer.core.lifecycle.reading import describe

MODEL = "hf://org/model-7B-GGUF:Q4_K_M"


def mdep(**spec: Any) -> Any:
    base = {"backend": "llamacpp", "model": MODEL, **spec}
    return {"kind": "ModelDeployment", "metadata": {"name": "m", "namespace": "d", "uid": "u"}, "spec": base}


def mdl(**spec: Any) -> Any:
    base = {"backend": "vllm", "source": "hf://org/model-7B", **spec}
    return {"kind": "Model", "metadata": {"name": "m", "namespace": "d", "uid": "u"}, "spec": base}


def good(obj: Any) -> Description:
    found = describe(obj)
    assert isinstance(found, Description), found
    return found


def bad(obj: Any) -> Problem:
    found = describe(obj)
    assert isinstance(found, Problem)
    return found


def test_the_shortest_modeldeployment() -> None:
    found = good(mdep())

    assert (found.backend, found.source.text, found.key.kind) == (
        "llamacpp", "hf://org/model-7B-GGUF:Q4_K_M", "ModelDeployment",
    )  # fmt: skip
    assert found.scale == Scale(active=1, floor=0, idle_seconds=300, cold_start_seconds=300)
    assert (found.demand.vendor, found.demand.count, found.demand.quantization) == ("auto", None, "q4_k_m")
    assert (found.measure.enabled, found.measure.settings.concurrency) == (True, (1, 8))
    assert (found.measure.settings.min_duration_seconds, found.measure.settings.batch_size) == (30.0, 128)
    assert found.service.enabled
    assert found.ignored == ()


def test_the_shortest_model() -> None:
    found = good(mdl())

    assert (found.key.kind, found.backend, found.source.location) == ("Model", "vllm", "org/model-7B")
    assert found.scale == Scale(active=1, floor=0, idle_seconds=300, cold_start_seconds=300)
    assert found.storage == Storage()


@pytest.mark.parametrize(
    ("gpu", "demand"),
    [
        ({"vendor": "cpu"}, Demand("cpu", 0)),
        ({"vendor": "nvidia"}, Demand("nvidia", 1)),
        ({"vendor": "amd", "count": 2, "arch": "gfx90a"}, Demand("amd", 2, "gfx90a")),
        ({"vendor": "intel", "quantization": "INT4"}, Demand("intel", 1, quantization="int4")),
        ({"count": 0}, Demand("auto", 0)),
        ({}, Demand("auto", None)),
    ],
)
def test_gpu(gpu: dict[str, Any], demand: Demand) -> None:
    found = good(mdep(gpu=gpu, model="hf://org/plain")).demand

    assert (found.vendor, found.count, found.arch, found.quantization) == (
        demand.vendor, demand.count, demand.arch, demand.quantization,
    )  # fmt: skip


def test_accelerators_written_under_resources_are_understood_and_not_doubled() -> None:
    found = good(mdep(resources={"limits": {"amd.com/gpu": 2, "memory": "8Gi"}}))

    assert (found.demand.vendor, found.demand.count) == ("amd", 2)
    assert found.limits == {"memory": "8Gi"}


@pytest.mark.parametrize(
    ("spec", "estimated", "vram"),
    [
        ({"gpu": {"vramEstimateMB": 9000}}, False, 9000),
        ({"vramEstimateMB": 8000}, False, 8000),
        ({}, True, 5678),
        ({"model": "hf://org/unknown"}, True, None),
    ],
)
def test_the_memory_estimate_is_the_users_or_ours(spec: dict[str, Any], estimated: bool, vram: int | None) -> None:
    found = good(mdep(**spec)).demand

    assert (found.vram_mb, found.vram_estimated) == (vram, estimated)


def test_everything_of_a_modeldeployment_arrives() -> None:
    found = good(
        mdep(
            image="img:1", replicas=3, minReplicas=1, idleTimeoutSeconds=60, coldStartTimeoutSeconds=90, port=9000,
            args=["--x"],
            env=[{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s"}}}],
            nodeSelector={"zone": "a"},
            tolerations=[{"key": "k", "operator": "Exists"}],
            resources={"requests": {"cpu": 1}, "limits": {"cpu": "2"}}, llamacpp={"contextSize": 8192},
            service={"type": "NodePort", "port": 80, "annotations": {"a": "b"}},
            benchmark={"enabled": False, "minDuration": "1m30s", "gateTimeout": 10, "concurrency": [1, 2]},
        )
    )  # fmt: skip

    assert (found.image, found.port, found.args) == ("img:1", 9000, ("--x",))
    assert found.scale == Scale(3, 1, 60, 90)
    assert found.env == ({"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s"}}})
    assert found.tolerations == ({"key": "k", "operator": "Exists"},)
    assert (found.requests, found.limits, found.node_selector) == ({"cpu": "1"}, {"cpu": "2"}, {"zone": "a"})
    assert found.options == {"contextSize": 8192}
    assert (found.service.type, found.service.port, found.service.annotations) == ("NodePort", 80, {"a": "b"})
    assert (found.measure.enabled, found.measure.gate_seconds) == (False, 10.0)
    assert found.measure.settings.min_duration_seconds == 90.0


def test_everything_of_a_model_arrives() -> None:
    found = good(
        mdl(
            gpu={"vendor": "nvidia", "count": 2, "priority": 7},
            serverless={"minReplicas": 1, "maxReplicas": 4, "idleTimeout": "10m", "coldStartTimeout": "90s"},
            cache={"strategy": "SharedPVC", "size": "20Gi", "storageClass": "fast"},
            config={"maxModelLen": 4096, "args": ["--seed", 1], "env": {"A": 1}},
        )
    )

    assert found.scale == Scale(4, 1, 600, 90)
    assert found.storage == Storage("claim", "m-cache", make=True, size="20Gi", storage_class="fast")
    assert (found.args, found.env) == (("--seed", "1"), ({"name": "A", "value": "1"},))
    assert (found.priority, found.options) == (7, {"maxModelLen": 4096})


@pytest.mark.parametrize(
    ("obj", "reason", "sentence"),
    [
        (
            mdep(backend="mlc-llm"),
            "UnknownBackend",
            "spec.backend: 'mlc-llm' is not supported; use one of ollama, vllm",
        ),
        (
            mdep(model="s3://bucket/x"),
            "InvalidSource",
            "spec.model: 's3://bucket/x': unknown scheme 's3'; write ollama",
        ),
        (mdep(model="just a name"), "InvalidSource", "spec.model: 'just a name' names no model for llamacpp"),
        (mdep(model="ollama://llama3:8b"), "SourceNotSupported", "llamacpp cannot load ollama:// sources; use file://"),
        (mdl(source="file://relative"), "InvalidSource", "write file:///absolute/path without '..'"),
        (mdl(source="pvc://Claim"), "InvalidSource", "write pvc://claim/path/in/the/volume"),
        (mdep(backend="custom"), "ImageMissing", "spec.image: backend custom has no default image; name one"),
        (
            mdep(benchmark={"minDuration": "soon"}),
            "InvalidSpec",
            "spec.benchmark.minDuration: 'soon' is not a duration",
        ),
        (mdep(replicas=-1), "InvalidSpec", "spec.replicas: input should be greater than or equal to 0"),
        (mdep(gpu={"vendor": "voodoo"}), "InvalidSpec", "spec.gpu.vendor: input should be 'auto', 'nvidia'"),
        (mdl(config={"args": "x"}), "InvalidSpec", "spec.config.args: must be a list of strings"),
        (mdl(config={"env": []}), "InvalidSpec", "spec.config.env: must be a map of names to values"),
        (
            {"kind": "Model", "metadata": {"name": "m"}, "spec": {"backend": "vllm"}},
            "InvalidSpec",
            "spec.source: is req",
        ),
        ({"kind": "Model", "metadata": {"name": "m"}}, "InvalidSpec", "spec.backend: is required"),
        ({"kind": "Model", "metadata": {"name": "m"}, "spec": []}, "InvalidSpec", "spec"),
    ],
)
def test_what_is_wrong_is_a_sentence_with_the_field(obj: Any, reason: str, sentence: str) -> None:
    found = bad(obj)

    assert found.reason == reason
    assert sentence in found.sentence


@pytest.mark.parametrize(
    ("obj", "fields"),
    [
        (
            mdep(gpuGroupRef="g", priority=5, modelCacheRef="c"),
            ["spec.priority", "spec.gpuGroupRef", "spec.modelCacheRef"],
        ),
        (mdep(comfyui={"modelsPath": "/x"}, serviceLabels=["a"]), ["spec.serviceLabels", "spec.comfyui"]),
        (mdep(replica=2), ["spec.replica"]),
        (mdep(gpu={"vendr": "amd"}), ["spec.gpu.vendr"]),
        (mdl(gpu={"shared": "g"}), ["spec.gpu.shared"]),
        (mdl(config={"nope": 1}), ["spec.config.nope"]),
        (mdl(litellm={"copilotAlias": "x"}), ["spec.litellm.copilotAlias"]),
        (mdep(backend="ollama", model="llama3:8b", args=["--x"]), ["spec.args"]),
        (mdep(llamacpp={"contextSize": 1}), []),
    ],
)
def test_fields_without_effect_are_named_with_a_remedy(obj: Any, fields: list[str]) -> None:
    found = good(obj)

    assert [field for field, _ in found.ignored] == fields
    assert all(remedy for _, remedy in found.ignored)


def test_aliases_come_from_annotation_and_litellm() -> None:
    obj = mdep(litellm={"aliases": ["gpt-4", "m"], "servedModelName": "best"})
    obj["metadata"]["annotations"] = {"flexinfer.ai/aliases": "a, b,"}

    assert good(obj).aliases == ("a", "b", "gpt-4", "best")
    assert good(mdep(litellm={"enabled": False, "aliases": ["x"]})).aliases == ()


def test_other_spellings_of_backends() -> None:
    assert good(mdep(backend="llama.cpp")).backend == "llamacpp"
    assert good(mdep(backend="vLLM", model="Qwen/Qwen3-8B")).source.text == "hf://Qwen/Qwen3-8B"


def test_what_changes_speed_changes_identity_and_nothing_else_does() -> None:
    base = good(mdep()).workload

    assert good(mdep(replicas=2, nodeSelector={"a": "b"}, service={"enabled": False})).workload == base
    assert good(mdep(args=["-c", "1"])).workload != base
    assert good(mdep(llamacpp={"contextSize": 1})).workload != base
    assert good(mdep(gpu={"quantization": "q8_0"})).workload != base
    assert good(mdep(model="hf://org/other-7B-GGUF:Q4_K_M")).workload != base
