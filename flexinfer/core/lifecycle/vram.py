"""How much accelerator memory a model needs, when the user did not say. Rule and sources: docs/vram-estimate.md.

``weights + key-value cache + overhead``, from what is in the model's name: parameters and quantisation. A guess is
better than nothing for placement, and its user can always replace it with ``gpu.vramEstimateMB``.
"""

import math
import re

DEFAULT_CONTEXT = 4096
OVERHEAD_MB = 500  # runtime context and scratch buffers
HEADROOM = 1.1

# Bits per weight, scales included; see docs/vram-estimate.md for where each comes from.
BITS: dict[str, float] = {
    "f32": 32, "fp32": 32, "f16": 16, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "w8a8": 8,
    "awq": 4.25, "gptq": 4.25, "int4": 4.25, "w4a16": 4.25, "fp4": 4.5, "nvfp4": 4.5, "mxfp4": 4.25,
    "q8_0": 8.5, "q6_k": 6.56, "q5_k_m": 5.68, "q5_k_s": 5.52, "q5_1": 6.04, "q5_0": 5.57,
    "q4_k_m": 4.84, "q4_k_s": 4.58, "q4_k": 4.84, "q4_1": 5.11, "q4_0": 4.64, "iq4_xs": 4.25, "iq4_nl": 4.5,
    "q3_k_l": 4.27, "q3_k_m": 3.91, "q3_k_s": 3.5, "iq3_xxs": 3.06, "q2_k": 3.35, "iq2_xxs": 2.06,
}  # fmt: skip

# What an engine loads when the name says nothing.
DEFAULT_FORMAT = {"ollama": "q4_k_m", "llamacpp": "q8_0"}

_NAMES = sorted(BITS, key=len, reverse=True)


def guess_format(name: str) -> str | None:
    """The quantisation a model's name tells, lower case.

    >>> guess_format("SmolLM2-135M-Instruct.Q4_1.gguf"), guess_format("Qwen3-8B-AWQ"), guess_format("llama3")
    ('q4_1', 'awq', None)
    """
    text = name.lower()
    return next((form for form in _NAMES if re.search(rf"(?<![a-z0-9]){form}(?![a-z0-9])", text)), None)


def guess_parameters(name: str) -> float | None:
    """Parameters in thousand millions, experts included.

    >>> guess_parameters("llama3:8b"), guess_parameters("SmolLM2-135M"), guess_parameters("Mixtral-8x7B")
    (8.0, 0.135, 56.0)
    """
    found = re.search(r"(?<![a-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])", name.lower())
    if not found:
        return None
    size = float(found.group(2)) * (1 if found.group(3) == "b" else 0.001)
    return size * int(found.group(1) or 1)


def estimate_mb(name: str, backend: str, form: str | None, context: int | None, streams: int = 1) -> int | None:
    """Memory of one replica in MB (10^6 bytes, as ``vramEstimateMB``); None when the name tells no size.

    ``context`` is the context length in tokens, ``streams`` how many of that length are kept at once.
    """
    billions = guess_parameters(name)
    if billions is None:
        return None
    chosen = (form or guess_format(name) or DEFAULT_FORMAT.get(backend, "fp16")).lower()
    weights = billions * 1000 * BITS.get(chosen, 16) / 8
    # Grouped-query attention: 128 KiB a token at 8B, 320 KiB at 70B, 22 KiB at 135M lie on this curve.
    per_token = 46 * math.pow(billions, 0.46) * 1024 / 1e6
    cache = per_token * (context or DEFAULT_CONTEXT) * streams
    return math.ceil((weights + cache) * HEADROOM + OVERHEAD_MB)
