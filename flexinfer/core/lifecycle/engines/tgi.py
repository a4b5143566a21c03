"""Hugging Face Text Generation Inference.

Command line: ``docs/source/reference/launcher.md``. Its parser refuses a flag that is given twice. Architectures:
``docs/source/installation_amd.md`` names MI210, MI250 and MI300.
"""

from flexinfer.core.lifecycle.engines.architectures import Architectures, names
from flexinfer.core.lifecycle.engines.base import (
    Engine,
    Launch,
    Option,
    Program,
    command_line,
    defaults,
    env,
    flags,
    revision,
)

_IMAGE = "ghcr.io/huggingface/text-generation-inference"

_OPTIONS = {
    "maxTotalTokens": Option("--max-total-tokens"),
    "maxInputTokens": Option("--max-input-tokens"),
    "maxBatchPrefillTokens": Option("--max-batch-prefill-tokens"),
    "maxConcurrentRequests": Option("--max-concurrent-requests"),
    "quantize": Option("--quantize"),
    "dtype": Option("--dtype"),
    "numShard": Option("--num-shard"),
    "cudaMemoryFraction": Option("--cuda-memory-fraction"),
    "trustRemoteCode": Option("--trust-remote-code", switch=True),
}
_QUANTIZE = {"awq": "awq", "gptq": "gptq", "fp8": "fp8", "int8": "bitsandbytes", "int4": "bitsandbytes-nf4"}


def _launch(launch: Launch) -> Program:
    source = launch.description.source
    values = defaults(launch, "numShard", "quantize", _QUANTIZE)
    ours = (
        "--model-id", launch.model_path or source.location,
        "--hostname", launch.host,
        "--port", str(launch.port),
        *revision(launch),
        *flags(_OPTIONS, values),
    )  # fmt: skip
    args = command_line(ours, launch.description.args)
    return Program(args, env=(env("HUGGINGFACE_HUB_CACHE", launch.cache_path),))


TGI = Engine(
    name="tgi",
    port=8080,
    images={
        "NVIDIA": f"{_IMAGE}:latest",
        "AMD": f"{_IMAGE}:latest-rocm",
        "INTEL": f"{_IMAGE}:latest-intel-xpu",
    },
    schemes=frozenset({"hf", "file", "pvc", "oci"}),
    launch=_launch,
    served_model=lambda _description: "",  # it serves one model under any name
    options=_OPTIONS,
    context_option="maxTotalTokens",
    shared_memory=True,
    startup_seconds=900.0,
    architectures={"NVIDIA": Architectures(75), "AMD": Architectures(names=names("gfx90a gfx942"))},
    own_flags=("--hostname", "--port"),
)
