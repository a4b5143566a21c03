"""SGLang.

Command line: ``sglang/srt/server_args.py`` and ``sglang/srt/arg_groups``, release 0.5.23. There is an AMD image per
release and card only, so AMD needs ``spec.image``. Architectures: the kernels of its wheels begin at Turing.
"""

from flexinfer.core.lifecycle.engines.architectures import Architectures
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
    values = defaults(launch, "tensorParallelSize", "quantization", WEIGHT_FORMS)
    ours = (
        "--model-path", launch.model_path or source.location,
        "--served-model-name", launch.description.key.name,
        "--host", launch.host,
        "--port", str(launch.port),
        "--enable-metrics",
        *revision(launch),
        *flags(_OPTIONS, values),
    )  # fmt: skip
    args = command_line(ours, launch.description.args)
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
    startup_seconds=900.0,
    architectures={"NVIDIA": Architectures(75)},
    own_flags=("--host", "--port", "--served-model-name", "--enable-metrics"),
)
