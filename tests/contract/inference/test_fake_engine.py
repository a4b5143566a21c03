"""The fake engine speaks as llama.cpp does, keeps its declared times, and misbehaves only on cue."""

import asyncio

import aiohttp
import pytest

from flexinfer.testing.fake_engine import FakeEngine, Fault, Speeds

ASK = {"prompt": "a b c", "max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}}


async def post(engine: FakeEngine, body: dict, path: str = "/v1/completions") -> tuple[int, bytes]:
    async with aiohttp.ClientSession() as session, session.post(engine.url + path, json=body) as answer:
        return answer.status, await answer.read()


async def get(engine: FakeEngine, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(engine.url + path) as answer:
        return answer.status, await answer.text()


async def test_a_stream_ends_with_usage_timings_and_done(engine: FakeEngine):
    status, raw = await post(engine, ASK)
    events = raw.split(b"\n\n")
    assert status == 200
    assert raw.count(b'"text":" fake"') == 5
    assert b'"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8}' in events[-3]
    assert b'"predicted_n":5' in events[-3]
    assert events[-2:] == [b"data: [DONE]", b""]


async def test_a_whole_chat_answer(engine: FakeEngine):
    status, raw = await post(
        engine, {"messages": [{"role": "user", "content": "a b"}], "max_tokens": 2}, "/v1/chat/completions"
    )
    assert status == 200
    assert b'"content":" fake fake"' in raw
    assert b'"prompt_tokens":5' in raw


async def test_declared_times_are_kept(engine: FakeEngine):
    engine.speeds = Speeds(tokens_per_second=100, prompt_tokens_per_second=30)
    began = asyncio.get_running_loop().time()
    await post(engine, {**ASK, "max_tokens": 20})
    seconds = asyncio.get_running_loop().time() - began
    assert seconds > 0.299


async def test_an_answer_ends_early_unless_told_not_to(engine: FakeEngine):
    engine.eos_after = 2
    assert (await post(engine, ASK))[1].count(b'" fake"') == 2
    assert (await post(engine, {**ASK, "ignore_eos": True}))[1].count(b'" fake"') == 5


async def test_requests_beyond_the_slots_wait(engine: FakeEngine):
    engine.slots = 2
    await engine.stop()
    await engine.start()
    await asyncio.gather(*(post(engine, ASK) for _ in range(6)))
    assert engine.totals.peak_active == 2
    assert engine.totals.finished == 6


async def test_a_client_that_leaves_frees_its_slot(engine: FakeEngine):
    engine.fault = Fault(stall_after=1)
    async with aiohttp.ClientSession() as session, session.post(engine.url + "/v1/completions", json=ASK) as answer:
        await answer.content.readany()
        assert engine.totals.active == 1
    async with asyncio.timeout(60):
        await engine.idle()
    assert engine.totals.cancelled == 1


async def test_side_paths(engine: FakeEngine):
    assert (await get(engine, "/health")) == (200, '{"status":"ok"}')
    assert '"id":"fake-model"' in (await get(engine, "/v1/models"))[1]
    await post(engine, ASK)
    assert "llamacpp:tokens_predicted_total 5" in (await get(engine, "/metrics"))[1]
    assert '"is_processing":false' in (await get(engine, "/slots"))[1]
    assert (await post(engine, {}, "/v1/embeddings"))[0] == 200
    assert (await get(engine, "/nowhere"))[0] == 404


async def test_while_it_loads_it_says_so(engine: FakeEngine):
    engine.loading = True
    assert (await get(engine, "/health"))[0] == 503
    assert (await post(engine, ASK))[0] == 503


async def test_it_remembers_what_it_was_asked(engine: FakeEngine):
    await post(engine, ASK)
    assert engine.seen[-1].method == "POST"
    assert engine.seen[-1].json()["prompt"] == "a b c"


async def test_scripted_faults_come_first_and_once(engine: FakeEngine):
    engine.then(Fault(status=429, retry_after=7), Fault(tokens=0))
    async with aiohttp.ClientSession() as session, session.post(engine.url + "/v1/completions", json=ASK) as answer:
        assert answer.status == 429
        assert answer.headers["Retry-After"] == "7"
    assert (await post(engine, ASK))[1].count(b'" fake"') == 0
    assert (await post(engine, ASK))[1].count(b'" fake"') == 5


@pytest.mark.parametrize("fault", [Fault(reset_after=2), Fault(truncate_after=2), Fault(drop=True)])
async def test_a_broken_connection_is_seen_as_one(engine: FakeEngine, fault: Fault):
    engine.then(fault)
    with pytest.raises(aiohttp.ClientError):
        await post(engine, ASK)


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'{"messages":[]}'])
async def test_what_is_no_request_is_refused(engine: FakeEngine, body: bytes):
    url = engine.url + "/v1/chat/completions"
    async with aiohttp.ClientSession() as session, session.post(url, data=body) as answer:
        assert answer.status == 400


async def test_a_chunked_request_is_read(engine: FakeEngine):
    async def portions():
        yield b'{"prompt": "a", '
        yield b'"max_tokens": 3}'

    url = engine.url + "/v1/completions"
    async with aiohttp.ClientSession() as session, session.post(url, data=portions()) as answer:
        assert (await answer.json())["usage"]["completion_tokens"] == 3
