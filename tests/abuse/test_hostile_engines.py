"""An engine that lies about its answer harms one request at most: the next answer on a connection is the next one."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from flexinfer.apps.global_proxy import GlobalProxy
from flexinfer.config.proxy import GlobalProxySettings
from flexinfer.testing.fake_wire import Request
from tests.contract.proxy.echo import EchoEngine, plain
from tests.contract.proxy.rig import Wire, chat, post, rig_of, until

ASK = post("/v1/chat/completions", chat())
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LIES = {
    "its length is for one hop": b"HTTP/1.1 200 OK\r\nConnection: content-length\r\nContent-Length: 2\r\n\r\nok",
    "its coding is for one hop": (
        b"HTTP/1.1 200 OK\r\nConnection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    ),
    "length and chunked": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    ),
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 9\r\n\r\nok",
    "more than its length": OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    "two answers": OK * 2,
    "a header with a bare CR": b"HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\nContent-Length: 2\r\n\r\nok",
    "a header with NUL": b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 2\r\n\r\nok",
    "a reason with a bare CR": b"HTTP/1.1 200 O\rK\r\nContent-Length: 2\r\n\r\nok",
    "an upgrade": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n" + OK,
    "no answer": b"nonsense\r\n\r\n",
    "a length below zero": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
    "status 99": b"HTTP/1.1 099 X\r\nContent-Length: 2\r\n\r\nok",
    "status 1000": b"HTTP/1.1 1000 X\r\nContent-Length: 2\r\n\r\nok",
}


@pytest.fixture
async def engine() -> AsyncIterator[EchoEngine]:
    made = await EchoEngine(name="good").start()
    yield made
    await made.stop()


async def answered(wire: Wire) -> int | None:
    """Status of a whole answer; None if the connection ended instead."""
    try:
        answer = await wire.answer()
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    assert answer.body in {b"ok", b""} or b"error" in answer.body, answer
    return answer.status


@pytest.mark.parametrize("lie", LIES)
async def test_the_answer_is_whole_or_an_error_and_the_next_one_is_right(engine: EchoEngine, lie: str) -> None:
    async def lying(_engine: EchoEngine, request: Request, writer: asyncio.StreamWriter) -> bool:
        if request.headers.get("x-mark") == "honest":
            return await plain(engine, request, writer)
        writer.write(LIES[lie])
        return True

    engine.behave = lying
    async with rig_of() as rig:
        await rig.start()
        await rig.route(engine.url)
        wire = await rig.wire()
        wire.send(ASK)
        status = await answered(wire)
        assert status in {200, 502, None}

        for again in ([wire] if status == 200 else []) + [await rig.wire()]:
            again.send(post("/v1/chat/completions", chat(), "X-Mark: honest"))
            answer = await again.answer()
            assert b'"engine":"good"' in answer.body, answer.raw


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "ftp://engine.internal"])
async def test_errors_tell_clients_no_address(url: str) -> None:
    """Clients need not know what runs where."""
    async with rig_of() as rig:
        await rig.start()
        await rig.route(url)
        answer = await rig.ask(ASK)

    assert answer.status == 502
    assert b"127.0.0.1" not in answer.body
    assert b"internal" not in answer.body


LISTS = {
    "nested": b'{"data":' + b"[" * 100_000,
    "nested and whole": b'{"data":[{"id":"m","x":' + b"[" * 50_000 + b"]" * 50_000 + b"}]}",
    "aliases of another shape": b'{"data":[{"id":"m","flexinfer":{"aliases":5}}]}',
    "no list": b'{"data":7}',
    "no JSON": b"\xff\xfe",
    "too long": b'{"data":[' + b'{"id":"' + b"a" * 9_000_000,
}


@pytest.mark.parametrize("what", LISTS)
async def test_a_cluster_with_a_strange_model_list_harms_no_other(engine: EchoEngine, what: str) -> None:
    honest = await EchoEngine(name="honest").start()
    lists = {engine: LISTS[what], honest: b'{"data":[{"id":"n"}]}'}

    async def listing(own: EchoEngine, _request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(lists[own]) + lists[own])
        return True

    engine.behave = honest.behave = listing
    settings = GlobalProxySettings(
        host="127.0.0.1", port=0, clusters=f"a={engine.url},b={honest.url}", health_interval=3600, drain_timeout=1,
        accept_timeout=0,
    )  # fmt: skip
    proxy = await GlobalProxy(settings, None).start()
    try:
        await until(lambda: proxy.checks.rounds == 1)
        assert proxy.clusters.members["b"].models == {"n": "ready"}
    finally:
        await proxy.stop()
        await honest.stop()
