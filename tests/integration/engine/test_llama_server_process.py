"""The launcher with the real engine and the real small model."""

import asyncio
import json
import os
import signal
import sys

import aiohttp
import pytest

from flexinfer.local.demo_model import find_demo_model
from flexinfer.local.ports import free_port

pytestmark = pytest.mark.engine

HOST = "127.0.0.77"


class Server:
    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url

    async def ready(self, http: aiohttp.ClientSession) -> None:
        async with asyncio.timeout(60):
            while True:
                assert self.process.returncode is None
                try:
                    async with http.get(self.url + "/health") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.05)


@pytest.fixture
async def server():
    port = free_port(HOST)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "flexinfer.local.llama_server",
        "-m", str(find_demo_model()), "--host", HOST, "--port", str(port), "-a", "smol",
        "-c", "1024", "-np", "2", "-t", "2", "--metrics", "--slots", "-lv", "0",
        env=dict(os.environ), stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    yield Server(process, f"http://{HOST}:{port}")
    if process.returncode is None:
        process.kill()
    await process.wait()


async def stream(http: aiohttp.ClientSession, url: str, tokens: int) -> list[dict]:
    body = {
        "model": "smol", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": tokens,
        "ignore_eos": True, "messages": [{"role": "user", "content": "Say hello."}],
    }  # fmt: skip
    async with http.post(url + "/v1/chat/completions", json=body) as answer:
        assert answer.status == 200
        lines = [line async for line in answer.content if line.startswith(b"data: {")]
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


async def test_answers_measures_and_stops(server):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        await server.ready(http)

        chunks = await stream(http, server.url, 12)
        async with http.get(server.url + "/metrics") as answer:
            metrics = await answer.text()
        async with http.get(server.url + "/slots") as answer:
            slots = await answer.json()
        async with http.get(server.url + "/v1/models") as answer:
            models = await answer.json()

    assert chunks[-1]["usage"]["completion_tokens"] == 12
    assert chunks[-1]["timings"]["predicted_n"] == 12
    assert chunks[-1]["timings"]["predicted_per_second"] > 0
    assert "llamacpp:tokens_predicted_total 12" in metrics
    assert [slot["n_ctx"] for slot in slots] == [512, 512]
    assert models["data"][0]["id"] == "smol"

    server.process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(server.process.wait(), 3) == 0


async def test_stops_while_a_generation_is_in_flight(server):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        await server.ready(http)
        body = {"prompt": "Once", "n_predict": 400, "ignore_eos": True, "stream": True}
        async with http.post(server.url + "/completion", json=body) as answer:
            assert await answer.content.readline()

            server.process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(server.process.wait(), 3) == 0


async def test_a_file_that_is_no_model_is_one_sentence(tmp_path):
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"not a model")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "flexinfer.local.llama_server",
        "-m", str(junk), "--host", HOST, "--port", str(free_port(HOST)), "-lv", "0",
        env=dict(os.environ), stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _out, err = await asyncio.wait_for(process.communicate(), 30)

    assert process.returncode == 1
    assert f"did not start with {junk}" in err.decode().splitlines()[-1]
