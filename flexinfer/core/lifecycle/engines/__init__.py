"""Inference engines, one file each: image, port, command line, health, options."""

import re

from flexinfer.core.lifecycle.engines.base import CPU, Engine, Launch, Option, Program
from flexinfer.core.lifecycle.engines.custom import CUSTOM
from flexinfer.core.lifecycle.engines.llamacpp import LLAMACPP
from flexinfer.core.lifecycle.engines.ollama import OLLAMA
from flexinfer.core.lifecycle.engines.sglang import SGLANG
from flexinfer.core.lifecycle.engines.tensorrt_llm import TENSORRT_LLM
from flexinfer.core.lifecycle.engines.tgi import TGI
from flexinfer.core.lifecycle.engines.vllm import VLLM

__all__ = ["CPU", "ENGINES", "GROUP", "Engine", "Launch", "Option", "Program", "engine_named", "register"]

ENGINES: dict[str, Engine] = {
    engine.name: engine for engine in (OLLAMA, VLLM, LLAMACPP, TGI, SGLANG, TENSORRT_LLM, CUSTOM)
}

GROUP = "flexinfer.engines"
"""Entry-point group under which other packages offer an engine each; see docs/engines.md."""

_SPELLINGS = {"llama.cpp": "llamacpp", "trtllm": "tensorrt-llm", "text-generation-inference": "tgi"}


def engine_named(name: str) -> Engine | None:
    """The engine of a ``spec.backend``, other spellings included."""
    lower = name.lower()
    return ENGINES.get(_SPELLINGS.get(lower, lower))


def register(engine: object) -> None:
    """Add an engine to those models can name. Raises TypeError for what is none, ValueError if its name is taken or
    no name of a backend."""
    if not isinstance(engine, Engine):
        raise TypeError(f"{engine!r} is no flexinfer.core.lifecycle.engines.Engine")
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", engine.name):
        raise ValueError(f"{engine.name!r} is no name for a backend: lower case letters, digits and dashes")
    if ENGINES.get(engine.name, engine) is not engine or engine.name in _SPELLINGS:
        raise ValueError(f"there is a backend {engine.name} already")
    ENGINES[engine.name] = engine
