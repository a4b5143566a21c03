"""What people apply in the proof of the chart."""

from pathlib import Path
from typing import Any

import yaml

EXAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "examples" / "smollm2.yaml"
# The example as it stands measures for minutes on a busy machine; one engine thread, because two that wait for each
# other lose most of their time beside a control plane.
SHORTER = {
    "args": ["--ctx-size", "2048", "--parallel", "2", "--threads", "1"],
    "benchmark": {"concurrency": [1], "minDuration": "1s", "iterations": 1, "warmupIterations": 1, "batchSize": 16},
}
EXAMPLE_IMAGE = "ghcr.io/ggml-org/llama.cpp:server"
# No node can hold it. It is there for what a model of the newer kind with a volume of its own makes the manager do.
WAITING = {
    "apiVersion": "ai.flexinfer/v1alpha2",
    "kind": "Model",
    "spec": {
        "backend": "llamacpp",
        "source": "hf://example/tiny-GGUF",
        "image": EXAMPLE_IMAGE,
        "gpu": {"vendor": "cpu", "count": 0},
        "resources": {"requests": {"cpu": "1000"}, "limits": {"cpu": "1000"}},
        "benchmark": {"enabled": False},
        "cache": {"strategy": "SharedPVC", "size": "1Gi"},
    },
}
BARE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "bare", "namespace": "default"},
    "spec": {
        "schedulerName": "flexinfer-scheduler",
        "containers": [{"name": "sleep", "image": "busybox:1", "command": ["sleep", "600"]}],
    },
}
HELD = (["flexinfer.ai/finalizer"], "Running")


def example() -> dict[str, Any]:
    """The example of the docs, measured for a shorter time."""
    model: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    model["spec"] |= SHORTER
    return model
