"""vLLM: Hugging Face checkpoints on GPUs.

Command line: ``vllm/engine/arg_utils.py`` and ``vllm/entrypoints/openai/cli_args.py``. Architectures: vLLM 0.31,
Getting started, Installation, GPU.
"""

from flexinfer.core.lifecycle.engines.architectures import Architectures, names
from flexinfer.core.lifecycle.engines.base import (
    WEIGHT_FORMS,
    Engine,
    Launch,
    Option,
    Program,
    command_line,
    defaults,
    env,
    flags,
    object_name,
    revision,
)

_OPTIONS = {
    "maxModelLen": Option("--max-model-len"),
    "gpuMemoryUtilization": Option("--gpu-memory-utilization"),
    "tensorParallelSize": Option("--tensor-parallel-size"),
    "pipelineParallelSize": Option("--pipeline-parallel-size"),
    "dtype": Option("--dtype"),
    "quantization": Option("--quantization"),
    "kvCacheDtype": Option("--kv-cache-dtype"),
    "maxNumSeqs": Option("--max-num-seqs"),
    "maxNumBatchedTokens": Option("--max-num-batched-tokens"),
    "blockSize": Option("--block-size"),
    "cpuOffloadGB": Option("--cpu-offload-gb"),
    "tokenizer": Option("--tokenizer"),
    "chatTemplate": Option("--chat-template"),
    "toolCallParser": Option("--tool-call-parser"),
    "reasoningParser": Option("--reasoning-parser"),
    "enforceEager": Option("--enforce-eager", switch=True),
    "trustRemoteCode": Option("--trust-remote-code", switch=True),
    "enablePrefixCaching": Option("--enable-prefix-caching", switch=True, off="--no-enable-prefix-caching"),
    "enableChunkedPrefill": Option("--enable-chunked-prefill", switch=True, off="--no-enable-chunked-prefill"),
    "enableAutoToolChoice": Option("--enable-auto-tool-choice", switch=True),
    "maxLoras": Option("--max-loras"),
    "maxLoraRank": Option("--max-lora-rank"),
    "calculateKvScales": Option("--calculate-kv-scales", switch=True),
}


def _launch(launch: Launch) -> Program:
    source = launch.description.source
    values = defaults(launch, "tensorParallelSize", "quantization", WEIGHT_FORMS)
    ours = (
        launch.model_path or source.location,
        "--served-model-name", launch.description.key.name,
        "--host", launch.host,
        "--port", str(launch.port),
        *revision(launch),
        *flags(_OPTIONS, values),
        *_lora(launch),
    )  # fmt: skip
    args = command_line(ours, launch.description.args)
    return Program(args, command=("vllm", "serve"), env=(env("HF_HOME", launch.cache_path),))


def _lora(launch: Launch) -> tuple[str, ...]:
    adapters = launch.description.adapters
    if not adapters:
        return ()
    return ("--enable-lora", "--lora-modules", *(f"{one.name}={launch.adapter_path(one)}" for one in adapters))


VLLM = Engine(
    name="vllm",
    port=8000,
    images={
        "NVIDIA": "vllm/vllm-openai:latest",
        "AMD": "vllm/vllm-openai-rocm:latest",
        "INTEL": "intel/vllm:latest",
    },
    schemes=frozenset({"hf", "file", "pvc", "oci"}),
    launch=_launch,
    served_model=object_name,
    options=_OPTIONS,
    context_option="maxModelLen",
    shared_memory=True,
    startup_seconds=900.0,  # weights, compilation and graph capture
    adapter_schemes=frozenset({"hf", "file"}),
    adapter_body=lambda _description, adapter: {"model": adapter.name},
    architectures={
        "NVIDIA": Architectures(75),
        "AMD": Architectures(names=names("gfx90a gfx942 gfx950 gfx1100 gfx1101 gfx1150 gfx1151 gfx1200 gfx1201")),
    },
    own_flags=("--host", "--port", "--served-model-name"),
)
