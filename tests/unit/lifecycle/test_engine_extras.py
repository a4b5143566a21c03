"""Adapters, arguments that win, architectures, taints and runtime classes."""

from typing import Any

import pytest

from flexinfer.contracts.events import Device, ModelAdapter
from flexinfer.core.lifecycle.description import Description, Problem
from flexinfer.core.lifecycle.engines import ENGINES
from flexinfer.core.lifecycle.engines.base import command_line
from flexinfer.core.lifecycle.manifests import deployment
from flexinfer.core.lifecycle.pods import Placement, engine_pod
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.lifecycle.reading import describe
from flexinfer.core.lifecycle.routing import adapter_names

OLD = Device(index=0, uuid="u0", vendor="NVIDIA", arch="sm_61", product="Tesla P40", memory_mib=24576)


def read(backend: str, source: str = "hf://o/r", **spec: Any) -> Description | Problem:
    return describe(
        {
            "kind": "Model",
            "metadata": {"name": "m", "namespace": "d", "uid": "u1"},
            "spec": {"backend": backend, "source": source, **spec},
        }
    )


def args_of(found: Description | Problem, vendor: str = "NVIDIA", count: int = 1) -> list[str]:
    assert isinstance(found, Description), found
    args: list[str] = engine_pod(found, Placement(vendor, count), "img", Policy()).container["args"]
    return args


@pytest.mark.parametrize(
    ("extra", "line"),
    [
        ((), "m --port 1 --metrics --fast on"),
        (("--port", "2"), "m --metrics --fast on --port 2"),
        (("--port=2",), "m --metrics --fast on --port=2"),
        (("--no-metrics",), "m --port 1 --fast on --no-metrics"),
        (("--other", "-1"), "m --port 1 --metrics --fast on --other -1"),
        (("positional",), "m --port 1 --metrics --fast on positional"),
    ],
)
def test_the_users_arguments_replace_ours(extra: tuple[str, ...], line: str) -> None:
    assert " ".join(command_line(("m", "--port", "1", "--metrics", "--fast", "on"), extra)) == line


def test_a_replaced_option_is_said() -> None:
    found = read("vllm", config={"maxModelLen": 4096, "args": ["--max-model-len", "8192", "--port=9"]})
    args = args_of(found)

    assert args.count("--max-model-len") == 1
    assert args[args.index("--max-model-len") + 1] == "8192"
    assert isinstance(found, Description)
    assert found.ignored == (
        ("spec.config.maxModelLen", "the arguments set --max-model-len too, and they win"),
        ("our own --port", "the arguments set --port too, and they win"),
    )


def test_adapters_of_vllm_and_llamacpp() -> None:
    one = [{"name": "sql", "source": "hf://o/lora"}, {"name": "law", "source": "/models/law"}]
    args = args_of(read("vllm", config={"loraAdapters": one, "maxLoraRank": 32}))
    assert args[args.index("--lora-modules") + 1 :] == ["sql=o/lora", "law=/models/law"]
    assert "--enable-lora" in args

    plain = [{"name": "a", "source": "/models/a.gguf"}, {"name": "b", "source": "file:///models/b.gguf"}]
    args = args_of(read("llamacpp", "pvc://w/m.gguf", config={"loraAdapters": plain}))
    assert args[-2:] == ["--lora", "/models/a.gguf,/models/b.gguf"]
    scaled = [plain[0], {**plain[1], "scale": 0.5}]
    args = args_of(read("llamacpp", "pvc://w/m.gguf", config={"loraAdapters": scaled}))
    assert args[-2:] == ["--lora-scaled", "/models/a.gguf:1,/models/b.gguf:0.5"]


def test_requests_pick_an_adapter_as_its_engine_wants_it() -> None:
    two = [{"name": "s", "source": "/a/s"}, {"name": "t", "source": "/a/t", "scale": 0.5}]
    numbered = read("llamacpp", "pvc://w/m.gguf", config={"loraAdapters": two})
    own = read("llamacpp", "pvc://w/m.gguf", config={"loraAdapters": two, "args": ["--lora=/a/u"]})

    assert adapter_names(read("vllm", config={"loraAdapters": two})) == (
        ModelAdapter(name="s", body={"model": "s"}), ModelAdapter(name="t", body={"model": "t"}),
    )  # fmt: skip
    assert adapter_names(numbered) == (
        ModelAdapter(name="s", body={"model": "m", "lora": [{"id": 0, "scale": 1.0}]}),
        ModelAdapter(name="t", body={"model": "m", "lora": [{"id": 1, "scale": 0.5}]}),
    )
    assert not adapter_names(own), "the arguments load others"
    assert not adapter_names(read("vllm"))


def test_adapters_are_part_of_what_is_measured() -> None:
    plain, adapted = read("vllm"), read("vllm", config={"loraAdapters": [{"name": "s", "source": "hf://o/l"}]})

    assert isinstance(plain, Description)
    assert isinstance(adapted, Description)
    assert plain.workload != adapted.workload


@pytest.mark.parametrize(
    ("backend", "written", "reason", "part"),
    [
        ("tgi", [{"name": "a", "source": "hf://o/r"}], "InvalidSpec", "takes no LoRA adapters"),
        ("vllm", "sql", "InvalidSpec", "must be a list"),
        ("vllm", [{"name": "a"}], "InvalidSpec", "needs a name and a source"),
        ("vllm", [{"name": "a=b", "source": "hf://o/r"}], "InvalidSpec", "neither '='"),
        ("vllm", [{"name": "a", "source": "hf://o/r"}] * 2, "InvalidSpec", "same name"),
        ("vllm", [{"name": "a", "source": "s3://o/r"}], "InvalidSource", "unknown scheme"),
        ("llamacpp", [{"name": "a", "source": "hf://o/r"}], "InvalidSource", "cannot load adapters from hf://"),
        ("llamacpp", [{"name": "a", "source": "/m/a,b"}], "InvalidSource", "neither ','"),
        ("llamacpp", [{"name": "a", "source": "/m/a", "scale": "big"}], "InvalidSpec", "must be a number"),
    ],
)
def test_bad_adapters_are_told_with_their_field(backend: str, written: Any, reason: str, part: str) -> None:
    found = read(backend, config={"loraAdapters": written})

    assert isinstance(found, Problem)
    assert (found.reason, part in found.message) == (reason, True), found
    assert found.field.startswith("spec.config.loraAdapters")


@pytest.mark.parametrize(
    ("engine", "vendor", "arch", "refused"),
    [
        ("vllm", "NVIDIA", "sm_70", True),
        ("vllm", "NVIDIA", "sm_75", False),
        ("vllm", "NVIDIA", "sm_120", False),
        ("vllm", "AMD", "gfx906", True),
        ("vllm", "AMD", "gfx90a:sramecc+:xnack-", False),
        ("vllm", "AMD", None, False),
        ("tensorrt-llm", "NVIDIA", "sm_75", True),
        ("tgi", "AMD", "gfx1100", True),
        ("ollama", "NVIDIA", "sm_37", True),
        ("llamacpp", "NVIDIA", "sm_61", False),
        ("vllm", "INTEL", "xe2", False),
    ],
)
def test_architectures_an_engine_has_kernels_for(engine: str, vendor: Any, arch: str | None, refused: bool) -> None:
    why = ENGINES[engine].refusal(Device(index=0, uuid="u", vendor=vendor, arch=arch))

    assert bool(why) == refused
    assert not why or f"{engine} does not run on {arch}" in why


def test_a_card_the_engine_cannot_run_on_is_named_with_a_remedy(sim: Any) -> None:
    sim.node("n1", OLD)
    sim.apply(backend="vllm", model="Qwen/Qwen3-1.7B", gpu={"vendor": "nvidia", "count": 1})
    sim.settle()
    available = sim.condition("Available")

    assert available["reason"] == "NoMatchingHardware"
    assert "vllm does not run on sm_61 (it needs sm_75 or newer)" in available["message"]
    assert "use another backend, or an image built for it as spec.image" in available["message"]


def test_an_image_of_the_users_is_trusted_with_any_card(sim: Any) -> None:
    sim.node("n1", OLD)
    sim.apply(backend="vllm", model="Qwen/Qwen3-1.7B", image="mine:1", gpu={"vendor": "nvidia", "count": 1})
    sim.settle()

    assert sim.condition("Available")["reason"] != "NoMatchingHardware"


def test_a_tainted_gpu_node_is_used_for_devices_only(sim: Any) -> None:
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    sim.node("n1", Device(index=0, uuid="u0", vendor="NVIDIA", arch="sm_89", product="L4", memory_mib=24576))
    node = sim.objects["nodes", "", "n1"]
    sim.store(("nodes", "", "n1"), {**node, "spec": {"taints": [taint]}})
    sim.apply(name="on-gpu", gpu={"vendor": "nvidia", "count": 1})
    sim.apply(name="on-cpu", gpu={"vendor": "cpu", "count": 0})
    sim.settle()

    assert sim.condition("Available", "on-gpu")["reason"] != "NoMatchingHardware"
    assert "taint is not tolerated" in sim.condition("Available", "on-cpu")["message"]


def test_devices_bring_tolerations_and_the_vendors_runtime_class() -> None:
    found = read("vllm", gpu={"vendor": "nvidia", "count": 1})
    assert isinstance(found, Description)
    policy = Policy(runtime_classes={"NVIDIA": "nvidia"})
    spec = deployment(found, Placement("NVIDIA", 1), "img", 1, policy)["spec"]["template"]["spec"]
    assert spec["runtimeClassName"] == "nvidia"
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]

    plain = read("llamacpp", "file:///m/x.gguf", gpu={"vendor": "cpu"})
    assert isinstance(plain, Description)
    spec = deployment(plain, Placement("CPU", 0), "img", 1, policy)["spec"]["template"]["spec"]
    assert "runtimeClassName" not in spec
    assert "tolerations" not in spec
