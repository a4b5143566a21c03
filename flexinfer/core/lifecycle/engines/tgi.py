"""Hugging Face Text Generation Inference."""

from flexinfer.core.lifecycle.engines.base import Engine, Launch, Option, Program, env, flags

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
    values = dict(launch.description.options)
    if launch.count > 1:
        values.setdefault("numShard", launch.count)
    form = launch.description.demand.quantization
    if form in _QUANTIZE:
        values.setdefault("quantize", _QUANTIZE[form])
    args = (
        "--model-id", launch.model_path or source.location,
        "--hostname", launch.host,
        "--port", str(launch.port),
        *(("--revision", source.revision) if source.revision else ()),
        *flags(_OPTIONS, values),
        *launch.description.args,
    )  # fmt: skip
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
)
