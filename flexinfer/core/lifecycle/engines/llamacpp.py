"""llama.cpp's server: one GGUF file, CPUs and every vendor of GPUs.

Command line: ``tools/server/README.md``, and the flags compiled into its 2026 builds, which take memory locking as
``--load-mode mlock`` and several adapters separated by commas.
"""

from collections.abc import Mapping
from typing import Any

from flexinfer.core.lifecycle.description import Adapter, Description
from flexinfer.core.lifecycle.engines.base import (
    CPU,
    Engine,
    Launch,
    Option,
    Program,
    command_line,
    env,
    flags,
    object_name,
    text,
)

_IMAGE = "ghcr.io/ggml-org/llama.cpp"

_OPTIONS = {
    "contextSize": Option("--ctx-size"),
    "parallel": Option("--parallel"),
    "batchSize": Option("--batch-size"),
    "ubatchSize": Option("--ubatch-size"),
    "threads": Option("--threads"),
    "nGPULayers": Option("--n-gpu-layers"),
    "mainGPU": Option("--main-gpu"),
    "flashAttention": Option("--flash-attn"),
    "cacheTypeK": Option("--cache-type-k"),
    "cacheTypeV": Option("--cache-type-v"),
    "ropeFreqBase": Option("--rope-freq-base"),
    "ropeFreqScale": Option("--rope-freq-scale"),
    "mlock": Option("--load-mode mmap+mlock", switch=True),
    "jinja": Option("--jinja", switch=True, off="--no-jinja"),
    "embeddings": Option("--embeddings", switch=True),
    "chatTemplate": Option("--chat-template"),
}


def _model(launch: Launch) -> tuple[str, ...]:
    source = launch.description.source
    if launch.model_path:
        return ("--model", launch.model_path)
    if source.path:
        return ("--hf-repo", source.location, "--hf-file", source.path)
    return ("--hf-repo", f"{source.location}:{source.variant}" if source.variant else source.location)


def _launch(launch: Launch) -> Program:
    values = dict(launch.description.options)
    if isinstance(values.get("flashAttention"), bool):
        values["flashAttention"] = "on" if values["flashAttention"] else "off"
    if launch.vendor != CPU:
        values.setdefault("nGPULayers", 999)  # all of them: a device was asked for and measured
    ours = (
        *_model(launch),
        "--alias", launch.description.key.name,
        "--host", launch.host,
        "--port", str(launch.port),
        "--metrics",
        "--slots",
        *flags(_OPTIONS, values),
        *_lora(launch),
    )  # fmt: skip
    args = command_line(ours, launch.description.args)
    return Program(args, env=(env("LLAMA_CACHE", launch.cache_path),) if not launch.model_path else ())


def _lora(launch: Launch) -> tuple[str, ...]:
    adapters = launch.description.adapters
    if not adapters:
        return ()
    if all(one.scale is None for one in adapters):
        return ("--lora", ",".join(launch.adapter_path(one) for one in adapters))
    scaled = (f"{launch.adapter_path(one)}:{text(1.0 if one.scale is None else one.scale)}" for one in adapters)
    return ("--lora-scaled", ",".join(scaled))


def _only(description: Description, adapter: Adapter) -> Mapping[str, Any]:
    """Adapters are numbered as in the command line; those a request does not list do not count for it
    (``tools/server/README.md``, field ``lora``)."""
    scale = 1.0 if adapter.scale is None else adapter.scale
    return {"model": description.key.name, "lora": [{"id": description.adapters.index(adapter), "scale": scale}]}


LLAMACPP = Engine(
    name="llamacpp",
    port=8080,
    images={
        CPU: f"{_IMAGE}:server",
        "NVIDIA": f"{_IMAGE}:server-cuda",
        "AMD": f"{_IMAGE}:server-rocm",
        "INTEL": f"{_IMAGE}:server-intel",
    },
    schemes=frozenset({"hf", "file", "pvc", "oci"}),
    launch=_launch,
    served_model=object_name,
    options=_OPTIONS,
    context_option="contextSize",
    form="gguf",
    adapter_schemes=frozenset({"file"}),
    adapter_body=_only,
    own_flags=("--host", "--port", "--alias", "--metrics", "--slots"),
)
