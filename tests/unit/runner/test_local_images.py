"""Which local program stands for an image."""

import pytest

from flexinfer.local.runner.images import ImageTable, LocalImage, repository

TABLE = ImageTable(
    {
        "ghcr.io/ggml-org/llama.cpp": ("llama",),
        "flexinfer/benchmarker:latest": ("bench",),
        "flexinfer/benchmarker:special": ("special",),
        "ollama/ollama": LocalImage(("ollama",), env={"A": "1"}),
    }
)


@pytest.mark.parametrize(
    ("reference", "entrypoint"),
    [
        ("ghcr.io/ggml-org/llama.cpp:server", ("llama",)),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda", ("llama",)),
        ("ghcr.io/ggml-org/llama.cpp@sha256:00", ("llama",)),
        ("ghcr.io/ggml-org/llama.cpp:server@sha256:00", ("llama",)),
        ("flexinfer/benchmarker:special", ("special",)),
        ("docker.io/ollama/ollama:rocm", ("ollama",)),
    ],
)
def test_found_as_written_or_by_repository(reference, entrypoint):
    found = TABLE.find(reference)

    assert found is not None
    assert found.entrypoint == entrypoint


@pytest.mark.parametrize("reference", ["ghcr.io/ggml-org/other", "llama.cpp:server", "", "vllm/vllm-openai"])
def test_an_unknown_image_is_named_with_the_known_ones(reference):
    assert TABLE.find(reference) is None
    assert f'"{reference}"' in TABLE.missing(reference)
    assert "ollama/ollama" in TABLE.missing(reference)


def test_a_registry_port_is_no_tag():
    assert repository("localhost:5000/a/b") == "localhost:5000/a/b"
    assert repository("localhost:5000/a/b:1") == "localhost:5000/a/b"
