"""The client gives counts and times of a stream, or a reason code, whatever the server does."""

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest

from flexinfer.adapters.inference.client import Api, OpenAIClient
from flexinfer.ports import Completion, EngineError
from flexinfer.runtime.process import run_app
from flexinfer.testing.fake_engine import FakeEngine, Fault, Speeds


async def ask(engine: FakeEngine, *, api: Api = "completions", tokens: int = 8, **client) -> Completion:
    async with OpenAIClient(engine.url, api=api, **client) as asked:
        return await asked.complete("fake-model", "one two three", tokens, {"ignore_eos": True})


def test_the_fast_loop_of_the_executables_works_too():
    async def body() -> int:
        engine = await FakeEngine().start()
        try:
            engine.then(Fault(), Fault(reset_after=2))
            tokens = (await ask(engine)).completion_tokens
            with pytest.raises(EngineError, match="after 2 text events"):
                await ask(engine)
            return tokens
        finally:
            await engine.stop()

    assert run_app(body) == 8


@pytest.mark.parametrize(("api", "prompt_tokens"), [("completions", 3), ("chat", 6)])
async def test_counts_and_times_of_a_stream(engine: FakeEngine, api: Api, prompt_tokens: int):
    engine.speeds = Speeds(tokens_per_second=200)
    done = await ask(engine, api=api)
    assert (done.prompt_tokens, done.completion_tokens) == (prompt_tokens, 8)
    assert done.text == " fake" * 8
    assert len(done.token_times) == 8
    assert done.first_token == done.token_times[0] >= 0.005
    assert list(done.token_times) == sorted(done.token_times)
    assert done.duration >= done.token_times[-1] >= 0.04
    assert done.engine_tokens_per_second is not None
    assert done.finish_reason == "length"
    assert done.model == "fake-model"
    assert done.cached_tokens == 0


async def test_what_is_sent(engine: FakeEngine):
    await ask(engine, api_key="secret")
    sent = engine.seen[-1]
    assert sent.headers["authorization"] == "Bearer secret"
    assert sent.json() == {
        "model": "fake-model",
        "max_tokens": 8,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "prompt": "one two three",
    }


async def test_each_request_has_its_own_connection(engine: FakeEngine):
    async with OpenAIClient(engine.url) as client:
        for _ in range(5):
            await client.complete("fake-model", "a", 2, {})
    assert engine.totals.connections == 5
    assert engine.totals.finished == 5


async def test_a_base_url_may_end_in_v1(engine: FakeEngine):
    async with OpenAIClient(engine.url + "/v1/") as client:
        assert await client.models() == ("fake-model",)


async def test_a_server_without_timings(engine: FakeEngine):
    engine.timings = False
    assert (await ask(engine)).engine_tokens_per_second is None


async def test_zero_tokens_are_an_answer(engine: FakeEngine):
    engine.then(Fault(tokens=0))
    done = await ask(engine)
    assert (done.completion_tokens, done.first_token, done.text) == (0, None, "")


async def test_a_stream_without_done_but_with_a_reason_is_whole(engine: FakeEngine):
    engine.then(Fault(no_done=True))
    assert (await ask(engine)).completion_tokens == 8


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        (Fault(status=429), "Limited", "429"),
        (Fault(status=500), "Http", "fault on cue"),
        (Fault(status=503), "NotReady", "503"),
        (Fault(status=502), "NotReady", "502"),
        (Fault(status=404), "WrongModel", "404"),
        (Fault(status=401), "Denied", "401"),
        (Fault(status=400), "Refused", "400"),
        (Fault(drop=True), "Connection", "broke the connection"),
        (Fault(reset_after=3), "Connection", "after 3 text events"),
        (Fault(truncate_after=3), "Connection", "after 3 text events"),
        (Fault(malformed_after=3), "MalformedStream", "no completion chunk"),
        (Fault(error_after=3), "EngineFailed", "fault on cue"),
        (Fault(no_usage=True), "NoUsage", "without usage"),
    ],
)
async def test_each_fault_has_its_reason(engine: FakeEngine, fault: Fault, reason: str, words: str):
    engine.then(fault)
    with pytest.raises(EngineError, match=words) as caught:
        await ask(engine)
    assert caught.value.reason == reason
    assert caught.value.status == fault.status


@pytest.mark.parametrize("fault", [Fault(stall_after=2), Fault(first_byte_delay=60), Fault(first_token_delay=60)])
async def test_silence_ends_with_the_request_timeout(engine: FakeEngine, fault: Fault):
    engine.then(fault)
    with pytest.raises(EngineError) as caught:
        await ask(engine, timeout=0.2)
    assert caught.value.reason == "Timeout"


async def test_nobody_listens():
    with pytest.raises(EngineError) as caught:
        await ask(FakeEngine(port=1))
    assert caught.value.reason == "Connection"


async def test_an_address_that_is_none():
    async with OpenAIClient("http://") as client:
        with pytest.raises(EngineError) as caught:
            await client.complete("m", "p", 1, {})
    assert caught.value.reason == "Refused"


async def test_an_answer_that_is_no_stream():
    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi")
        writer.close()

    server = await asyncio.start_server(page, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, OpenAIClient(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(EngineError, match="text/html") as caught:
            await client.complete("m", "p", 1, {})
        assert caught.value.reason == "MalformedStream"
        with pytest.raises(EngineError) as caught:
            await client.models()
        assert caught.value.reason == "Refused"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    pem, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=fake", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(pem)],
        check=True, capture_output=True,
    )  # fmt: skip
    return pem, key


async def test_a_certificate_is_checked_against_the_given_ca(certificate: tuple[Path, Path]):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    engine = await FakeEngine(ssl=context).start()
    try:
        with pytest.raises(EngineError) as caught:
            await ask(engine)
        assert caught.value.reason == "Tls"
        assert (await ask(engine, ca=certificate[0])).completion_tokens == 8
    finally:
        await engine.stop()


async def test_a_ca_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(OSError, match="No such file"):
        await OpenAIClient("https://127.0.0.1", ca=tmp_path / "none.pem").open()
