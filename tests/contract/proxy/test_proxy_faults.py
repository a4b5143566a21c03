"""Engines that fail: what is retried, what is passed on, what the client can tell."""

import pytest

from flexinfer.testing.fake_engine import Fault
from tests.contract.proxy.rig import Rig, chat, post, until

ASK = post("/v1/chat/completions", chat())
STREAM = post("/v1/chat/completions", chat(stream=True, tokens=8))


async def test_a_dead_replica_is_passed_over(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    await rig.route("http://127.0.0.1:9", engine, speeds=(1000.0, 1.0))

    answer = await rig.ask(ASK)

    assert (answer.status, answer.headers["x-flexinfer-endpoint"]) == (200, "pod-1")


@pytest.mark.parametrize("fault", [Fault(status=500), Fault(status=503), Fault(status=429), Fault(drop=True)])
async def test_a_failure_before_the_first_byte_goes_to_another_replica(rig: Rig, fault: Fault) -> None:
    bad, good = await rig.engine(), await rig.engine()
    bad.fault = fault
    await rig.start()
    await rig.route(bad, good, speeds=(1000.0, 1.0))

    answer = await rig.ask(ASK)

    assert (answer.status, answer.headers["x-flexinfer-endpoint"]) == (200, "pod-1")
    assert (bad.totals.requests, good.totals.requests) == (1, 1)


async def test_the_engines_own_error_is_passed_on_when_there_is_no_other(rig: Rig) -> None:
    engine = await rig.engine()
    engine.fault = Fault(status=429, retry_after=7)
    await rig.start()
    await rig.route(engine)

    answer = await rig.ask(ASK)

    assert (answer.status, answer.headers["retry-after"]) == (429, "7")
    assert answer.error()["message"] == "fault on cue"
    assert engine.totals.requests == 1


async def test_a_request_error_is_not_retried(rig: Rig) -> None:
    one, two = await rig.engine(strict_model=True), await rig.engine()
    await rig.start()
    await rig.route(one, two, served_model="nobody", speeds=(1000.0, 1.0))

    answer = await rig.ask(ASK)

    assert answer.status == 404
    assert not two.totals.requests


async def test_no_replica_left_is_502(rig: Rig) -> None:
    await rig.start()
    await rig.route("http://127.0.0.1:9")

    answer = await rig.ask(ASK)

    assert (answer.status, answer.error()["code"]) == (502, "engine_unreachable")


async def test_who_met_a_replica_that_was_just_scaled_away_waits_for_the_next_start(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    await rig.route("http://127.0.0.1:9", wakeable=True)
    wire = await rig.wire()
    wire.send(ASK)
    await until(lambda: rig.proxy.room._watchers)  # it was refused, and hopes for news

    await rig.route(wakeable=True)
    await until(lambda: rig.proxy.room.waiting == 1)
    await rig.route(engine, wakeable=True)

    assert (await wire.answer()).status == 200


@pytest.mark.parametrize("fault", [Fault(reset_after=3), Fault(truncate_after=3)])
async def test_a_stream_that_breaks_is_never_made_whole(rig: Rig, fault: Fault) -> None:
    bad, good = await rig.engine(), await rig.engine()
    bad.fault = fault
    await rig.start()
    await rig.route(bad, good, speeds=(1000.0, 1.0))

    answer = await rig.ask(STREAM)

    assert answer.status == 200
    assert not answer.clean
    assert not good.totals.requests


async def test_silence_before_the_first_byte_is_504(rig: Rig) -> None:
    engine = await rig.engine()
    engine.fault = Fault(first_byte_delay=60)
    await rig.start(first_byte_timeout=0.2)
    await rig.route(engine)

    answer = await rig.ask(ASK)

    assert (answer.status, answer.error()["code"]) == (504, "engine_timeout")
    await until(lambda: engine._open == set())


async def test_silence_inside_a_stream_cuts_it(rig: Rig) -> None:
    engine = await rig.engine()
    engine.fault = Fault(stall_after=2)
    await rig.start(idle_timeout=0.2)
    await rig.route(engine)

    answer = await rig.ask(STREAM)

    assert not answer.clean


async def test_a_kept_connection_that_dies_is_replaced_unseen(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    await rig.route(engine)
    wire = await rig.wire()

    for _ in range(5):
        wire.send(STREAM)  # the fake closes after each stream although it announced keep-alive
        assert (await wire.answer()).clean
        wire.send(ASK)
        assert (await wire.answer()).status == 200
    for writer in tuple(engine._open):
        writer.transport.abort()
    wire.send(ASK)
    answer = await wire.answer()

    assert answer.status == 200
    assert engine.totals.requests == 11


async def test_connections_are_reused(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    await rig.route(engine)
    wire = await rig.wire()

    for _ in range(10):
        wire.send(ASK)
        await wire.answer()

    assert engine.totals.connections == 1


async def test_a_drain_lets_answers_finish(rig: Rig) -> None:
    engine = await rig.engine()
    engine.fault = Fault(stall_after=2, stall_for=0.3)
    proxy = await rig.start()
    await rig.route(engine)
    wire = await rig.wire()
    wire.send(STREAM)
    await wire.reader.readuntil(b"\r\n\r\n")
    idle = await rig.wire()

    stopping = proxy._tasks.once("stop", _stop(proxy))
    await until(lambda: proxy.readiness.draining)
    ready = await rig.ask(b"GET /readyz HTTP/1.1\r\nHost: p\r\n\r\n")
    body, _, clean = await wire._chunked()

    assert ready.status == 503
    assert ready.headers["connection"] == "close"
    assert clean
    assert body.endswith(b"[DONE]\n\n")
    assert await wire.closed()
    assert await idle.closed()
    await stopping


async def test_a_connection_made_just_before_a_drain_is_served(rig: Rig) -> None:
    engine = await rig.engine()
    proxy = await rig.start()
    await rig.route(engine)
    wire = await rig.wire()
    await until(lambda: proxy.listener.connections == 1)
    stopping = proxy._tasks.once("stop", proxy.listener.drain(60, 60))
    await until(lambda: proxy.listener.draining)

    wire.send(ASK)
    answer = await wire.answer()

    assert answer.status == 200
    assert answer.headers["connection"] == "close"
    assert await wire.closed()
    stopping.cancel()


async def test_who_comes_in_the_first_seconds_of_a_drain_is_served_even_if_nobody_was_there(rig: Rig) -> None:
    engine = await rig.engine()
    proxy = await rig.start()
    await rig.route(engine)
    stopping = proxy._tasks.once("stop", proxy.listener.drain(60, 60))
    await until(lambda: proxy.listener.draining)

    assert [(await rig.ask(ASK)).status for _ in range(3)] == [200, 200, 200]
    stopping.cancel()


async def _stop(proxy):
    proxy.readiness.draining = True
    await proxy.listener.drain(5, 1)
