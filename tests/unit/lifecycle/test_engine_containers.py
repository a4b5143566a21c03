"""Command lines, images and pods of every engine."""

from typing import Any

import pytest

from flexinfer.config.bench import BenchSettings
from flexinfer.config.common import env_name
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.engines import ENGINES
from flexinfer.core.lifecycle.fit import Option
from flexinfer.core.lifecycle.job import Run, bench_environment, bench_job
from flexinfer.core.lifecycle.manifests import deployment, service, volume_claim
from flexinfer.core.lifecycle.pods import Placement, engine_pod, image_of
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.lifecycle.reading import describe

POLICY = Policy(proxy_url="http://proxy", nats_url="nats://bus")
CPU = Placement("CPU", 0)


def wanted(backend: str, source: str, **spec: Any) -> Description:
    found = describe(
        {
            "kind": "Model",
            "metadata": {"name": "m", "namespace": "d", "uid": "u1"},
            "spec": {"backend": backend, "source": source, **spec},
        }
    )
    assert isinstance(found, Description), found
    return found


def container(d: Description, place: Placement = Placement("NVIDIA", 1), policy: Policy = POLICY) -> Any:  # noqa: B008
    return engine_pod(d, place, image_of(d, place.vendor, policy) or "img", policy).container


@pytest.mark.parametrize(
    ("backend", "source", "spec", "line"),
    [
        ("llamacpp", "file:///m/x.gguf", {}, ("--model /models/x.gguf --alias m --host 0.0.0.0 --port 8080 --metrics "
         "--slots --n-gpu-layers 999")),
        ("llamacpp", "hf://o/r:Q4_0", {"config": {"contextSize": 8192, "flashAttention": True, "nGPULayers": 10}},
         ("--hf-repo o/r:Q4_0 --alias m --host 0.0.0.0 --port 8080 --metrics --slots --ctx-size 8192 --n-gpu-layers 10 "
         "--flash-attn on")),
        ("llamacpp", "hf://o/r/f.gguf", {"config": {"args": ["--mlock"]}}, ("--hf-repo o/r --hf-file f.gguf --alias m "
         "--host 0.0.0.0 --port 8080 --metrics --slots --n-gpu-layers 999 --mlock")),
        ("vllm", "hf://o/r-AWQ@v1", {"config": {"maxModelLen": 4096.0, "enforceEager": "true"}},
         ("vllm serve o/r-AWQ --served-model-name m --host 0.0.0.0 --port 8000 --revision v1 --max-model-len 4096 "
         "--quantization awq --enforce-eager")),
        ("vllm", "pvc://weights/llama", {"config": {"enablePrefixCaching": False}}, ("vllm serve /models/llama "
         "--served-model-name m --host 0.0.0.0 --port 8000 --no-enable-prefix-caching")),
        ("tgi", "hf://o/r-int8", {}, "--model-id o/r-int8 --hostname 0.0.0.0 --port 8080 --quantize bitsandbytes"),
        ("sglang", "hf://o/r", {"config": {"contextLength": 1024}}, ("python3 -m sglang.launch_server --model-path o/r "
         "--served-model-name m --host 0.0.0.0 --port 30000 --enable-metrics --context-length 1024")),
        ("tensorrt-llm", "hf://o/r", {"config": {"maxSeqLen": 2048}}, ("trtllm-serve o/r --host 0.0.0.0 --port 8000 "
         "--max_seq_len 2048")),
        ("ollama", "ollama://llama3:8b", {}, "/bin/ollama serve"),
        ("custom", "hf://o/r", {"image": "mine:1", "config": {"args": ["--go"]}}, "--go"),
    ],
)  # fmt: skip
def test_command_lines(backend: str, source: str, spec: dict[str, Any], line: str) -> None:
    found = container(wanted(backend, source, **spec))

    assert " ".join([*found.get("command", []), *found["args"]]) == line


def test_several_accelerators_mean_tensor_parallelism_and_shared_memory() -> None:
    for backend, flag in (("vllm", "--tensor-parallel-size"), ("sglang", "--tp-size"), ("tgi", "--num-shard")):
        d = wanted(backend, "hf://o/r", gpu={"vendor": "nvidia", "count": 2})
        pod = engine_pod(d, Placement("NVIDIA", 2), "img", POLICY)
        args = pod.container["args"]
        assert args[args.index(flag) + 1] == "2"
        assert {"name": "dshm", "emptyDir": {"medium": "Memory"}} in pod.volumes
        assert pod.container["resources"]["limits"]["nvidia.com/gpu"] == "2"


def test_ollama_pulls_before_it_counts_as_started_and_keeps_its_model() -> None:
    d = wanted("ollama", "ollama://llama3:8b", config={"contextSize": 8192})
    pod = engine_pod(d, Placement("AMD", 1), image_of(d, "AMD", POLICY) or "", POLICY)
    env = {e["name"]: e.get("value") for e in pod.container["env"]}
    pull = {e["name"]: e.get("value") for e in pod.prepare[0]["env"]}

    assert (pod.container["image"], env["OLLAMA_KEEP_ALIVE"]) == ("ollama/ollama:rocm", "-1")
    assert (env["OLLAMA_CONTEXT_LENGTH"], env["OLLAMA_MODELS"]) == ("8192", "/models")
    assert pull["FLEXINFER_OLLAMA_MODEL"] == "llama3:8b"
    assert "amd.com/gpu" not in pod.prepare[0]["resources"]["limits"]
    assert ENGINES["ollama"].served_model(d) == "llama3:8b"


def test_images_user_then_manager_then_engine() -> None:
    d = wanted("ollama", "ollama://x")
    policy = Policy(images={"ollama": {"NVIDIA": "mine/ollama"}})

    assert image_of(d, "NVIDIA", policy) == "mine/ollama"
    assert image_of(d, "AMD", policy) == "ollama/ollama:rocm"
    assert image_of(wanted("ollama", "ollama://x", image="own"), "NVIDIA", policy) == "own"
    assert image_of(wanted("tensorrt-llm", "hf://o/r"), "AMD", policy) is None


def test_the_users_environment_wins() -> None:
    d = wanted("vllm", "hf://o/r", config={"env": {"HF_HOME": "/cache", "A": "1"}})
    env = container(d)["env"]

    assert [e for e in env if e["name"] == "HF_HOME"] == [{"name": "HF_HOME", "value": "/cache"}]
    assert {"name": "A", "value": "1"} in env


@pytest.mark.parametrize(
    ("source", "cache", "volume"),
    [
        ("file:///data/m/x.gguf", None, {"hostPath": {"path": "/data/m", "type": "Directory"}}),
        ("pvc://weights/x.gguf", None, {"persistentVolumeClaim": {"claimName": "weights"}}),
        ("oci://reg/img:1", None, {"image": {"reference": "reg/img:1"}}),
        ("hf://o/r", None, {"emptyDir": {}}),
        ("hf://o/r", {"strategy": "Memory", "size": "8Gi"}, {"emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}),
        ("hf://o/r", {"pvcName": "c"}, {"persistentVolumeClaim": {"claimName": "c"}}),
        ("hf://o/r", {"strategy": "SharedPVC"}, {"persistentVolumeClaim": {"claimName": "m-cache"}}),
        ("hf://o/r", {"strategy": "None", "pvcName": "c"}, {"emptyDir": {}}),
    ],
)
def test_volumes(source: str, cache: dict[str, Any] | None, volume: dict[str, Any]) -> None:
    d = wanted("llamacpp", source, **({"cache": cache} if cache else {}))
    pod = engine_pod(d, CPU, "img", POLICY)

    assert pod.volumes == ({"name": "models", **volume},)
    assert pod.container["volumeMounts"][0]["mountPath"] == "/models"


def test_a_claim_made_for_the_cache() -> None:
    claim = volume_claim(wanted("vllm", "hf://o/r", cache={"strategy": "SharedPVC", "storageClass": "fast"}))

    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"] == {"requests": {"storage": "50Gi"}}
    assert claim["metadata"]["ownerReferences"][0]["uid"] == "u1"


def test_on_one_machine_paths_are_local_and_each_pod_has_its_own_address() -> None:
    d = wanted("llamacpp", "file:///data/x.gguf")
    pod = engine_pod(d, CPU, "img", Policy(node_local=True))

    assert pod.volumes == ()
    assert pod.container["args"][:6] == ["--model", "/data/x.gguf", "--alias", "m", "--host", "$(POD_IP)"]


def test_requests_and_limits_are_always_there() -> None:
    for d in (wanted("llamacpp", "hf://o/r-7B:Q4_0"), wanted("vllm", "hf://o/unknown")):
        found = container(d)["resources"]
        assert set(found["requests"]) >= {"cpu", "memory"}
        assert set(found["limits"]) >= {"cpu", "memory"}


@pytest.mark.parametrize(
    ("given", "requests", "limits"),
    [
        ({"limits": {"memory": "4Gi"}}, {"memory": "4Gi"}, {"memory": "4Gi", "cpu": "8"}),
        ({"requests": {"cpu": "2"}}, {"cpu": "2"}, {}),
        ({"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}, {"cpu": "2"}, {"cpu": "3"}),
    ],
)
def test_the_users_resources_are_never_contradicted(given: Any, requests: Any, limits: Any) -> None:
    found = container(wanted("llamacpp", "hf://o/r-7B:Q4_0", resources=given), CPU)["resources"]

    assert requests.items() <= found["requests"].items()
    assert limits.items() <= found["limits"].items()
    if "cpu" in requests and "cpu" not in limits:
        assert "cpu" not in found["limits"]


def test_what_the_extender_reads_is_on_the_pods() -> None:
    gpu = {"vendor": "nvidia", "count": 1, "arch": "sm_89", "vramEstimateMB": 9000}
    d = wanted("vllm", "hf://o/r-AWQ", gpu=gpu)
    body = deployment(d, Placement("NVIDIA", 1), "img", 1, POLICY)
    template = body["spec"]["template"]

    assert template["metadata"]["annotations"] == {
        "flexinfer.ai/model": "m",
        "flexinfer.ai/backend": "vllm",
        "flexinfer.ai/benchmark-key": d.workload,
        "flexinfer.ai/gpu.vendor": "NVIDIA",
        "flexinfer.ai/gpu.vram-estimate-mb": "9000",
        "flexinfer.ai/gpu.arch": "sm_89",
        "flexinfer.ai/quantization": "awq",
    }
    assert template["spec"]["schedulerName"] == "flexinfer-scheduler"


def test_the_service_points_at_the_engine_port() -> None:
    body = service(wanted("vllm", "hf://o/r"))

    assert body["spec"]["ports"][0] == {"name": "http", "port": 8000, "targetPort": "http", "protocol": "TCP"}
    assert (
        body["spec"]["selector"]
        == deployment(wanted("vllm", "hf://o/r"), CPU, "i", 1, POLICY)["spec"]["selector"]["matchLabels"]
    )


def test_every_variable_of_the_bench_process_is_one_it_knows() -> None:
    known = {env_name(name, info) for name, info in BenchSettings.model_fields.items()}
    run = Run("k", Option("cls", "575", "NVIDIA", 1, ("n1",)), "img")
    given = bench_environment(wanted("vllm", "hf://o/r"), run, POLICY)

    assert set(given) <= known
    settings = BenchSettings(
        **{
            name: given[env_name(name, i)]
            for name, i in BenchSettings.model_fields.items()
            if env_name(name, i) in given
        }
    )
    assert (settings.key, settings.model, settings.driver_major) == ("k", "bench-k", "575")
    assert settings.plan().concurrency == (1, 8)


def test_job_and_pod_names_fit_kubernetes() -> None:
    d = wanted("vllm", "hf://organisation-with-a-long-name/" + "model-name-" * 12)
    key = "x" * 50
    body = bench_job(d, Run(key, Option("c", "", "NVIDIA", 1, ("n",)), "img"), POLICY)

    assert len(body["metadata"]["name"]) <= 57
    assert all(len(value) <= 63 for value in body["metadata"]["labels"].values())
    assert len(d.workload) <= 50


@pytest.mark.parametrize("in_place", ["", "m-1"])
def test_a_job_shows_the_bus_a_token_of_its_own_where_one_is_asked_for(in_place: str) -> None:
    run = Run("k", Option("c", "", "CPU", 0, ("n",)), "img", in_place)
    guarded = Policy(nats_url="nats://bus", nats_ca="PEM", token_audience="the-bus")
    spec = bench_job(wanted("llamacpp", "pvc://w/x.gguf"), run, guarded)["spec"]["template"]["spec"]
    [bench] = spec["containers"]
    environment = {entry["name"]: entry.get("value") for entry in bench["env"]}
    [mount] = bench["volumeMounts"]
    [volume] = [volume for volume in spec["volumes"] if volume["name"] == mount["name"]]

    assert environment["FLEXINFER_NATS_CREDENTIALS"] == f"{mount['mountPath']}/token"
    assert environment["FLEXINFER_NATS_CA_DATA"] == "PEM"
    assert volume["projected"]["sources"][0]["serviceAccountToken"]["audience"] == "the-bus"
    assert spec["automountServiceAccountToken"] is False
    engines = [mounts["name"] for one in spec.get("initContainers", ()) for mounts in one.get("volumeMounts", ())]
    assert mount["name"] not in engines

    for policy in (POLICY, Policy(token_audience="the-bus", nats_ca="PEM")):
        job = bench_job(wanted("llamacpp", "pvc://w/x.gguf"), run, policy)["spec"]["template"]["spec"]
        assert "FLEXINFER_NATS_CREDENTIALS" not in {entry["name"] for entry in job["containers"][0]["env"]}
        assert "volumeMounts" not in job["containers"][0]
