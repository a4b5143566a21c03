"""No bytes of a client choose an address, reach a path outside the API, or become a second request at an engine."""

import asyncio
import re
from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.apps.global_proxy import GlobalProxy
from flexinfer.config.proxy import GlobalProxySettings
from flexinfer.testing.fake_wire import Request
from tests.abuse import raw
from tests.abuse.budget import examples
from tests.contract.proxy.echo import EchoEngine, plain
from tests.contract.proxy.rig import DEADLINE, Rig, chat, rig_of, until

_OURS = ("x-model-id", "x-flexinfer-background", "x-flexinfer-endpoint", "x-flexinfer-reason")
_HOP = ("connection", "keep-alive", "te", "upgrade", "proxy-authorization", "transfer-encoding", "trailer", "expect")


class Trap(EchoEngine):
    """An engine that keeps what it is asked, and whose connections must never carry anything else."""

    async def begin(self) -> "Trap":
        self.keep = True
        self.behave = _answer
        await self.start()
        return self

    def check(self, authority: str, own: tuple[str, ...] = _OURS) -> None:
        for request in self.requests:
            assert re.fullmatch(r"/(?:model/[!-~]+/)?v1/[!-~]*", request.path), request.path
            assert "/../" not in request.path.partition("?")[0] + "/"
            assert request.headers["host"] == authority
            assert request.headers.get("content-length", "0") == str(len(request.body))
            assert not [name for name in (*own, *_HOP) if name in request.headers]
            assert not re.search(r"[\r\n\0]", "".join(request.headers.values()))


async def _answer(engine: EchoEngine, request: Request, writer: asyncio.StreamWriter) -> bool:
    """The list of models of a cluster, and an echo of everything else."""
    if request.path != "/v1/models":
        return await plain(engine, request, writer)
    body = b'{"object":"list","data":[{"id":"m"}]}'
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return True


@pytest.fixture
async def evil() -> AsyncIterator[EchoEngine]:
    made = await EchoEngine(name="evil").start()
    yield made
    await made.stop()


@pytest.fixture
async def trap() -> AsyncIterator[Trap]:
    made = await Trap(name="good").begin()
    yield made
    await made.stop()


@pytest.fixture
async def rig(trap: Trap) -> AsyncIterator[Rig]:
    async with rig_of() as made:
        await made.start(max_body=1 << 20)
        await made.route(trap.url)
        yield made


@pytest.fixture
async def world(trap: Trap) -> AsyncIterator[GlobalProxy]:
    settings = GlobalProxySettings(
        host="127.0.0.1", port=0, clusters=f"a={trap.url}", health_interval=3600, max_body=1 << 20, drain_timeout=2,
        accept_timeout=0,
    )  # fmt: skip
    proxy = await GlobalProxy(settings, None).start()
    await until(lambda: proxy.clusters.members["a"].models is not None)
    yield proxy
    await proxy.stop()


def lines(*parts: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join(parts) + b"\r\n\r\n" + body


def picks(evil: str) -> list[bytes]:
    """Requests that name an address of the client's choice, in every place that has one."""
    ask = chat().replace(b'"m"', b'"%s"')
    host = evil.removeprefix("http://").encode()
    url = evil.encode()
    size = b"Content-Length: %d" % len(chat())
    start = b"POST /v1/chat/completions HTTP/1.1"
    named = ask % url
    return [
        lines(b"POST %s/v1/chat/completions HTTP/1.1" % url, b"Host: p", size, body=chat()),
        lines(b"POST //%s/v1/chat/completions HTTP/1.1" % host, b"Host: p", size, body=chat()),
        lines(b"POST /v1/chat/completions@%s HTTP/1.1" % host, b"Host: p", size, body=chat()),
        lines(b"POST /model/%s/v1/chat/completions HTTP/1.1" % host, b"Host: p", size, body=chat()),
        lines(b"POST /model/%s/v1/chat/completions HTTP/1.1" % url, b"Host: p", size, body=chat()),
        lines(start, b"Host: " + host, size, body=chat()),
        lines(start, b"Host: p", b"Host: " + host, size, body=chat()),
        lines(start, b"Host: p@" + host, size, body=chat()),
        *(
            lines(start, b"Host: p", name + b": " + value, size, body=chat())
            for name in (
                b"X-Forwarded-Host", b"X-Forwarded-Server", b"Forwarded", b"X-Original-URL", b"X-Rewrite-URL",
                b"X-Host", b"X-Model-ID", b"X-FlexInfer-Endpoint", b"X-FlexInfer-Cluster", b"X-Real-IP", b"Via",
                b"Proxy-Host", b"Destination", b"Location", b"X-Forwarded-For", b"Referer",
            )
            for value in (host, url, b"host=" + host)
        ),
        lines(start, b"Host: p", b"Content-Length: %d" % len(named), body=named),
        lines(b"CONNECT %s HTTP/1.1" % host, b"Host: p"),
        lines(b"GET http://m@%s/v1/models HTTP/1.1" % host, b"Host: p"),
        lines(b"GET /v1/models/%s HTTP/1.1" % url, b"Host: p"),
        lines(b"GET /v1/models/http:%%2f%%2f%s HTTP/1.1" % host, b"Host: p"),
    ]  # fmt: skip


async def asked(port: int, requests: list[bytes]) -> list[int]:
    replies = [raw.reply(port, data.replace(b" HTTP/1.1\r\n", b" HTTP/1.1\r\nConnection: close\r\n", 1), end=False)
               for data in requests]  # fmt: skip
    return [status for answer in await asyncio.gather(*replies) for status in raw.statuses(answer)]


async def test_no_place_for_an_address_is_followed(rig: Rig, trap: Trap, evil: EchoEngine) -> None:
    found = await asked(rig.proxy.port, picks(evil.url))

    assert set(found) <= {200, 400, 404, 405}
    assert evil.accepted == 0
    trap.check(trap.url.removeprefix("http://"))


async def test_the_global_proxy_follows_none_either(world: GlobalProxy, trap: Trap, evil: EchoEngine) -> None:
    found = await asked(world.port, picks(evil.url))

    assert 200 in found
    assert set(found) <= {200, 400, 404, 405, 503}
    assert evil.accepted == 0
    trap.check(trap.url.removeprefix("http://"), own=())


ESCAPES = (
    "..", "%2e%2e", "%2E.", ".%2e", "%252e%252e", "..%2f", "..%5c", "..\\", "..;", "..;/", "%2e%2e%2f", "%c0%ae%c0%ae",
    "%uff0e%uff0e", "．．", "....//", "./.", "%00", "%0d%0a", "%09", "%20", "%ff", "//", "/%2f/", "%2f..", "#", "?",
    "\\..\\", "%5c..%5c",
)  # fmt: skip


@pytest.mark.parametrize("before", ["/v1/", "/model/m/", "/model/m/v1/", "/model/", "/"])
async def test_no_escape_leaves_the_api(rig: Rig, trap: Trap, before: str) -> None:
    """An engine's own pages (``/metrics``, ``/shutdown``, ``/load_lora_adapter``) stay its own."""
    requests = []
    for escape in ESCAPES:
        for target in ("shutdown", "v1/chat/completions", "metrics"):
            path = f"{before}{escape}/{target}".encode()
            requests.append(lines(b"POST %b HTTP/1.1" % path, b"Host: p", b"X-Model-ID: m", b"Content-Length: 2",
                                  body=b"{}"))  # fmt: skip
    await asked(rig.proxy.port, requests)

    trap.check(trap.url.removeprefix("http://"))
    for request in trap.requests:
        path = request.path.partition("?")[0]
        assert path.startswith("/v1/")
        assert ".." not in path.split("/")
        assert not re.search(r"%2e|%5c|%0|%25|//|\\|%2f", path, re.IGNORECASE)


NAMES_OF_MODELS = (
    b"m\rX-Evil: 1", b"m\nX-Evil: 1", b"m\r\nX-Evil: 1", b"m\x00", b"\xe2\x80\xae", "ｍ".encode(), b"\xff", b"m m",
    b"../m", b"m/../../x", b"m;v1", b"m?x", b"m#x", b"http://127.0.0.1:22/", b"m" * 300, b"'; --", b"$(id)", b"{{7*7}}",
)  # fmt: skip


async def test_a_model_is_named_in_plain_letters_only(rig: Rig, trap: Trap) -> None:
    requests = []
    for name in NAMES_OF_MODELS:
        body = msgspec.json.encode({"model": name.decode("latin-1"), "messages": []})
        size = b"Content-Length: %d" % len(body)
        start = b"POST /v1/chat/completions HTTP/1.1"
        if b"\r\n" not in name:  # on the wire that is another header, as any client may send
            requests.append(lines(start, b"Host: p", b"X-Model-ID: " + name, b"Content-Length: 2", body=b"{}"))
        requests.append(lines(start, b"Host: p", size, body=body))
    found = await asked(rig.proxy.port, requests)

    assert set(found) <= {400, 404}
    assert not any("x-evil" in request.headers for request in trap.requests)


# --- requests put together by chance ------------------------------------------------------------------------------

METHODS = st.sampled_from([b"POST", b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE"])
TARGETS = st.lists(
    st.sampled_from([b"/v1/", b"chat/completions", b"/model/", b"m", b"/", b"..", b"%2e", b"%2f", b"?", b"a=b", b"#",
                     b"//", b"http://x", b":", b"@", b"\xff", b"\x7f", b"%0d%0a", b";", b"\t", b"\\"])
    | st.binary(max_size=3),
    min_size=1, max_size=6,
).map(b"".join)  # fmt: skip
FIELDS = st.sampled_from([
    b"Host: p", b"Host: other", b"X-Model-ID: m", b"x-model-id: nobody", b"Content-Length: 2", b"Content-Length: 0",
    b"Content-Length: 99", b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", b"TE: trailers",
    b"Connection: close", b"Connection: X-Model-ID, content-length, host", b"Connection: keep-alive, transfer-encoding",
    b"Expect: 100-continue", b"Upgrade: h2c", b"Connection: Upgrade", b"Trailer: Host", b"X-Forwarded-Host: evil",
    b"Content-Type: multipart/form-data; boundary=B", b"Content-Type: application/json", b"X: a\rb", b"X: \x00",
    b" folded: yes", b"X:", b"Keep-Alive: 5", b"Proxy-Connection: keep-alive", b"X-FlexInfer-Background: 1",
    b"X-Request-ID: a\tb", b"X-Request-ID: ok-1", b"Authorization: Bearer k", b"\xff: \xff", b"X-Utf: \xe2\x80\xae",
])  # fmt: skip
BODIES = st.sampled_from([
    b"", b"{}", b'{"model":"m"}', b"0\r\n\r\n", b"2\r\n{}\r\n0\r\n\r\n", b"2;x\r\n{}\r\n0\r\nHost: evil\r\n\r\n",
    b"\r\n", b"GET /v1/smuggled HTTP/1.1\r\nHost: s\r\n\r\n", b"2\n{}\n0\n\n", b"--B\r\n\r\n", b"ffffffffffffffff\r\n",
]) | st.binary(max_size=30)  # fmt: skip


def _request(target: bytes, version: bytes, extra: list[bytes], body: bytes, *, framed: bool, method: bytes) -> bytes:
    fields = [b"Host: p", b"X-Model-ID: m", *extra]
    if framed:
        fields.append(b"Content-Length: %d" % len(body))
    return lines(method + b" " + target + version, *fields, body=body)


GOOD = st.just(b"/v1/chat/completions")
REQUESTS = st.builds(
    _request, GOOD | GOOD | TARGETS, st.sampled_from([b" HTTP/1.1", b" HTTP/1.1", b" HTTP/1.0"]),
    st.lists(FIELDS, max_size=2), BODIES, framed=st.sampled_from([True, True, False]), method=METHODS,
)  # fmt: skip


@examples(150)
@given(st.lists(REQUESTS, min_size=1, max_size=3).map(b"".join))
async def test_any_bytes_leave_the_engine_with_whole_requests_of_the_api(rig: Rig, trap: Trap, data: bytes) -> None:
    """What arrives at the engine is one request for each answer that came from it, each in the one form we write."""
    trap.requests.clear()
    answer = await raw.reply(rig.proxy.port, data, patience=0.02)

    trap.check(trap.url.removeprefix("http://"))
    assert 500 not in raw.statuses(answer)
    whole = data.count(b" HTTP/1.")
    assert len(trap.requests) <= whole
    assert raw.statuses(await asyncio.wait_for(raw.reply(rig.proxy.port, raw.get("/healthz")), DEADLINE)) == [200]


async def test_what_was_asked_before_does_not_stay_in_memory(rig: Rig, trap: Trap) -> None:
    data = lines(b"POST /v1/chat/completions HTTP/1.1", b"Host: p", b"Content-Length: 900000", body=b"{}")
    for _ in range(20):
        await raw.reply(rig.proxy.port, data)

    await until(lambda: rig.proxy.listener.connections == 0)
    assert rig.proxy.listener.budget.held == 0
