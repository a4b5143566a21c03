"""One request through the proxy: which model, which bytes, which headers."""

import asyncio

import msgspec
import pytest

from flexinfer.contracts.events import ModelAdapter
from flexinfer.testing.fake_engine import Fault, Speeds
from tests.contract.proxy.rig import Rig, Wire, chat, post, until


async def test_a_chat_is_answered_by_the_engine_with_our_headers(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    await rig.route(engine)

    answer = await rig.ask(post("/v1/chat/completions", chat(), "X-Request-ID: abc-1"))

    assert answer.status == 200
    assert msgspec.json.decode(answer.body)["choices"][0]["message"]["content"] == " fake" * 4
    assert answer.headers["x-request-id"] == "abc-1"
    assert answer.headers["x-flexinfer-endpoint"] == "pod-0"
    assert answer.headers["x-flexinfer-reason"].startswith("measured ")
    assert engine.seen[0].headers["x-request-id"] == "abc-1"
    assert engine.seen[0].headers["host"] == engine.url.removeprefix("http://")


async def test_a_stream_is_the_engines_bytes_with_its_chunk_boundaries(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    await rig.route(engine)
    direct = await Wire.to(engine.port)
    rig.wires.append(direct)
    direct.send(post("/v1/chat/completions", chat(stream=True, tokens=20)))
    expected = await direct.answer()

    answer = await rig.ask(post("/v1/chat/completions", chat(stream=True, tokens=20)))

    assert answer.clean
    assert answer.body.count(b"data:") == expected.body.count(b"data:")
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.body.endswith(b"data: [DONE]\n\n")


async def test_the_first_token_passes_while_the_rest_is_still_to_come(rig: Rig) -> None:
    engine = await rig.engine()
    engine.fault = Fault(stall_after=1)
    await rig.start()
    await rig.route(engine)
    wire = await rig.wire()

    wire.send(post("/v1/chat/completions", chat(stream=True)))

    async with asyncio.timeout(60):
        await wire.reader.readuntil(b" fake")


async def test_a_client_that_leaves_cancels_the_engine(rig: Rig) -> None:
    engine = await rig.engine(speeds=Speeds(tokens_per_second=50))
    await rig.start()
    await rig.route(engine)
    wire = await rig.wire()
    wire.send(post("/v1/chat/completions", chat(stream=True, tokens=10_000)))
    async with asyncio.timeout(60):
        await wire.reader.readuntil(b" fake")

    await wire.close()

    await until(lambda: engine.totals.cancelled == 1)
    await until(lambda: rig.proxy.directory.usage["default/m"].outstanding == 0)


async def test_a_client_that_leaves_before_the_first_byte_cancels_too(rig: Rig) -> None:
    engine = await rig.engine(speeds=Speeds(tokens_per_second=1))
    await rig.start()
    await rig.route(engine)
    wire = await rig.wire()
    wire.send(post("/v1/chat/completions", chat(tokens=1000)))
    await until(lambda: engine.totals.active == 1)

    await wire.close()

    await until(lambda: engine.totals.cancelled == 1)


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/v1/chat/completions", chat("b"), ("X-Model-ID: a",)),
        ("/model/a/v1/chat/completions", chat("b"), ()),
        ("/model/default/a/v1/chat/completions", chat("b"), ()),
        ("/model/default%2Fa/v1/chat/completions", chat("b"), ()),
        ("/v1/chat/completions", chat("a"), ()),
        ("/v1/chat/completions", chat("default/a"), ()),
        ("/v1/chat/completions", chat("org/nick:8b"), ()),
        ("/model/b/v1/chat/completions", chat("b"), ("X-Model-ID: a",)),
    ],
)
async def test_the_order_of_model_choice(rig: Rig, path: str, body: bytes, headers: tuple[str, ...]) -> None:
    first, second = await rig.engine(), await rig.engine()
    await rig.start()
    await rig.route(first, model="a", aliases=("org/nick:8b",))
    await rig.route(second, model="b")

    answer = await rig.ask(post(path, body, *headers))

    assert answer.status == 200
    assert first.seen[0].path == "/v1/chat/completions"
    assert not second.seen


async def test_the_model_of_a_form(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    await rig.route(engine, model="whisper", served_model="whisper-1")
    form = (
        b'--XX\r\nContent-Disposition: form-data; name="file"; filename="model"\r\n\r\nname="model"\r\n'
        b'--XX\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n--XX--\r\n'
    )
    head = (
        f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: p\r\nContent-Length: {len(form)}\r\n"
        "Content-Type: multipart/form-data; boundary=XX\r\n\r\n"
    )

    answer = await rig.ask(head.encode() + form)

    assert answer.headers["x-flexinfer-endpoint"] == "pod-0"  # the fake knows no audio, but it was asked
    assert engine.seen[0].body == form.replace(b"\r\n\r\nwhisper\r\n", b"\r\n\r\nwhisper-1\r\n")


async def test_the_served_name_replaces_the_clients_and_nothing_else(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    await rig.route(engine, served_model="/models/x.gguf")

    await rig.ask(post("/v1/chat/completions", chat(extra=', "temperature": 1.50, "seed": 12345678901234567890')))

    sent = engine.seen[0].body
    assert engine.seen[0].json()["model"] == "/models/x.gguf"
    assert b'"temperature":1.50' in sent
    assert b'"seed":12345678901234567890' in sent


async def test_models_are_listed_with_those_at_zero_and_without_hidden_ones(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    await rig.route(engine, model="awake", speeds=(40.0,))
    await rig.route(model="asleep", wakeable=True)
    await rig.route(model="other", namespace="team", wakeable=True)
    await rig.route(engine, model="bench-x-0123", hidden=True)

    answer = await rig.ask(b"GET /v1/models HTTP/1.1\r\nHost: p\r\n\r\n")

    rows = {row["id"]: row for row in msgspec.json.decode(answer.body)["data"]}
    assert set(rows) == {"awake", "asleep", "other"}
    assert rows["awake"]["flexinfer"]["state"] == "ready"
    assert rows["awake"]["flexinfer"]["tokens_per_second"] == 40.0
    assert rows["asleep"]["flexinfer"]["state"] == "asleep"
    one = await rig.ask(b"GET /v1/models/team%2Fother HTTP/1.1\r\nHost: p\r\n\r\n")
    assert msgspec.json.decode(one.body)["id"] == "team/other"
    hidden = await rig.ask(b"GET /v1/models/bench-x-0123 HTTP/1.1\r\nHost: p\r\n\r\n")
    assert hidden.status == 404
    reached = await rig.ask(post("/v1/chat/completions", chat("bench-x-0123")))
    assert reached.status == 200


async def test_adapters_are_models_with_a_parent_and_their_engine_is_told_which(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    picked = {"model": "base", "lora": [{"id": 1, "scale": 0.5}]}
    adapter = ModelAdapter(name="sql", body=picked)
    await rig.route(engine, model="base", served_model="base", adapters=(adapter,))

    listed = await rig.ask(b"GET /v1/models HTTP/1.1\r\nHost: p\r\n\r\n")
    one = await rig.ask(b"GET /v1/models/sql HTTP/1.1\r\nHost: p\r\n\r\n")
    await rig.ask(post("/v1/chat/completions", chat("sql")))
    await rig.ask(post("/model/sql/v1/chat/completions", chat("sql")))
    await rig.ask(post("/v1/chat/completions", chat("base")))

    rows = {row["id"]: row.get("parent") for row in msgspec.json.decode(listed.body)["data"]}
    assert rows == {"base": None, "sql": "base"}
    assert msgspec.json.decode(one.body)["parent"] == "base"
    by_adapter, by_path, plain = (seen.json() for seen in engine.seen)
    assert picked.items() <= by_adapter.items()
    assert picked.items() <= by_path.items()
    assert (plain["model"], "lora" in plain) == ("base", False)


REFUSED: list[tuple[bytes, int, str]] = [
    (post("/v1/chat/completions", b'{"model": '), 400, "invalid_json"),
    (post("/v1/chat/completions", b"[1]"), 400, "invalid_body"),
    (post("/v1/chat/completions", b'{"messages": []}'), 400, "model_missing"),
    (post("/v1/chat/completions", b'{"model": 7}'), 400, "invalid_model"),
    (post("/v1/chat/completions", b'{"model": ["m"]}'), 400, "invalid_model"),
    (post("/v1/chat/completions", b'{"model": "a\\r\\nx: y"}'), 400, "invalid_model"),
    (post("/v1/chat/completions", b'{"model": "http://169.254.169.254/"}'), 404, "model_not_found"),
    (post("/v1/chat/completions", b"\xff\xfe"), 400, "invalid_json"),
    (post("/v1/chat/completions", b""), 400, "model_missing"),
    (post("/v1/chat/completions", chat("nobody")), 404, "model_not_found"),
    (post("/v1/chat/completions", chat(), "X-Model-ID: ../../etc"), 400, "invalid_model"),
    (post("/v1/../metrics", chat()), 400, "invalid_path"),
    (post("/v1/%2e%2e/slots", chat()), 400, "invalid_path"),
    (post("/v1/..%2fslots", chat()), 400, "invalid_path"),
    (post("/v1//slots", chat()), 400, "invalid_path"),
    (post("/v1/chat%00/completions", chat()), 400, "invalid_path"),
    (post("/v1/chat%0d%0aX:y/completions", chat()), 400, "invalid_path"),
    (post("/slots", chat()), 404, "invalid_path"),
    (post("/model/m/slots", chat()), 404, "invalid_path"),
    (post("/model//v1/chat/completions", chat()), 400, "invalid_path"),
    (b"DELETE /v1/models/m HTTP/1.1\r\nHost: p\r\n\r\n", 405, "method_not_allowed"),
    (b"GET /v1/models/nobody HTTP/1.1\r\nHost: p\r\n\r\n", 404, "model_not_found"),
    (b"NONSENSE\r\n\r\n", 400, "malformed_request"),
    (b"GET /v1/models HTTP/1.1\r\nHost: p\r\nX-A: b\rc\r\n\r\n", 400, "malformed_request"),
    (
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\n"),
        400, "malformed_request",
    ),
    (b"GET /v1/models HTTP/1.1\r\nHost: p\r\nX-Big: " + b"a" * 70_000 + b"\r\n\r\n", 431, "headers_too_large"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "status", "code"), REFUSED, ids=lambda v: str(v)[:60])
async def test_bad_input_is_refused_in_the_shape_clients_know(rig: Rig, data: bytes, status: int, code: str) -> None:
    engine = await rig.engine()
    await rig.start()
    await rig.route(engine)

    answer = await rig.ask(data)

    assert (answer.status, answer.error()["code"]) == (status, code)
    assert set(answer.error()) == {"message", "type", "param", "code"}
    assert not engine.seen


async def test_an_ambiguous_name_says_what_to_ask_for(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    await rig.route(engine, namespace="a")
    await rig.route(engine, namespace="b")

    answer = await rig.ask(post("/v1/chat/completions", chat()))

    assert answer.status == 404
    assert "a/m, b/m" in answer.error()["message"]


async def test_a_body_over_the_limit_is_refused_before_it_is_read(rig: Rig) -> None:
    await rig.start(max_body=2048)
    wire = await rig.wire()
    wire.send(post("/v1/chat/completions", b"", "Content-Length: 1000000", length=False) + b"x" * 1000)

    answer = await wire.answer()

    assert (answer.status, answer.error()["code"]) == (413, "request_too_large")
    assert await wire.closed()


async def test_a_chunked_body_over_the_limit_is_refused(rig: Rig) -> None:
    await rig.start(max_body=2048)
    wire = await rig.wire()
    wire.send(post("/v1/chat/completions", b"", "Transfer-Encoding: chunked", length=False))
    wire.send(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")

    answer = await wire.answer()

    assert answer.status == 413


async def test_ops_endpoints_share_the_port(rig: Rig) -> None:
    await rig.start()

    for path, expected in (("/healthz", b"ok"), ("/readyz", b'"ready":true'), ("/metrics", b"flexinfer_proxy_")):
        answer = await rig.ask(f"GET {path} HTTP/1.1\r\nHost: p\r\n\r\n".encode())
        assert answer.status == 200
        assert expected in answer.body
