"""Golden manifests of every engine on every vendor: ``python tests/golden/engine_manifests.py`` writes them again.

One file per engine and vendor: the Deployment, the Service, the benchmark Job, and the volume claim where there is
one. ``tests/cluster/test_engine_manifests.py`` shows each to a real API server.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from flexinfer.contracts.kubernetes import Object
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.engines import ENGINES
from flexinfer.core.lifecycle.fit import Option
from flexinfer.core.lifecycle.job import Run, bench_job
from flexinfer.core.lifecycle.manifests import deployment, service, volume_claim
from flexinfer.core.lifecycle.pods import Placement, image_of
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.lifecycle.reading import describe

FOLDER = Path(__file__).parent / "engines"
POLICY = Policy(
    proxy_url="http://flexinfer-proxy.flexinfer-system:8080",
    nats_url="nats://nats:4222",
    images={"ollama": {"AMD": "ollama/ollama:rocm"}},
    runtime_classes={"NVIDIA": "nvidia"},
)
FETCHING = replace(POLICY, fetch_image="registry.example/flexinfer:1", node_cache="/var/lib/flexinfer/models")
VENDORS = ("NVIDIA", "AMD", "INTEL", "CPU")
CLASSES = {"NVIDIA": "nvidia-l4-sm-89-22gib-1x", "AMD": "amd-mi300x-gfx942-192gib-1x", "INTEL": "intel-b60-24gib-1x",
           "CPU": "cpu-amd-epyc-8t"}  # fmt: skip

# What a spec says that uses as much of the engine as one spec can.
SPECS: dict[str, dict[str, Any]] = {
    "ollama": {"source": "ollama://llama3:8b", "config": {"contextSize": 8192, "flashAttention": True}},
    "vllm": {
        "source": "hf://Qwen/Qwen3-8B-AWQ",
        "cache": {"strategy": "SharedPVC", "size": "30Gi"},
        "config": {
            "maxModelLen": 16384, "gpuMemoryUtilization": 0.9, "maxLoras": 2,
            "loraAdapters": [{"name": "sql", "source": "hf://example/sql-lora"}],
            "args": ["--max-num-seqs=64"],
        },
    },
    "llamacpp": {
        "source": "pvc://weights/qwen3-8b-q4_k_m.gguf",
        "config": {
            "contextSize": 8192, "parallel": 4, "flashAttention": True, "mlock": True, "jinja": True,
            "loraAdapters": [{"name": "sql", "source": "/models/adapters/sql.gguf", "scale": 0.5}],
        },
    },
    "tgi": {"source": "hf://mistralai/Mistral-7B-Instruct-v0.3@main", "config": {"maxTotalTokens": 8192}},
    "sglang": {"source": "hf://Qwen/Qwen3-8B-FP8", "config": {"contextLength": 16384, "memFractionStatic": 0.85}},
    "tensorrt-llm": {"source": "oci://registry.example/models/qwen3:8b!model", "config": {"maxSeqLen": 8192}},
    "custom": {
        "source": "file:///srv/models/qwen3", "image": "registry.example/engine:1", "config": {"args": ["--fast"]},
    },
}  # fmt: skip


Case = tuple[str, str, int, bool]


def cases() -> list[Case]:
    """(engine, vendor, accelerators, whether an init step fetches the weights): every pair there is an image for, and
    several devices and fetched weights once for each engine where that makes a difference."""
    found: list[Case] = []
    for name in SPECS:
        vendors = VENDORS if name == "custom" else [v for v in VENDORS if v in ENGINES[name].images]
        found += [(name, vendor, 0 if vendor == "CPU" else 1, False) for vendor in vendors]
        if ENGINES[name].shared_memory:
            found.append((name, "NVIDIA", 4, False))
        found.append((name, "NVIDIA", 1, True))
    return found


def file_of(case: Case) -> Path:
    """Where one case lies."""
    engine, vendor, count, fetched = case
    return FOLDER / f"{engine}-{vendor.lower()}{f'-{count}x' if count > 1 else ''}{'-fetched' if fetched else ''}.yaml"


def describe_case(case: Case) -> Description:
    """The model of a case."""
    engine, vendor, count, fetched = case
    secret = {"sourceSecret": "hub-token"} if fetched else {}
    gpu: dict[str, Any] = {"vendor": vendor.lower(), "vramEstimateMB": 9000}
    found = describe(
        {
            "kind": "Model",
            "metadata": {"name": "chat", "namespace": "default", "uid": "0b9f6a52-54a3-4a39-8ddb-6a8ee5e1a4a1"},
            "spec": {"backend": engine, "gpu": gpu | ({"count": count} if count else {}), **SPECS[engine], **secret},
        }
    )
    assert isinstance(found, Description), found
    return found


def manifests(case: Case) -> list[Object]:
    """Everything the manager would write for a case."""
    engine, vendor, count, fetched = case
    policy = FETCHING if fetched else POLICY
    wanted = describe_case(case)
    place = Placement(vendor, count)
    image = image_of(wanted, vendor, policy)
    assert image
    run = Run(f"chat-{engine}-000000000000", Option(CLASSES[vendor], "575", vendor, count, ("node-1",)), image)
    claim = [volume_claim(wanted)] if wanted.storage.make else []
    return [*claim, deployment(wanted, place, image, 1, policy), service(wanted), bench_job(wanted, run, policy)]


class _Dumper(yaml.SafeDumper):
    """Equal parts are written out, not referred to."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def rendered(case: Case) -> str:
    """The file's text."""
    return yaml.dump_all(manifests(case), Dumper=_Dumper, sort_keys=True, width=120)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.yaml"):
        old.unlink()
    for case in cases():
        file_of(case).write_text(rendered(case))


if __name__ == "__main__":
    main()
