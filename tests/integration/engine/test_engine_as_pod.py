"""The manifest of a llama.cpp container, run by the process runner with the real engine."""

import asyncio
import sys

import aiohttp
import pytest

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.contracts.kubernetes import PODS
from flexinfer.local.demo_model import find_demo_model
from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.local.processes import Reaper
from flexinfer.local.runner import LocalImage, ProcessRunner

pytestmark = pytest.mark.engine

IMAGE = "ghcr.io/ggml-org/llama.cpp:server"


@pytest.fixture
async def cluster(tmp_path):
    server = await EmbeddedApi().start()
    api = await KubeClient.connect(server.write_kubeconfig(tmp_path / "kubeconfig"))
    reaper = await Reaper.start()
    image = LocalImage((sys.executable, "-m", "flexinfer.local.llama_server"), env={"LLAMA_ARG_HOST": "0.0.0.0"})
    runner = ProcessRunner(
        api, "here", {IMAGE: image}, tmp_path / "work", reaper=reaper,
        host_paths={"/srv/models": find_demo_model().parent},
    )  # fmt: skip
    await runner.start()
    yield api, runner
    await runner.stop()
    await reaper.close()
    await api.aclose()
    await server.stop()


def engine_pod(name: str) -> dict:
    probe = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 5}
    container = {
        "name": "engine",
        "image": IMAGE,
        "args": ["--model", f"/models/{find_demo_model().name}", "--port", "8080", "-c", "512", "-t", "2", "--metrics"],
        "ports": [{"name": "http", "containerPort": 8080}],
        "startupProbe": {**probe, "failureThreshold": 60},
        "readinessProbe": probe,
        "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
    }
    volume = {"name": "models", "hostPath": {"path": "/srv/models", "type": "Directory"}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": "here", "containers": [container], "volumes": [volume]},
    }  # fmt: skip


async def ready_address(api: KubeClient, runner: ProcessRunner, name: str) -> str:
    async with asyncio.timeout(60):
        while True:
            status = (await api.get(PODS, name, "default")).get("status") or {}
            entries = status.get("containerStatuses") or [{}]
            assert not entries[0].get("restartCount"), await runner.logs("default", name)
            if entries[0].get("ready"):
                return str(status["podIP"])
            await asyncio.sleep(0.05)


async def test_two_engines_serve_beside_each_other(cluster):
    api, runner = cluster
    for name in ("one", "two"):
        await api.create(PODS, engine_pod(name), "default")
    addresses = [await ready_address(api, runner, name) for name in ("one", "two")]
    assert len(set(addresses)) == 2

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        for address in addresses:
            body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 5}
            async with http.post(f"http://{address}:8080/v1/chat/completions", json=body) as answer:
                found = await answer.json()
            assert found["usage"]["completion_tokens"] == 5
            assert found["timings"]["predicted_per_second"] > 0

    await api.delete(PODS, "one", "default")
    async with asyncio.timeout(60):
        while len((await api.list(PODS, "default")).items) > 1:  # noqa: ASYNC110 - the server sets no event of ours
            await asyncio.sleep(0.05)
    assert "listening on" in await runner.logs("default", "two")
