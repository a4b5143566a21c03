"""SGLang."""

from flexinfer.core.lifecycle.engines.base import Engine, Launch, Option, Program, env, flags, object_name

_OPTIONS = {
    "contextLength": Option("--context-length"),
    "memFractionStatic": Option("--mem-fraction-static"),
    "maxRunningRequests": Option("--max-running-requests"),
    "tensorParallelSize": Option("--tp-size"),
    "dataParallelSize": Option("--dp-size"),
    "dtype": Option("--dtype"),
    "quantization": Option("--quantization"),
    "kvCacheDtype": Option("--kv-cache-dtype"),
    "attentionBackend": Option("--attention-backend"),
    "chunkedPrefillSize": Option("--chunked-prefill-size"),
    "toolCallParser": Option("--tool-call-parser"),
    "reasoningParser": Option("--reasoning-parser"),
    "trustRemoteCode": Option("--trust-remote-code", switch=True),
    "disableRadixCache": Option("--disable-radix-cache", switch=True),
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
        "--model-path", launch.model_path or source.location,
        "--served-model-name", launch.description.key.name,
        "--host", launch.host,
        "--port", str(launch.port),
        "--enable-metrics",
        *(("--revision", source.revision) if source.revision else ()),
        *flags(_OPTIONS, values),
        *launch.description.args,
    )  # fmt: skip
    return Program(args, command=("python3", "-m", "sglang.launch_server"), env=(env("HF_HOME", launch.cache_path),))


SGLANG = Engine(
    name="sglang",
    port=30000,
    images={"NVIDIA": "lmsysorg/sglang:latest"},
    schemes=frozenset({"hf", "file", "pvc", "oci"}),
    launch=_launch,
    served_model=object_name,
    options=_OPTIONS,
    context_option="contextLength",
    shared_memory=True,
)
