"""Keys at the door, and what is written down about who came in."""

import logging
from pathlib import Path

import pytest

from flexinfer.adapters.web.proxy.gathering import merge
from flexinfer.adapters.web.proxy.keys import ApiKeys
from flexinfer.contracts.events import RequestServed
from flexinfer.core.routing.sampling import Sampler
from flexinfer.runtime.journal import read_tape
from tests.contract.proxy.rig import Rig, chat, post, until

ASK = post("/v1/chat/completions", chat())
LIST = b"GET /v1/models HTTP/1.1\r\nHost: p\r\n\r\n"


def with_key(key: str) -> bytes:
    return post("/v1/chat/completions", chat(), f"Authorization: Bearer {key}")


async def test_without_a_valid_key_nothing_is_answered(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# people\nsesame\n\nother-key\n")
    engine = await rig.engine()
    await rig.start(api_keys_file=file)
    await rig.route(engine)

    for data in (ASK, LIST, with_key("sesam"), with_key(""), with_key("# people")):
        answer = await rig.ask(data)
        assert (answer.status, answer.error()["code"]) == (401, "invalid_api_key")
    assert (await rig.ask(with_key("sesame"))).status == 200
    assert (await rig.ask(with_key("other-key"))).status == 200
    assert "authorization" not in engine.seen[-1].headers
    assert (await rig.ask(b"GET /readyz HTTP/1.1\r\nHost: p\r\n\r\n")).status == 200


async def test_a_large_body_without_a_key_is_not_read(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("k")
    await rig.start(api_keys_file=tmp_path / "keys")
    wire = await rig.wire()
    wire.send(post("/v1/chat/completions", b"", "Content-Length: 50000000", "Expect: 100-continue", length=False))

    answer = await wire.answer()

    assert answer.status == 401
    assert await wire.closed()


async def test_keys_change_with_their_file(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("old")
    engine = await rig.engine()
    proxy = await rig.start(api_keys_file=file)
    await rig.route(engine)
    assert (await rig.ask(with_key("old"))).status == 200

    file.with_suffix(".new").write_text("new-key")
    file.with_suffix(".new").replace(file)
    assert proxy._keys
    proxy._keys.refresh()

    assert (await rig.ask(with_key("old"))).status == 401
    assert (await rig.ask(with_key("new-key"))).status == 200


def test_a_key_file_that_vanishes_leaves_the_keys_in_force(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("k")
    keys = ApiKeys(file)

    file.unlink()
    keys.refresh()

    keys.check("Bearer k")


def test_no_file_is_an_error_at_the_start_never_an_open_door(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        ApiKeys(tmp_path / "missing")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="codec"):
        ApiKeys(tmp_path / "bytes")


async def test_without_keys_of_ours_the_engine_sees_the_clients(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    await rig.route(engine)

    await rig.ask(with_key("engine-key"))

    assert engine.seen[0].headers["authorization"] == "Bearer engine-key"


async def test_a_request_is_written_down_once_as_a_line_and_as_an_event(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[RequestServed] = []
    await rig.bus.follow((RequestServed,), lambda fact: heard.append(fact.data) if hasattr(fact, "data") else None)  # type: ignore[union-attr]
    engine = await rig.engine()
    await rig.start()
    await rig.route(engine)

    with caplog.at_level(logging.INFO, "flexinfer.access"):
        await rig.ask(post("/v1/chat/completions?secret=1", chat(), "X-Request-ID: r1"))
        await rig.ask(post("/v1/chat/completions", chat("nobody"), "X-Request-ID: r2"))
    await until(lambda: len(heard) == 2)

    first, second = heard
    assert (first.request_id, first.status, first.model, first.endpoint) == ("r1", 200, "default/m", "pod-0")
    assert (first.completion_tokens, first.path) == (4, "/v1/chat/completions")
    assert first.reason.startswith("measured ")
    assert first.answer_bytes > 100
    assert (second.status, second.model, second.reason) == (404, "", "model_not_found")
    lines = [record for record in caplog.records if record.name == "flexinfer.access"]
    assert [line.__dict__["request_id"] for line in lines] == ["r1", "r2"]
    assert "secret" not in caplog.text


def test_the_sampler_keeps_its_rate_and_owns_up_to_the_rest() -> None:
    sampler = Sampler(10.0)

    taken = [sampler.takes(second / 100) for second in range(1000)]

    lines = [left for left in taken if left is not None]
    assert 100 <= len(lines) <= 120
    assert sum(lines) + len(lines) + sampler.left_out == 1000
    assert Sampler(0.0).takes(1.0) is None


async def test_what_was_folded_can_be_replayed(rig: Rig, tmp_path: Path) -> None:
    proxy = await rig.start(record=tmp_path)
    await rig.route("http://127.0.0.1:9")
    await rig.proxies.pop().stop()

    (file,) = tmp_path.glob("proxy-*.jsonl")  # noqa: ASYNC240 - nothing else runs
    tape = read_tape(file)

    assert not tape.bad
    assert tape.header.component == "proxy"
    assert len(tape.facts) >= 2
    assert proxy.directory.table.routes


def test_metrics_of_workers_add_up() -> None:
    one = b'# HELP a_total A.\n# TYPE a_total counter\na_total{m="x y"} 2.0\n# HELP b B.\n# TYPE b gauge\nb 1.0\n'
    two = b'# HELP a_total A.\n# TYPE a_total counter\na_total{m="x y"} 3.0\na_total{m="z"} 1.0\n'

    merged = merge([one, two]).decode().splitlines()

    assert merged == [
        "# HELP a_total A.", "# TYPE a_total counter", 'a_total{m="x y"} 5.0', 'a_total{m="z"} 1.0',
        "# HELP b B.", "# TYPE b gauge", "b 1.0",
    ]  # fmt: skip
