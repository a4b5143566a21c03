"""What a weight format needs of a device: a table engine × format → need.

Sources: the GGUF kernels of llama.cpp dequantise on any device; vLLM's table of supported hardware (AWQ and GPTQ
from compute capability 7.5, which is the ``gpu.int4`` rule; FP8 compute from 8.9, FP8 weights through Marlin from
8.0); AMD's FP8 units came with gfx942, gfx950 and gfx12.
"""

import re
from typing import Literal

from flexinfer.contracts.events import Device

Need = Literal["nothing", "int4", "fp8", "fp8-weights", "unknown"]

_GGUF = re.compile(r"(gguf|i?q[1-8](_[0-9a-z]+)*|tq[12]_0)")
_PLAIN = frozenset({"", "none", "f32", "fp32", "f16", "fp16", "bf16", "float16", "bfloat16", "auto"})
_INT4 = frozenset({"awq", "awq_marlin", "gptq", "gptq_marlin", "int4", "w4a16", "compressed-tensors-int4"})
_FP8 = frozenset({"fp8", "fp8_e4m3", "w8a8-fp8"})
_GGUF_ENGINES = frozenset({"llamacpp", "ollama"})
_FP8_WEIGHT_ENGINES = frozenset({"vllm", "sglang"})

FP8_SM = 89
FP8_WEIGHTS_SM = 80
_FP8_GFX = re.compile(r"gfx(942|950|12[0-9a-f]{2})")


def need_of(backend: str, form: str) -> Need:
    """What serving ``form`` with ``backend`` asks of a device.

    >>> need_of("llamacpp", "q4_k_m"), need_of("vllm", "awq"), need_of("tgi", "fp8"), need_of("vllm", "exl3")
    ('nothing', 'int4', 'fp8', 'unknown')
    """
    if form in _PLAIN or backend in _GGUF_ENGINES or _GGUF.fullmatch(form):
        return "nothing"
    if form in _INT4:
        return "int4"
    if form in _FP8:
        return "fp8-weights" if backend in _FP8_WEIGHT_ENGINES else "fp8"
    return "unknown"


def meets(device: Device, need: Need) -> bool:
    """Whether a device can serve it; what is not known of a device does not help it."""
    if need in {"nothing", "unknown"}:
        return True
    if need == "int4":
        return device.int4 is True
    arch = device.arch or ""
    if device.vendor == "AMD":
        return _FP8_GFX.fullmatch(arch) is not None
    found = re.fullmatch(r"sm_([0-9]{2,3})[a-z]?", arch)
    return found is not None and int(found.group(1)) >= (FP8_SM if need == "fp8" else FP8_WEIGHTS_SM)
