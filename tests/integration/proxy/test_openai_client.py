"""The official ``openai`` client through both proxies, against the fake engine and against llama.cpp."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI

from flexinfer.apps.global_proxy import GlobalProxy
from flexinfer.config.proxy import GlobalProxySettings
from flexinfer.local.demo_model import find_demo_model
from flexinfer.local.ports import free_port
from flexinfer.testing.fake_engine import FakeEngine, Fault, Speeds
from tests.contract.proxy.rig import Rig, rig_of, until

HELLO: list[Any] = [{"role": "user", "content": "Say hello."}]
WEATHER: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
                "required": ["city"],
            },
        },
    }
]


@dataclass
class Service:
    """A client, and what stands behind the URL it was given."""

    rig: Rig
    client: AsyncOpenAI
    engine: FakeEngine | None
    busy: Any  # () -> awaitable number of requests the engine is working on


@contextmanager
def llama(*flags: str) -> Iterator[str]:
    """llama.cpp's server with the demo model; its URL."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "flexinfer.local.llama_server", "-m", str(find_demo_model()),
         "--host", "127.0.0.1", "--port", str(port), "-a", "smol", "-c", "2048", "-np", "2", "-t", "2",
         "--slots", "-lv", "0", *flags],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 180
        while not _healthy(url):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield url
    finally:
        process.kill()
        process.wait()


def _healthy(url: str) -> bool:
    try:
        with urlopen(url + "/health") as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def llamas() -> Iterator[tuple[str, str]]:
    """(chat URL, embeddings URL); llama.cpp serves one kind per process."""
    template = Path(__file__).with_name("tools.jinja")
    with (
        llama("--jinja", "--chat-template-file", str(template)) as chat,
        llama("--embeddings", "--pooling", "mean") as embed,
    ):
        yield chat, embed


async def _slots_busy(url: str) -> int:
    async with aiohttp.ClientSession() as http, http.get(url + "/slots") as answer:
        return sum(bool(slot["is_processing"]) for slot in await answer.json())


@pytest.fixture(params=["proxy", "global proxy"])
def door(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["fake", pytest.param("llama.cpp", marks=pytest.mark.engine)])
async def service(request: pytest.FixtureRequest, door: str) -> AsyncIterator[Service]:
    async with AsyncExitStack() as stack:
        rig = await stack.enter_async_context(rig_of())
        await rig.start()
        engine: FakeEngine | None = None
        if request.param == "fake":
            engine = await rig.engine(models=("smol",), speeds=Speeds(tokens_per_second=500), strict_model=True)
            url = chat_url = engine.url
        else:
            chat_url, url = request.getfixturevalue("llamas")
        await rig.route(chat_url, model="chat", aliases=("org/chat:1b",), served_model="smol")
        await rig.route(url, model="embed", served_model="smol")
        port = rig.proxy.port
        if door == "global proxy":
            port = await _in_front(stack, rig)

        async def busy() -> int:
            return engine.totals.active if engine else await _slots_busy(chat_url)

        client = AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="unused", max_retries=0, timeout=300)
        stack.push_async_callback(client.close)
        yield Service(rig, client, engine, busy)


async def _in_front(stack: AsyncExitStack, rig: Rig) -> int:
    settings = GlobalProxySettings(
        host="127.0.0.1",
        port=0,
        clusters=f"home={rig.proxy.url()}",
        health_interval=60,
        drain_timeout=2,
        accept_timeout=0,
    )
    proxy = await GlobalProxy(settings, None).start()
    stack.push_async_callback(proxy.stop)
    await until(lambda: proxy.checks.rounds > 0)
    return proxy.port


async def test_models(service: Service) -> None:
    names = {model.id async for model in service.client.models.list()}

    assert names == {"chat", "embed"}
    assert (await service.client.models.retrieve("org/chat:1b")).owned_by == "default"
    with pytest.raises(openai.NotFoundError):
        await service.client.models.retrieve("nobody")


@pytest.mark.parametrize("name", ["chat", "default/chat", "org/chat:1b"])
async def test_chat(service: Service, name: str) -> None:
    answer = await service.client.chat.completions.with_raw_response.create(
        model=name, messages=HELLO, max_tokens=8, temperature=0
    )

    assert answer.headers["x-flexinfer-endpoint"] == "pod-0"
    parsed = answer.parse()
    assert parsed.choices[0].message.content
    assert parsed.usage
    assert 0 < parsed.usage.completion_tokens <= 8


async def test_stream(service: Service) -> None:
    stream = await service.client.chat.completions.create(
        model="chat", messages=HELLO, max_tokens=12, stream=True, stream_options={"include_usage": True}, temperature=0
    )
    chunks = [chunk async for chunk in stream]

    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens > 1
    assert any(choice.finish_reason for chunk in chunks for choice in chunk.choices)


async def test_text_completion(service: Service) -> None:
    answer = await service.client.completions.create(model="chat", prompt="Once upon a time", max_tokens=6)

    assert answer.choices[0].text


async def test_tools(service: Service) -> None:
    ask: list[Any] = [
        {"role": "user", "content": "What is the weather in Paris?"},
        {
            "role": "assistant", "content": "",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]  # fmt: skip

    answer = await service.client.chat.completions.create(
        model="chat", messages=ask, tools=WEATHER, tool_choice="auto", max_tokens=8, temperature=0
    )

    message = answer.choices[0].message
    assert message.content or message.tool_calls
    if service.engine:
        sent = service.engine.seen[-1].json()
        assert sent["tools"] == WEATHER
        assert sent["messages"] == ask
    else:
        bare = await service.client.chat.completions.create(model="chat", messages=ask, max_tokens=1)
        assert answer.usage
        assert bare.usage
        assert answer.usage.prompt_tokens > bare.usage.prompt_tokens + 20


async def test_embeddings(service: Service) -> None:
    answer = await service.client.embeddings.create(model="embed", input="hello")

    assert len(answer.data[0].embedding) > 1


async def test_errors_have_their_classes(service: Service, door: str) -> None:
    # A cluster that has it may only be away, so the global proxy does not say that a model does not exist.
    expected = openai.NotFoundError if door == "proxy" else openai.InternalServerError
    with pytest.raises(expected, match="'nobody'") as unknown:
        await service.client.chat.completions.create(model="nobody", messages=HELLO)
    assert unknown.value.code == ("model_not_found" if door == "proxy" else "cluster_unavailable")
    assert unknown.value.param == "model"
    long: list[Any] = [{"role": "user", "content": "word " * 3000}] if service.engine is None else []
    with pytest.raises(openai.BadRequestError):  # the engine's own words
        await service.client.chat.completions.create(model="chat", messages=long, max_tokens=4)
    with pytest.raises(openai.BadRequestError, match="name the model"):
        await service.client.chat.completions.create(model="", messages=HELLO)


async def test_cancelling_a_stream_frees_the_engine(service: Service) -> None:
    stream = await service.client.chat.completions.create(
        model="chat", messages=HELLO, max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
    )
    async for _ in stream:
        break
    assert await service.busy() == 1

    await stream.close()

    async with asyncio.timeout(60):
        while await service.busy():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


async def test_many_at_once(service: Service) -> None:
    answers = await asyncio.gather(
        *(service.client.chat.completions.create(model="chat", messages=HELLO, max_tokens=4) for _ in range(12))
    )

    assert all(answer.choices for answer in answers)
    assert len({answer.id for answer in answers}) == 12


async def test_the_clients_own_retries_meet_retry_after(door: str) -> None:
    async with AsyncExitStack() as stack:
        rig = await stack.enter_async_context(rig_of())
        await rig.start()
        engine = await rig.engine()
        engine.then(Fault(status=429, retry_after=1))
        await rig.route(engine)
        port = await _in_front(stack, rig) if door == "global proxy" else rig.proxy.port
        client = AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="unused", max_retries=1)
        stack.push_async_callback(client.close)

        answer = await client.chat.completions.create(model="m", messages=HELLO)

        assert answer.choices
        assert engine.totals.requests == 2


async def test_a_cold_start_is_only_a_longer_wait(door: str) -> None:
    async with AsyncExitStack() as stack:
        rig = await stack.enter_async_context(rig_of())
        await rig.start()
        engine = await rig.engine()
        await rig.route(wakeable=True)
        port = await _in_front(stack, rig) if door == "global proxy" else rig.proxy.port
        client = AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="unused", max_retries=0)
        stack.push_async_callback(client.close)

        async with asyncio.TaskGroup() as group:
            asking = group.create_task(client.chat.completions.create(model="m", messages=HELLO))
            await until(lambda: rig.proxy.room.waiting == 1)
            await rig.route(engine, wakeable=True)

        assert asking.result().choices
