"""HTTP to the letter: framings, old clients, pipelines, slow and large requests."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from flexinfer.adapters.web.proxy.limits import Budget, ServerLimits
from flexinfer.adapters.web.proxy.request import Request
from tests.contract.proxy import echo
from tests.contract.proxy.echo import EchoEngine
from tests.contract.proxy.rig import Rig, chat, post, until

ASK = post("/v1/chat/completions", chat())


@pytest.fixture
async def engine(rig: Rig) -> AsyncIterator[EchoEngine]:
    made = await EchoEngine().start()
    made.keep = True
    await rig.start()
    await rig.route(made.url)
    yield made
    await made.stop()


def marked(mark: str, body: bytes = b"", *headers: str) -> bytes:
    return post("/v1/chat/completions", body or chat(), f"X-Mark: {mark}", *headers)


def mark_of(body: bytes) -> str:
    return str(msgspec.json.decode(body)["mark"])


async def test_chunk_boundaries_extensions_and_trailers_are_kept(rig: Rig, engine: EchoEngine) -> None:
    engine.behave = echo.chunked
    body = engine.echo(Request_like("a"))

    answer = await rig.ask(marked("a"))

    _, _, raw = answer.raw.partition(b"\r\n\r\n")
    pieces = (body[:1], body[1:4], body[4:])
    expected = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nX-Sum: 42\r\n\r\n"
    assert raw == expected
    assert answer.headers["trailer"] == "X-Sum"


def Request_like(mark: str) -> object:
    class Like:
        headers = {"x-mark": mark}  # noqa: RUF012 - one use
        body = chat()

    return Like()


async def test_a_body_without_length_reaches_clients_that_keep_their_connection(rig: Rig, engine: EchoEngine) -> None:
    engine.behave = echo.until_close
    wire = await rig.wire()

    for mark in ("a", "b"):
        wire.send(marked(mark))
        answer = await wire.answer()
        assert answer.clean
        assert mark_of(answer.body) == mark


@pytest.mark.parametrize("behave", [echo.plain, echo.chunked, echo.until_close])
async def test_http_1_0_clients_get_a_plain_body_and_the_end(rig: Rig, engine: EchoEngine, behave: echo.Behave) -> None:
    engine.behave = behave
    wire = await rig.wire()
    wire.send(marked("old").replace(b"HTTP/1.1", b"HTTP/1.0"))

    raw = await asyncio.wait_for(wire.reader.read(), 60)

    head, _, body = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"chunked" not in head.lower()
    assert mark_of(body) == "old"


async def test_http_1_0_with_keep_alive_keeps_its_connection(rig: Rig, engine: EchoEngine) -> None:
    wire = await rig.wire()
    for mark in ("a", "b"):
        wire.send(marked(mark, b"", "Connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0"))
        answer = await wire.answer()
        assert (mark_of(answer.body), answer.headers["connection"]) == (mark, "keep-alive")


async def test_pipelined_requests_are_answered_in_order(rig: Rig, engine: EchoEngine) -> None:
    wire = await rig.wire()
    wire.send(b"".join(marked(str(i)) for i in range(100)))

    marks = [mark_of((await wire.answer()).body) for _ in range(100)]

    assert marks == [str(i) for i in range(100)]


async def test_a_request_byte_by_byte(rig: Rig, engine: EchoEngine) -> None:
    wire = await rig.wire()
    for i in range(len(data := marked("slow"))):
        wire.send(data[i : i + 1])
        await wire.writer.drain()
        if i % 16 == 0:
            await asyncio.sleep(0)

    assert mark_of((await wire.answer()).body) == "slow"


async def test_chunked_requests_with_trailers_arrive_whole_and_trailers_are_no_headers(
    rig: Rig, engine: EchoEngine
) -> None:
    body = chat()
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(body[i : i + 7]), body[i : i + 7]) for i in range(0, len(body), 7))
    data = post(
        "/v1/chat/completions", pieces + b"0\r\nX-Model-ID: nobody\r\nX-Mark: no\r\n\r\n",
        "Transfer-Encoding: chunked", "X-Mark: yes", length=False,
    )  # fmt: skip

    answer = await rig.ask(data)

    assert mark_of(answer.body) == "yes"
    assert engine.requests[0].body == body
    assert engine.requests[0].headers["content-length"] == str(len(body))
    assert "transfer-encoding" not in engine.requests[0].headers


async def test_headers_of_one_hop_and_of_ours_are_not_passed_on(rig: Rig, engine: EchoEngine) -> None:
    await rig.ask(
        marked(
            "a", b"", "Connection: close, X-Hop", "X-Hop: 1", "Keep-Alive: timeout=5", "TE: trailers",
            "Upgrade: h2c", "Proxy-Authorization: x", "X-Model-ID: m", "X-FlexInfer-Endpoint: http://evil",
            "X-Forwarded-Host: evil", "Expect: nothing", "X-Custom: kept",
        )
    )  # fmt: skip

    seen = engine.requests[0].headers
    assert seen["x-custom"] == "kept"
    assert seen["host"] == engine.url.removeprefix("http://")
    for name in ("x-hop", "keep-alive", "te", "upgrade", "proxy-authorization", "x-model-id", "x-flexinfer-endpoint"):
        assert name not in seen


async def test_no_header_and_no_url_form_chooses_an_upstream(rig: Rig, engine: EchoEngine) -> None:
    other = await EchoEngine(name="evil").start()
    try:
        for data in (
            ASK.replace(b"/v1/chat", other.url.encode() + b"/v1/chat"),
            post("/v1/chat/completions", chat(other.url)),
            ASK.replace(b"Host: proxy", b"Host: " + other.url.removeprefix("http://").encode()),
            marked("x", b"", f"X-Model-ID: {other.url}"),
            b"CONNECT " + other.url.removeprefix("http://").encode() + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        ):
            answer = await rig.ask(data)
            assert answer.status in {200, 400, 404, 405}
        assert other.accepted == 0
    finally:
        await other.stop()


async def test_expect_100_continue_is_answered_before_the_body(rig: Rig, engine: EchoEngine) -> None:
    wire = await rig.wire()
    body = chat()
    wire.send(post("/v1/chat/completions", b"", f"Content-Length: {len(body)}", "Expect: 100-continue", length=False))

    go_on = await wire.answer()
    wire.send(body)

    assert go_on.status == 100
    assert (await wire.answer()).status == 200


async def test_an_upgrade_is_ignored_and_the_connection_goes_on(rig: Rig, engine: EchoEngine) -> None:
    wire = await rig.wire()
    wire.send(marked("a", b"", "Connection: Upgrade", "Upgrade: websocket") + marked("b"))

    assert [mark_of((await wire.answer()).body) for _ in range(2)] == ["a", "b"]


async def test_fifty_megabytes_go_through_and_their_memory_comes_back(rig: Rig, engine: EchoEngine) -> None:
    body = b'{"model": "m", "messages": [], "pad": "' + b"x" * (50 << 20) + b'"}'
    engine.keep = False

    for _ in range(3):
        answer = await rig.ask(marked("big", body))
        assert msgspec.json.decode(answer.body)["size"] == len(body)

    wire = await rig.wire()
    wire.send(marked("after"))
    assert mark_of((await wire.answer()).body) == "after"


@pytest.mark.parametrize("piece", [1 << 16, 1 << 20])
async def test_a_large_answer_to_a_slow_reader_is_held_back_at_the_engine(
    rig: Rig, engine: EchoEngine, piece: int
) -> None:
    size = 64 << 20
    sent = 0

    async def endless(_engine: EchoEngine, _request: object, writer: asyncio.StreamWriter) -> bool:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // piece):
            writer.write(b"x" * piece)
            sent += piece
            await writer.drain()
        return True

    engine.behave = endless  # type: ignore[assignment]
    wire = await rig.wire()
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
    wire.send(ASK)
    await until(lambda: sent > 1 << 20)
    for _ in range(50):
        await asyncio.sleep(0.01)
    held = sent

    wire.writer.transport.resume_reading()  # type: ignore[attr-defined]
    answer = await asyncio.wait_for(wire._answer(head_only=False), 60)

    assert held < 24 << 20
    assert len(answer.body) == size


async def test_an_engine_connection_that_was_held_back_to_the_end_serves_the_next_request(
    rig: Rig, engine: EchoEngine
) -> None:
    async def large(_engine: EchoEngine, _request: object, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (8 << 20) + b"x" * (8 << 20))
        return True

    engine.behave = large  # type: ignore[assignment]
    wire = await rig.wire()
    for _ in range(3):
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        wire.send(ASK)
        for _ in range(30):
            await asyncio.sleep(0.01)
        wire.writer.transport.resume_reading()  # type: ignore[attr-defined]
        answer = await asyncio.wait_for(wire._answer(head_only=False), 60)
        assert len(answer.body) == 8 << 20

    assert engine.accepted == 1


async def test_a_head_and_a_body_that_trickle_are_cut(rig: Rig, engine: EchoEngine) -> None:
    rig.proxy.listener.limits = ServerLimits(head_seconds=0.2, body_seconds=0.2, idle_seconds=0.4)
    rig.proxy.listener.restart_sweep()
    head, body, idle, fast = [await rig.wire() for _ in range(4)]
    head.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: ")
    body.send(post("/v1/chat/completions", b"{", "Content-Length: 100", length=False))
    fast.send(ASK)

    for wire in (head, body):
        answer = await wire.answer()
        assert (answer.status, answer.error()["code"]) == (408, "request_timeout")
        assert await wire.closed()
    assert (await fast.answer()).status == 200
    assert await idle.closed()
    assert not engine.requests[1:]


async def test_too_many_connections_are_turned_away(rig: Rig, engine: EchoEngine) -> None:
    rig.proxy.listener.limits = ServerLimits(connections=2)
    first, second = await rig.wire(), await rig.wire()
    await until(lambda: rig.proxy.listener.connections == 2)

    third = await rig.wire()

    answer = await third.answer()
    assert (answer.status, answer.error()["code"]) == (503, "too_many_connections")
    for wire in (first, second):
        wire.send(ASK)
        assert (await wire.answer()).status == 200


async def test_a_head_answer_has_no_body(rig: Rig, engine: EchoEngine) -> None:
    wire = await rig.wire()
    for path, length in (("/v1/models", None), ("/v1/models/nobody", None), ("/healthz", "3")):
        wire.send(f"HEAD {path} HTTP/1.1\r\nHost: p\r\n\r\n".encode())
        answer = await wire.answer(head_only=True)
        assert int(answer.headers["content-length"]) > 0
        assert length is None or answer.headers["content-length"] == length


async def test_all_bodies_together_have_a_limit_and_give_back_what_they_held(rig: Rig, engine: EchoEngine) -> None:
    budget = rig.proxy.listener.budget
    budget.limit = 3000
    held = await rig.wire()
    held.send(post("/v1/chat/completions", b"x" * 2000, "Content-Length: 5000", length=False))
    await until(lambda: budget.held == 2000)
    wire = await rig.wire()

    wire.send(marked("big", b'{"model": "m", "pad": "' + b"x" * 1500 + b'"}'))
    refused = await wire.answer()
    await held.close()
    await until(lambda: budget.held == 0)

    assert (refused.status, refused.error()["code"]) == (503, "overloaded")
    assert mark_of((await rig.ask(marked("after", b'{"model": "m", "pad": "' + b"x" * 1500 + b'"}'))).body) == "after"
    await until(lambda: budget.held == 0)


def test_a_body_over_its_limit_is_not_kept() -> None:
    budget = Budget(100)
    request = Request(10, 0.0, budget)

    request.feed(b"12345")
    assert budget.held == 5
    request.feed(b"67890x")

    assert request.size == 11
    assert not request._parts
    assert budget.held == 0
