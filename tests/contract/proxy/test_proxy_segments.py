"""Where a network cuts its bytes changes nothing, and no bytes raise."""

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flexinfer.adapters.web.proxy.client import Client
from flexinfer.adapters.web.proxy.limits import Budget, ServerLimits, UpstreamLimits
from flexinfer.adapters.web.proxy.request import Request
from flexinfer.adapters.web.proxy.upstream import Connection, UpstreamFailed
from flexinfer.core.routing.refusal import Refusal


class Transport(asyncio.Transport):
    """Remembers what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.written += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def get_write_buffer_size(self) -> int:
        return 0


class Owner:
    """A listener that keeps what it is asked."""

    def __init__(self) -> None:
        self.limits = ServerLimits(head_bytes=2048, body_bytes=4096)
        self.budget = Budget(1 << 20)
        self.loop = asyncio.get_running_loop()
        self.draining = False
        self.asked: list[tuple[str, str, tuple[tuple[bytes, bytes], ...], bytes | int]] = []
        self.refusals: list[int] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def opened(self, client: Client) -> None:
        pass

    def closed(self, client: Client) -> None:
        pass

    def refused(self, why: Refusal) -> None:
        self.refusals.append(why.status)

    async def handle(self, request: Request, client: Client) -> None:
        try:
            body: bytes | int = await request.body()
        except Refusal as why:
            body = why.status
            client.refuse(why, [])
        else:
            client.respond(200, b"ok", [])
        self.asked.append((request.method, request.path, tuple(request.headers), body))

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        return task


async def settle() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    marks = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(marks) if a != b]


async def talk(segments: list[bytes]) -> tuple[Any, bytes]:
    owner, transport = Owner(), Transport()
    client = Client(owner)
    client.connection_made(transport)
    for segment in segments:
        client.data_received(segment)
        await settle()
    await settle()
    client.connection_lost(None)
    for task in owner.tasks:
        task.cancel()
    await asyncio.gather(*owner.tasks, return_exceptions=True)
    assert owner.budget.held == 0
    return owner.asked, transport.written


bodies = st.binary(max_size=60)
names = st.sampled_from(["X-A", "Content-Type", "X-Model-ID", "Accept"])
values = st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=8)


@st.composite
def request(draw: Any) -> bytes:
    headers = draw(st.lists(st.tuples(names, values), max_size=4))
    lines = [f"{name}: {value}" for name, value in headers]
    path = draw(st.sampled_from(["/v1/chat/completions", "/v1/models?x=1", "/x"]))
    body = draw(bodies)
    if draw(st.booleans()):
        lines += ["Connection: Upgrade", "Upgrade: h2c"]
    if draw(st.booleans()):
        lines.append("Transfer-Encoding: chunked")
        cut = draw(st.integers(0, len(body)))
        framed = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:cut], body[cut:]) if part)
        body = framed + b"0\r\n" + draw(st.sampled_from([b"", b"X-Late: 1\r\n"])) + b"\r\n"
    else:
        lines.append(f"Content-Length: {len(body)}")
    return f"POST {path} HTTP/1.1\r\nHost: h\r\n".encode() + "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@given(st.lists(request(), min_size=1, max_size=4), st.lists(st.integers(0, 2000), max_size=12))
@settings(max_examples=150, deadline=None)
def test_requests_are_the_same_however_they_arrive(requests: list[bytes], cuts: list[int]) -> None:
    data = b"".join(requests)

    whole, answers = asyncio.run(talk([data]))
    cut, cut_answers = asyncio.run(talk(pieces(data, cuts)))

    assert len(whole) == len(requests)
    assert cut == whole
    assert cut_answers == answers


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
@settings(max_examples=200, deadline=None)
def test_no_bytes_of_a_client_raise(data: bytes, cuts: list[int]) -> None:
    asyncio.run(talk(pieces(data, cuts)))
    asyncio.run(talk(pieces(b"POST /v1/x HTTP/1.1\r\nHost: h\r\n" + data, cuts)))


class Kept:
    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


async def answer(segments: list[bytes], *, plain: bool) -> tuple[int, bytes, bool] | str:
    connection = Connection(UpstreamLimits(head_bytes=2048), asyncio.get_running_loop())
    connection.connection_made(Transport())
    asking = asyncio.get_running_loop().create_task(
        connection.ask(b"GET / HTTP/1.1\r\n\r\n", b"", bodiless=False, plain=plain)
    )
    await settle()
    kept = Kept()
    relaying: asyncio.Task[None] | None = None
    for segment in segments:
        connection.data_received(segment)
        await settle()
        if asking.done() and not asking.exception() and relaying is None:
            kept.write(connection.take())
            relaying = asyncio.get_running_loop().create_task(connection.relay(kept))
            await settle()
    connection.connection_lost(None)
    await settle()
    try:
        head = await asking
        if relaying is None:
            kept.write(connection.take())
            await connection.relay(kept)
        else:
            await relaying
    except UpstreamFailed as err:
        return err.stage
    return head.status, kept.data, connection.complete


@st.composite
def reply(draw: Any) -> tuple[bytes, bytes, bytes]:
    """(wire, raw body, plain body)"""
    body = draw(bodies)
    interim = draw(st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n"]))
    if draw(st.booleans()):
        cut = draw(st.integers(0, len(body)))
        framed = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:cut], body[cut:]) if part)
        raw = framed + b"0\r\n" + draw(st.sampled_from([b"", b"X-Late: 1\r\n"])) + b"\r\n"
        return interim + b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + raw, raw, body
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    return interim + head + body, body, body


@given(reply(), st.lists(st.integers(0, 400), max_size=10))
@settings(max_examples=150, deadline=None)
def test_answers_are_the_same_however_they_arrive(made: tuple[bytes, bytes, bytes], cuts: list[int]) -> None:
    wire, raw, body = made

    assert asyncio.run(answer(pieces(wire, cuts), plain=False)) == (200, raw, True)
    assert asyncio.run(answer(pieces(wire, cuts), plain=True)) == (200, body, True)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5), st.booleans())
@settings(max_examples=200, deadline=None)
def test_no_bytes_of_an_engine_raise_or_hang(data: bytes, cuts: list[int], plain: bool) -> None:
    for prefix in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        outcome = asyncio.run(asyncio.wait_for(answer(pieces(prefix + data, cuts), plain=plain), 60))
        assert isinstance(outcome, tuple) or outcome in {"head", "body", "send"}
