"""Inference engines, one file each: image, port, command line, health, options."""

from flexinfer.core.lifecycle.engines.base import CPU, Engine, Launch, Option, Program
from flexinfer.core.lifecycle.engines.custom import CUSTOM
from flexinfer.core.lifecycle.engines.llamacpp import LLAMACPP
from flexinfer.core.lifecycle.engines.ollama import OLLAMA
from flexinfer.core.lifecycle.engines.sglang import SGLANG
from flexinfer.core.lifecycle.engines.tensorrt_llm import TENSORRT_LLM
from flexinfer.core.lifecycle.engines.tgi import TGI
from flexinfer.core.lifecycle.engines.vllm import VLLM

__all__ = ["CPU", "ENGINES", "Engine", "Launch", "Option", "Program", "engine_named"]

ENGINES: dict[str, Engine] = {
    engine.name: engine for engine in (OLLAMA, VLLM, LLAMACPP, TGI, SGLANG, TENSORRT_LLM, CUSTOM)
}

_SPELLINGS = {"llama.cpp": "llamacpp", "trtllm": "tensorrt-llm", "text-generation-inference": "tgi"}


def engine_named(name: str) -> Engine | None:
    """The engine of a ``spec.backend``, other spellings included."""
    lower = name.lower()
    return ENGINES.get(_SPELLINGS.get(lower, lower))
