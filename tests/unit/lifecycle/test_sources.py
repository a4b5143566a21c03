"""Model sources: every form that is documented, and nothing raises but BadSource."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.core.lifecycle.sources import BadSource, Source, parse_source


@pytest.mark.parametrize(
    ("text", "backend", "found"),
    [
        ("HF://org/model", "vllm", Source("hf", "org/model")),
        ("hf://org/repo/dir/file.gguf", "llamacpp", Source("hf", "org/repo", "dir/file.gguf")),
        ("hf://org/repo:Q4_K_M", "llamacpp", Source("hf", "org/repo", variant="Q4_K_M")),
        ("hf://org/repo@v1.0", "vllm", Source("hf", "org/repo", revision="v1.0")),
        ("org/repo", "sglang", Source("hf", "org/repo")),
        ("llama3:8b", "ollama", Source("ollama", "llama3:8b")),
        ("ollama://library/llama3", "ollama", Source("ollama", "library/llama3")),
        ("/models/x.gguf", "llamacpp", Source("file", "/models/x.gguf")),
        ("file:///models/x.gguf", "llamacpp", Source("file", "/models/x.gguf")),
        ("pvc://weights/a/b", "vllm", Source("pvc", "weights", "a/b")),
        ("pvc://weights", "vllm", Source("pvc", "weights")),
        ("oci://reg.example:5000/img:1!m", "vllm", Source("oci", "reg.example:5000/img:1", "m")),
    ],
)
def test_forms(text: str, backend: str, found: Source) -> None:
    assert parse_source(text, backend) == found


@pytest.mark.parametrize(
    "text", ["", "x", "file://x", "file:///", "file:///a/../b", "pvc://A", "pvc://a/../b", "hf://one", "oci:// ", "://"]
)
def test_wrong_forms_say_what_to_write(text: str) -> None:
    with pytest.raises(BadSource, match=r"://"):
        parse_source(text, "llamacpp")


@given(st.text(max_size=200), st.sampled_from(["ollama", "vllm", "custom"]))
def test_no_text_raises_anything_else(text: str, backend: str) -> None:
    try:
        found = parse_source(text, backend)
    except BadSource:
        return
    assert parse_source(found.text, backend).scheme == found.scheme
