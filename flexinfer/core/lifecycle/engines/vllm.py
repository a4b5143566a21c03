"""vLLM: Hugging Face checkpoints on GPUs."""

from flexinfer.core.lifecycle.engines.base import Engine, Launch, Option, Program, env, flags, object_name

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
    "swapSpace": Option("--swap-space"),
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
    "calculateKvScales": Option("--calculate-kv-scales", switch=True),
}


def _launch(launch: Launch) -> Program:
    source = launch.description.source
    values = dict(launch.description.options)
    if launch.count > 1:
        values.setdefault("tensorParallelSize", launch.count)
    form = launch.description.demand.quantization
    if form in {"awq", "gptq", "fp8"}:
        values.setdefault("quantization", form)
    args = (
        launch.model_path or source.location,
        "--served-model-name", launch.description.key.name,
        "--host", launch.host,
        "--port", str(launch.port),
        *(("--revision", source.revision) if source.revision else ()),
        *flags(_OPTIONS, values),
        *launch.description.args,
    )  # fmt: skip
    return Program(args, command=("vllm", "serve"), env=(env("HF_HOME", launch.cache_path),))


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
)
