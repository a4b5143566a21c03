"""Keys other tools read and write on nodes and pods, with the default prefix.

The agent's ``--label-prefix`` changes the prefix of node keys only; pod keys are fixed.
"""

import re

DEFAULT_PREFIX = "flexinfer.ai/"

NODE_LABELS = (
    "gpu.vendor", "gpu.vram", "gpu.arch", "gpu.int4", "gpu.count", "cpu.avx512",
    "gpu.product", "gpu.health", "gpu.memory-type", "gpu.mixed",
)  # fmt: skip
NODE_ANNOTATIONS = ("gpu.util", "gpu-free-memory", "kv-cache-usage", "gpu-devices")
COST_ANNOTATION = "cost"  # set by people, per hour; never written or removed by us
ENABLED_LABEL = "enabled"
VIRTUAL_LABEL = "virtual"  # "true" on nodes that are declared, not detected
CACHED_LABEL = "cached."  # "true" on nodes whose cache holds a model; ends in the digest of its entry

POD_MODEL = "flexinfer.ai/model"
POD_BACKEND = "flexinfer.ai/backend"
POD_VRAM_ESTIMATE = "flexinfer.ai/gpu.vram-estimate-mb"
POD_ARCH = "flexinfer.ai/gpu.arch"
POD_VENDOR = "flexinfer.ai/gpu.vendor"
POD_QUANTIZATION = "flexinfer.ai/quantization"
POD_CACHE_ENTRY = "flexinfer.ai/cache-entry"  # entries of the node's cache the pod uses, separated by commas
POD_BENCHMARK_KEY = "flexinfer.ai/benchmark-key"

FINALIZER = "flexinfer.ai/finalizer"
FIELD_MANAGER = "flexinfer-manager"
SCHEDULER_NAME = "flexinfer-scheduler"
BENCHMARK_CONFIGMAP = "flexinfer-benchmark-results"
BENCHMARK_APP_LABEL = "flexinfer-benchmarks"

GPU_RESOURCES = {
    "NVIDIA": "nvidia.com/gpu",
    "AMD": "amd.com/gpu",
    "INTEL": "gpu.intel.com/xe",
}
# i915 is the older name of the same resource: read everywhere, written nowhere.
GPU_RESOURCE_VENDOR = {
    "nvidia.com/gpu": "NVIDIA",
    "amd.com/gpu": "AMD",
    "gpu.intel.com/xe": "INTEL",
    "gpu.intel.com/i915": "INTEL",
}


def cached_label(entry: str) -> str | None:
    """Name, without prefix, of the node label that stands for a cache entry; None for what is named in another way.

    >>> cached_label("o-m-gguf-q4-k-m-2c8757c26de9"), cached_label("lost+found")
    ('cached.2c8757c26de9', None)
    """
    digest = entry.rpartition("-")[2]
    return CACHED_LABEL + digest if re.fullmatch(r"[0-9a-f]{12}", digest) else None
