"""Field by field: what the API server fills in, takes, and refuses, with the message a user reads."""

from typing import Any

import pytest

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.contracts.crds import Model, ModelDeployment, crd_manifests
from flexinfer.contracts.kubernetes import MODELDEPLOYMENTS, MODELS, Object, Resource
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.reading import describe
from flexinfer.ports import Invalid

MDEP: Object = {"backend": "llamacpp", "model": "hf://o/r"}
MDL: Object = {"backend": "vllm", "source": "hf://o/r"}


async def create(api: KubeClient, kind: Resource, spec: Object, name: str = "m") -> Object:
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}
    return await api.create(kind, body, "default")


def merged(base: Object, path: str, value: Any) -> Object:
    """``base`` with one field set, by dotted path."""
    found: Object = {**base}
    at = found
    *parents, last = path.split(".")
    for name in parents:
        at[name] = {**at.get(name, {})}
        at = at[name]
    at[last] = value
    return found


async def test_defaults_of_a_modeldeployment(api: KubeClient) -> None:
    found = (await create(api, MODELDEPLOYMENTS, MDEP))["spec"]

    assert found == {
        **MDEP,
        "replicas": 1,
        "minReplicas": 0,
        "idleTimeoutSeconds": 300,
        "coldStartTimeoutSeconds": 300,
        "resources": {},
        "gpu": {"vendor": "auto"},
        "service": {"enabled": True, "type": "ClusterIP"},
        "benchmark": {
            "enabled": True, "warmupIterations": 2, "minDuration": "30s", "batchSize": 128, "iterations": 5,
            "concurrency": [1, 8],
        },
    }  # fmt: skip


async def test_defaults_of_a_model(api: KubeClient) -> None:
    found = (await create(api, MODELS, MDL))["spec"]

    assert found == {
        **MDL,
        "gpu": {"vendor": "auto"},
        "resources": {},
        "serverless": {
            "enabled": True, "minReplicas": 0, "maxReplicas": 1, "idleTimeout": "5m", "coldStartTimeout": "5m",
        },
        "benchmark": {
            "enabled": True, "warmupIterations": 2, "minDuration": "30s", "batchSize": 128, "iterations": 5,
            "concurrency": [1, 8],
        },
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "spec"), [(MODELDEPLOYMENTS, MDEP), (MODELS, MDL)], ids=["mdep", "mdl"])
async def test_the_servers_defaults_are_the_managers(api: KubeClient, kind: Resource, spec: Object) -> None:
    stored = await create(api, kind, spec)
    bare = {**stored, "spec": spec}

    assert describe(stored) == describe(bare)
    assert isinstance(describe(stored), Description)


VALID_MDEP = [
    ("backend", "mlc-llm"), ("image", "reg/img@sha256:abc"), ("replicas", 0), ("replicas", 1000),
    ("idleTimeoutSeconds", 0),
    ("coldStartTimeoutSeconds", 1800), ("resources.limits", {"memory": "4Gi", "cpu": 2}), ("gpu.vendor", "intel"),
    ("gpu.count", 8), ("gpu.arch", "sm_89,sm_90"), ("gpu.vramEstimateMB", 24000), ("gpu.quantization", "Q4_K_M"),
    ("nodeSelector", {"a": "b"}), ("tolerations", [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]),
    ("args", ["-c", "1"]), ("env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
    ("port", 9000), ("service.type", "NodePort"), ("service.annotations", {"a": "b"}), ("benchmark.enabled", False),
    ("benchmark.minDuration", "1m30s"), ("benchmark.minDuration", 45), ("benchmark.concurrency", [1, 2, 4]),
    ("benchmark.gateTimeout", "10m"), ("litellm.aliases", ["gpt-4"]), ("llamacpp", {"contextSize": 8192}),
    ("vllm", {"maxModelLen": 1, "ropeScaling": {"type": "yarn"}}), ("gpuGroupRef", "g"), ("comfyui", {"anything": [1]}),
    ("mlcllm", {"mode": "server"}), ("priority", 5), ("modelCacheRef", "c"), ("serviceLabels", ["a"]),
    ("vllmOmni", {"x": 1}), ("vramEstimateMB", 8000),
]  # fmt: skip
VALID_MDL = [
    ("source", "HF://o/r"), ("gpu.priority", 0), ("gpu.shared", "g"), ("serverless.enabled", False),
    ("serverless.idleTimeout", "90s"), ("serverless.idleTimeout", 90), ("cache.strategy", "Memory"),
    ("cache.size", "8Gi"),
    ("cache.pvcName", "c"), ("cache.storageClass", "fast"), ("config", {"maxModelLen": 1, "nested": {"a": [1]}}),
    ("serviceLabels", ["textgen"]), ("litellm.servedModelName", "x"), ("nodeSelector", {"a": "b"}), ("image", "i"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "base", "path", "value"),
    [(MODELDEPLOYMENTS, MDEP, *case) for case in VALID_MDEP] + [(MODELS, MDL, *case) for case in VALID_MDL],
)
async def test_valid_values_are_kept_as_written(
    api: KubeClient, kind: Resource, base: Object, path: str, value: Any
) -> None:
    found: Any = (await create(api, kind, merged(base, path, value)))["spec"]
    for name in path.split("."):
        found = found[name]

    if isinstance(value, list) and value and isinstance(value[0], dict):
        assert all(given.items() <= kept.items() for given, kept in zip(value, found, strict=True))
    else:
        assert found == value


INVALID_MDEP = [
    ("backend", "", "spec.backend"), ("model", "", "spec.model"), ("replicas", -1, "spec.replicas"),
    ("replicas", "two", "spec.replicas"), ("idleTimeoutSeconds", -5, "spec.idleTimeoutSeconds"),
    ("coldStartTimeoutSeconds", 1, "spec.coldStartTimeoutSeconds"), ("gpu.vendor", "voodoo", "spec.gpu.vendor"),
    ("gpu.count", -1, "spec.gpu.count"), ("gpu.vramEstimateMB", 0, "spec.gpu.vramEstimateMB"),
    ("port", 70000, "spec.port"), ("service.type", "Magic", "spec.service.type"), ("args", "x", "spec.args"),
    ("env", [{"value": "x"}], "spec.env[0].name"), ("benchmark.iterations", 0, "spec.benchmark.iterations"),
    ("benchmark.minDuration", "soon", "spec.benchmark.minDuration"),
    ("benchmark.concurrency", [], "spec.benchmark.concurr"),
    ("benchmark.concurrency", [0], "spec.benchmark.concurrency[0]"),
    ("resources.limits", {"cpu": "lots"}, "spec.resources"),
    ("tolerations", [{"effect": "Later"}], "spec.tolerations[0].effect"),
    ("minReplicas", 5, "minReplicas must not be larger than replicas"),
    ("gpu", {"vendor": "cpu", "count": 1}, "gpu.count must be omitted or 0 when gpu.vendor is cpu"),
    ("gpu", {"vendor": "cpu", "arch": "sm_89"}, "gpu.arch must be omitted when gpu.vendor is cpu"),
    ("backend", "custom", "backend custom needs image"),
]  # fmt: skip
INVALID_MDL = [
    ("source", "", "spec.source"), ("gpu.priority", 5000, "spec.gpu.priority"),
    ("cache.strategy", "Disk", "spec.cache.strat"),
    ("cache.size", "big", "spec.cache.size"), ("serverless.idleTimeout", "later", "spec.serverless.idleTimeout"),
    ("serverless", {"minReplicas": 3, "maxReplicas": 2}, "minReplicas must not be larger than maxReplicas"),
    ("config", [], "spec.config"), ("backend", "custom", "backend custom needs image"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "base", "path", "value", "text"),
    [(MODELDEPLOYMENTS, MDEP, *case) for case in INVALID_MDEP] + [(MODELS, MDL, *case) for case in INVALID_MDL],
)
async def test_invalid_values_are_refused_with_the_field(
    api: KubeClient, kind: Resource, base: Object, path: str, value: Any, text: str
) -> None:
    with pytest.raises(Invalid) as refused:
        await create(api, kind, merged(base, path, value))

    assert text in refused.value.message


async def test_a_pvc_source_keeps_its_weights_on_the_claim(api: KubeClient) -> None:
    spec = {"backend": "vllm", "source": "pvc://weights/x", "cache": {"strategy": "Memory"}}
    with pytest.raises(Invalid, match=r"cache.strategy must be SharedPVC or unset when source is pvc://"):
        await create(api, MODELS, spec)


@pytest.mark.parametrize(("kind", "field"), [(MODELDEPLOYMENTS, "model"), (MODELS, "source")])
async def test_required_fields(api: KubeClient, kind: Resource, field: str) -> None:
    with pytest.raises(Invalid, match=field):
        await create(api, kind, {"backend": "vllm"})


async def test_status_is_a_subresource_and_takes_what_the_manager_writes(api: KubeClient) -> None:
    await create(api, MODELDEPLOYMENTS, MDEP)
    found = {
        "phase": "Running",
        "conditions": [
            {"type": "Available", "status": "True", "reason": "Serving", "message": "",
             "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}
        ],
        "endpoints": [{"url": "http://x", "node": "n", "deviceClass": "c", "tokensPerSecond": 12.5}],
        "benchmarks": [{"deviceClass": "c", "tokensPerSecond": 12.5, "observedAt": "2026-01-01T00:00:00Z"}],
        "replicas": 1, "readyReplicas": 1, "tokensPerSecond": "12.5", "observedGeneration": 1, "selector": "a=b",
    }  # fmt: skip
    stored = await api.patch(MODELDEPLOYMENTS, "m", {"status": found}, "default", subresource="status")
    assert stored["status"] == found

    with pytest.raises(Invalid, match="phase"):
        await api.patch(MODELDEPLOYMENTS, "m", {"status": {"phase": "Happy"}}, "default", subresource="status")


async def test_scaling_by_the_subresource(api: KubeClient) -> None:
    await create(api, MODELDEPLOYMENTS, MDEP)
    await create(api, MODELS, merged(MDL, "serverless.maxReplicas", 5))
    for kind in (MODELDEPLOYMENTS, MODELS):
        await api.patch(kind, "m", {"spec": {"replicas": 3}}, "default", subresource="scale")

    assert (await api.get(MODELDEPLOYMENTS, "m", "default"))["spec"]["replicas"] == 3
    assert (await api.get(MODELS, "m", "default"))["spec"]["serverless"]["minReplicas"] == 3


def _nodes(schema: Any) -> Any:
    yield schema
    for child in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(child, dict):
            yield from _nodes(child)


@pytest.mark.parametrize("crd", crd_manifests(), ids=lambda crd: crd["metadata"]["name"])
def test_the_schema_is_structural(crd: Any) -> None:
    version = crd["spec"]["versions"][0]
    for node in _nodes(version["schema"]["openAPIV3Schema"]):
        assert not {"$ref", "anyOf", "allOf", "oneOf", "not", "title", "examples", "nullable"} & set(node)
        assert "type" in node or node.get("x-kubernetes-int-or-string"), node
        assert not ({"properties", "additionalProperties"} <= set(node))
    assert [column["name"] for column in version["additionalPrinterColumns"]] == [
        "Backend", "Phase", "Replicas", "Tokens/s", "Age",
    ]  # fmt: skip
    assert not any("default" in node for node in _nodes(version["schema"]["openAPIV3Schema"]["properties"]["status"]))
    assert set(version["subresources"]) == {"status", "scale"}
    assert crd["spec"]["names"]["shortNames"] in (["mdep"], ["mdl"])


@pytest.mark.parametrize("cls", [ModelDeployment, Model])
def test_every_field_says_what_it_is(cls: Any) -> None:
    def walk(schema: Any, path: str) -> Any:
        for name, child in schema.get("properties", {}).items():
            if path or name not in {"apiVersion", "kind", "metadata"}:
                assert child.get("description"), f"{path}.{name}"
                walk(child, f"{path}.{name}")

    crd = next(c for c in crd_manifests() if c["spec"]["names"]["kind"] == cls.__name__)
    walk(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "")
