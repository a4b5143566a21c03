"""Weights from a hub: fetched by the init step into the node's cache once, served by the real engine, told by the
agent."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from driving import Up, eventually

from flexinfer.local.demo_model import find_demo_model

sys.path.insert(0, str(Path(__file__).parents[2] / "contract" / "weights"))

from hubs import Hub

pytestmark = pytest.mark.engine

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub on a loop of its own, because the driver of a process blocks this one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    found = Hub(files={f"example/tiny/{FILE}": find_demo_model().read_bytes()})
    asyncio.run_coroutine_threadsafe(found.start(), loop).result(60)
    yield found
    asyncio.run_coroutine_threadsafe(found.stop(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


def manifest(folder: Path, hub: Hub) -> Path:
    spec: dict[str, Any] = {
        "backend": "llamacpp",
        "model": f"hf://example/tiny/{FILE}",
        "image": "ghcr.io/ggml-org/llama.cpp:server",
        "replicas": 2,
        "gpu": {"vendor": "cpu", "count": 0},
        "args": ["--ctx-size", "2048", "--parallel", "1", "--threads", "1"],
        "benchmark": {"enabled": False},
        "env": [{"name": "HF_ENDPOINT", "value": hub.url}],
    }
    path = folder / "model.yaml"
    meta = {"name": "fetched", "namespace": "default"}
    path.write_text(
        yaml.safe_dump(
            {"apiVersion": "ai.flexinfer/v1alpha1", "kind": "ModelDeployment", "metadata": meta, "spec": spec}
        )
    )
    return path


def test_two_pods_of_a_node_fetch_a_model_once_and_serve_it(hub: Hub, tmp_path: Path) -> None:
    for part in ("written", "run"):
        (tmp_path / part).mkdir()
    up = Up(tmp_path / "run", ("--example", str(manifest(tmp_path / "written", hub)))).start()
    up.wait_for("✓ answer")

    def shown() -> str:
        return " ".join(up.run("status").stdout.split())

    held = f"cache: 1 model(s), 0.1 GB hf://example/tiny/{FILE} 0.13B Q4_1 0.1 GB"
    eventually(lambda: held in shown(), 180, "the agent tells what the node holds")
    eventually(lambda: "2/2" in shown(), 180, "both replicas serve")
    assert sum(hub.sent.values()) == find_demo_model().stat().st_size, "the second pod has fetched nothing"
    up.stop()
    assert up.leftovers() == []
