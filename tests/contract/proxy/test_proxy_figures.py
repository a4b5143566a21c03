"""Metrics: what is counted, and what never becomes a label."""

from flexinfer.telemetry import metrics
from tests.contract.proxy.rig import Rig, chat, post, until

ASK = post("/v1/chat/completions", chat())


def series(rig: Rig) -> list[str]:
    text = rig.proxy._service.own_metrics().decode()
    return [line for line in text.splitlines() if line.startswith("flexinfer_proxy_") and "_created" not in line]


async def test_names_from_requests_never_become_series(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    await rig.route(engine)
    await rig.ask(post("/v1/chat/completions", chat("nobody")))
    await rig.ask(ASK)
    before = len(series(rig))

    for number in range(40):
        await rig.ask(post("/v1/chat/completions", chat(f"nobody-{number}"), f"X-Request-ID: r{number}"))
        await rig.ask(post(f"/v1/nowhere-{number}", chat()))

    assert len(series(rig)) <= before + 2
    assert not any("nobody" in line or "nowhere" in line for line in series(rig))


async def test_a_model_that_is_gone_takes_its_series_along(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    await rig.route(engine, model="brief")
    await rig.ask(post("/v1/chat/completions", chat("brief")))
    assert any("default/brief" in line for line in series(rig))

    await rig.route(engine, model="brief", gone=True)

    assert not any("default/brief" in line for line in series(rig))


async def test_answers_tokens_and_times_are_counted(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    await rig.route(engine, model="counted")
    for stream in (True, False):
        await rig.ask(post("/v1/chat/completions", chat("counted", tokens=7, stream=stream)))
    wire = await rig.wire()
    wire.send(post("/v1/chat/completions", chat("counted", stream=True, tokens=100_000)))
    await until(lambda: rig.proxy.directory.used("default/counted").outstanding == 1)
    rig.proxy._service.own_metrics()
    label = {"model": "default/counted"}

    assert metrics.value_of("flexinfer_proxy_requests_total", {**label, "code": "200"}) == 2
    assert 14 <= metrics.value_of("flexinfer_proxy_tokens_total", label) <= 20
    assert metrics.value_of("flexinfer_proxy_request_duration_seconds_count", label) == 2
    assert metrics.value_of("flexinfer_proxy_first_byte_seconds_bucket", {**label, "le": "60"}) == 2
    assert metrics.value_of("flexinfer_proxy_outstanding_requests", label) == 1
    await wire.close()
    await until(lambda: rig.proxy.directory.used("default/counted").outstanding == 0)
    assert metrics.value_of("flexinfer_proxy_cancelled_total", label) == 1


async def test_open_connections_are_told_on_both_sides(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    await rig.route(engine)
    wires = [await rig.wire() for _ in range(3)]
    for wire in wires:
        wire.send(post("/v1/chat/completions", chat(stream=True, tokens=100_000)))
    await until(lambda: rig.proxy.connections.open == 3)

    text = (await rig.ask(b"GET /metrics HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n")).body.decode().splitlines()

    assert "flexinfer_proxy_client_connections 4.0" in text
    assert "flexinfer_proxy_engine_connections 3.0" in text
    for wire in wires:
        await wire.close()
    await until(lambda: rig.proxy.listener.connections == 0)
    assert "flexinfer_proxy_client_connections 0.0" in series(rig)


async def test_refusals_are_counted_by_code(rig: Rig) -> None:
    await rig.start()
    before = metrics.value_of("flexinfer_proxy_refused_total", {"code": "invalid_json"})

    await rig.ask(post("/v1/chat/completions", b"{"))
    await rig.ask(b"NONSENSE\r\n\r\n")

    assert metrics.value_of("flexinfer_proxy_refused_total", {"code": "invalid_json"}) == before + 1
    assert metrics.value_of("flexinfer_proxy_refused_total", {"code": "malformed_request"}) >= 1
