"""Engines that speak broken HTTP: nothing of it becomes somebody else's answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.contract.proxy import echo
from tests.contract.proxy.echo import EchoEngine
from tests.contract.proxy.rig import Rig, chat, post
from tests.contract.proxy.test_proxy_wire import mark_of, marked

ASK = post("/v1/chat/completions", chat())


@pytest.fixture
async def engine(rig: Rig) -> AsyncIterator[EchoEngine]:
    made = await EchoEngine().start()
    await rig.start()
    await rig.route(made.url)
    yield made
    await made.stop()


def raw(data: bytes, *, close: bool = False) -> echo.Behave:
    async def behave(_engine: EchoEngine, _request: object, writer: asyncio.StreamWriter) -> bool:
        writer.write(data)
        return not close

    return behave  # type: ignore[return-value]


BROKEN_HEADS = [
    b"nonsense\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX-A: b\rSet-Cookie: c\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX-Big: " + b"a" * (300 << 10) + b"\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    b"\x16\x03\x01\x02\x00",
]


@pytest.mark.parametrize("data", BROKEN_HEADS, ids=lambda data: repr(data[:40]))
async def test_a_broken_head_is_502(rig: Rig, engine: EchoEngine, data: bytes) -> None:
    engine.behave = raw(data, close=True)

    answer = await rig.ask(ASK)

    assert (answer.status, answer.error()["code"]) == (502, "engine_failed")


async def test_huge_but_honest_heads_pass(rig: Rig, engine: EchoEngine) -> None:
    engine.behave = raw(b"HTTP/1.1 200 OK\r\nX-Big: " + b"a" * (100 << 10) + b"\r\nContent-Length: 2\r\n\r\nok")

    answer = await rig.ask(ASK)

    assert (answer.status, answer.body, len(answer.headers["x-big"])) == (200, b"ok", 100 << 10)


@pytest.mark.parametrize(
    "extra",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL", b"EVIL", b"\x00\x00"],
)
async def test_bytes_after_an_answer_go_to_nobody(rig: Rig, engine: EchoEngine, extra: bytes) -> None:
    engine.behave = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood" + extra)
    wire = await rig.wire()

    for _ in range(3):
        wire.send(ASK)
        assert (await wire.answer()).body == b"good"


async def test_a_second_answer_after_chunks_cuts_the_client_rather_than_cross(rig: Rig, engine: EchoEngine) -> None:
    engine.behave = raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL"
    )
    wire = await rig.wire()
    wire.send(marked("x", b"", "Connection: close"))

    received = await asyncio.wait_for(wire.reader.read(), 60)

    assert b"EVIL" not in received


async def test_an_answer_nobody_asked_for_ends_the_connection(rig: Rig, engine: EchoEngine) -> None:
    async def twice(made: EchoEngine, request: object, writer: asyncio.StreamWriter) -> bool:
        await echo.plain(made, request, writer)  # type: ignore[arg-type]
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL")
        return True

    engine.behave = twice  # type: ignore[assignment]
    wire = await rig.wire()
    for mark in ("a", "b", "c"):
        wire.send(marked(mark))
        assert mark_of((await wire.answer()).body) == mark
        await asyncio.sleep(0.03)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\nzz\r\nbad\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n",
    ],
)
async def test_a_broken_body_is_cut_and_seen_as_cut(rig: Rig, engine: EchoEngine, data: bytes) -> None:
    engine.behave = raw(data, close=True)
    wire = await rig.wire()
    wire.send(marked("x", b"", "Connection: close"))

    received = await asyncio.wait_for(wire.reader.read(), 60)

    head, _, body = received.partition(b"\r\n\r\n")
    assert not body.endswith(b"0\r\n\r\n")
    assert b"content-length: 40" in head.lower() or b"502" in head or b"chunked" in head


async def test_interim_answers_are_skipped(rig: Rig, engine: EchoEngine) -> None:
    engine.behave = raw(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
        b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok"
    )

    answer = await rig.ask(ASK)

    assert (answer.status, answer.body) == (201, b"ok")


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body_end_with_their_head(rig: Rig, engine: EchoEngine, status: int) -> None:
    engine.behave = raw(b"HTTP/1.1 %d X\r\nX-Y: z\r\n\r\n" % status)
    wire = await rig.wire()
    for _ in range(2):
        wire.send(ASK)
        assert (await wire.answer(head_only=True)).status == status


async def test_an_early_refusal_of_a_large_body_reaches_the_client(rig: Rig, engine: EchoEngine) -> None:
    ended = asyncio.Event()

    async def refuse_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        with contextlib.suppress(ConnectionError):
            while await reader.read(1 << 16):
                pass
        writer.transport.abort()
        ended.set()

    server = await asyncio.start_server(refuse_early, "127.0.0.1", 0)
    await rig.route(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")

    answer = await rig.ask(post("/v1/chat/completions", b'{"model": "m", "pad": "' + b"x" * (8 << 20) + b'"}'))

    assert (answer.status, answer.body) == (413, b"no")
    await asyncio.wait_for(ended.wait(), 60)
    server.close()
    await server.wait_closed()
