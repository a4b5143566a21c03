"""NVIDIA TensorRT-LLM through ``trtllm-serve``.

Command line: ``tensorrt_llm/commands/serve.py``. Architectures: its page Supported Hardware, Ampere and newer.
"""

from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.engines.architectures import Architectures
from flexinfer.core.lifecycle.engines.base import (
    Engine,
    Launch,
    Option,
    Program,
    command_line,
    defaults,
    env,
    flags,
)

_OPTIONS = {
    "maxSeqLen": Option("--max_seq_len"),
    "maxBatchSize": Option("--max_batch_size"),
    "maxNumTokens": Option("--max_num_tokens"),
    "kvCacheFreeGpuMemoryFraction": Option("--kv_cache_free_gpu_memory_fraction"),
    "tensorParallelSize": Option("--tp_size"),
    "pipelineParallelSize": Option("--pp_size"),
    "backend": Option("--backend"),
    "tokenizer": Option("--tokenizer"),
    "trustRemoteCode": Option("--trust_remote_code", switch=True),
}


def _served(description: Description) -> str:
    """``trtllm-serve`` names the model after what it was given: the repository, or the last part of a path."""
    source = description.source
    return source.location if source.scheme == "hf" else source.name


def _launch(launch: Launch) -> Program:
    source = launch.description.source
    values = defaults(launch, "tensorParallelSize")
    ours = (
        launch.model_path or source.location,
        "--host", launch.host,
        "--port", str(launch.port),
        *flags(_OPTIONS, values),
    )  # fmt: skip
    args = command_line(ours, launch.description.args)
    return Program(args, command=("trtllm-serve",), env=(env("HF_HOME", launch.cache_path),))


TENSORRT_LLM = Engine(
    name="tensorrt-llm",
    port=8000,
    images={"NVIDIA": "nvcr.io/nvidia/tensorrt-llm/release:latest"},
    schemes=frozenset({"hf", "file", "pvc", "oci"}),
    launch=_launch,
    served_model=_served,
    options=_OPTIONS,
    context_option="maxSeqLen",
    shared_memory=True,
    startup_seconds=1800.0,  # builds or tunes its kernels at the first start
    architectures={"NVIDIA": Architectures(80)},
)
