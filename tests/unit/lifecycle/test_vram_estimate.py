"""The memory estimate against sizes people know."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.core.lifecycle.vram import estimate_mb, guess_format, guess_parameters


@pytest.mark.parametrize(
    ("name", "backend", "context", "low", "high"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "llamacpp", 4096, 600, 800),
        ("llama3:8b", "ollama", 8192, 6000, 7500),  # 4.9 GB of weights, 1 GB of cache
        ("Llama-3.1-8B-Instruct", "vllm", 8192, 18000, 21000),  # 16 GB of weights in bf16
        ("Llama-3.3-70B-Instruct-AWQ", "vllm", 8192, 42000, 46000),  # 40 GB of weights
        ("Qwen3-32B-FP8", "vllm", 32768, 40000, 48000),
        ("Mixtral-8x7B-Instruct-Q4_K_M", "llamacpp", 4096, 35000, 43000),
    ],
)
def test_known_models(name: str, backend: str, context: int, low: int, high: int) -> None:
    found = estimate_mb(name, backend, None, context)

    assert found is not None
    assert low <= found <= high


def test_a_name_without_a_size_gives_no_estimate() -> None:
    assert estimate_mb("gpt-oss", "vllm", None, None) is None
    assert guess_parameters("v1.5b2") is None
    assert guess_parameters("phi-3-mini") is None


@pytest.mark.parametrize(
    ("name", "form"), [("x-GPTQ-Int4", "gptq"), ("x.IQ4_XS.gguf", "iq4_xs"), ("x-w4a16", "w4a16"), ("freq4_0x", None)]
)
def test_formats(name: str, form: str | None) -> None:
    assert guess_format(name) == form


@given(st.integers(1, 400), st.integers(1, 200_000), st.sampled_from(["q4_0", "awq", "fp8", "bf16"]))
def test_more_of_anything_needs_no_less(size: int, context: int, form: str) -> None:
    base = estimate_mb(f"m-{size}b", "vllm", form, context)
    assert base is not None
    assert base <= (estimate_mb(f"m-{size + 1}b", "vllm", form, context) or 0)
    assert base <= (estimate_mb(f"m-{size}b", "vllm", form, context + 1) or 0)
    assert base <= (estimate_mb(f"m-{size}b", "vllm", "fp32", context) or 0)
