"""Ollama: pulls by tag. The pull happens before the server counts as started, so a ready pod has its model.

It has no arguments but environment variables: ``envconfig/config.go``. Intel cards are reached through Vulkan, which
is off unless asked for: ``docs/gpu.mdx``, which also says that NVIDIA needs compute capability 5.0.
"""

from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.engines.architectures import Architectures
from flexinfer.core.lifecycle.engines.base import CPU, Engine, Launch, Option, Program, env, text
from flexinfer.core.lifecycle.sources import Source

# The server is needed to pull; it ends with the shell.
_PULL = (
    "ollama serve & until ollama list >/dev/null 2>&1; do sleep 1; done; "
    'ollama pull "$FLEXINFER_OLLAMA_MODEL"'
)  # fmt: skip

_ENV = {
    "contextSize": "OLLAMA_CONTEXT_LENGTH",
    "parallel": "OLLAMA_NUM_PARALLEL",
    "flashAttention": "OLLAMA_FLASH_ATTENTION",
    "kvCacheType": "OLLAMA_KV_CACHE_TYPE",
    "keepAlive": "OLLAMA_KEEP_ALIVE",
    "maxLoadedModels": "OLLAMA_MAX_LOADED_MODELS",
}


def _tag(source: Source) -> str:
    if source.scheme == "hf":
        return f"hf.co/{source.location}" + (f":{source.variant}" if source.variant else "")
    return source.location


def _served(description: Description) -> str:
    return _tag(description.source)


def _launch(launch: Launch) -> Program:
    # Loaded once and kept: an engine that unloads by itself would look ready and answer after a minute.
    values = {"keepAlive": "-1", "maxLoadedModels": 1, **launch.description.options}
    settings = tuple(env(_ENV[name], _switch(values[name])) for name in _ENV if name in values)
    return Program(
        ("serve",),
        command=("/bin/ollama",),
        env=(
            env("OLLAMA_HOST", f"{launch.host}:{launch.port}"),
            env("OLLAMA_MODELS", launch.model_path if launch.fetched else launch.cache_path),
            *((env("OLLAMA_NOPRUNE", "1"),) if launch.fetched else ()),  # others share what is there
            *((env("OLLAMA_VULKAN", "1"),) if launch.vendor == "INTEL" else ()),
            *settings,
        ),
    )


def _switch(value: object) -> str:
    return {True: "1", False: "0"}.get(value, text(value)) if isinstance(value, bool) else text(value)


def _prepare(launch: Launch) -> Program | None:
    if launch.fetched:
        return None
    return Program(
        (_PULL,),
        command=("/bin/sh", "-ec"),
        env=(
            env("FLEXINFER_OLLAMA_MODEL", _tag(launch.description.source)),
            env("OLLAMA_MODELS", launch.cache_path),
        ),
    )


OLLAMA = Engine(
    name="ollama",
    port=11434,
    images={
        CPU: "ollama/ollama:latest",
        "NVIDIA": "ollama/ollama:latest",
        "AMD": "ollama/ollama:rocm",
        "INTEL": "ollama/ollama:latest",
    },
    schemes=frozenset({"ollama", "hf"}),
    launch=_launch,
    served_model=_served,
    health="/",
    prepare=_prepare,
    options={name: Option("") for name in _ENV},
    context_option="contextSize",
    parallel_option="parallel",
    takes_args=False,
    form="store",
    architectures={"NVIDIA": Architectures(50)},
    own_flags=(),
)
