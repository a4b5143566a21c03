"""llama.cpp's server: one GGUF file, CPUs and every vendor of GPUs."""

from flexinfer.core.lifecycle.engines.base import CPU, Engine, Launch, Option, Program, env, flags, object_name

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
    "mlock": Option("--mlock", switch=True),
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
    args = (
        *_model(launch),
        "--alias", launch.description.key.name,
        "--host", launch.host,
        "--port", str(launch.port),
        "--metrics",
        "--slots",
        *flags(_OPTIONS, values),
        *launch.description.args,
    )  # fmt: skip
    return Program(args, env=(env("LLAMA_CACHE", launch.cache_path),) if not launch.model_path else ())


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
)
