"""Models at zero: requests wait, the bus hears of them, and everything drains when an endpoint comes."""

import asyncio

from flexinfer.contracts.events import ClusterHeadroom, ModelDemand, ModelLoad
from flexinfer.telemetry import metrics
from flexinfer.testing.fake_engine import Speeds
from tests.contract.proxy.rig import Rig, chat, post, until

ASK = post("/v1/chat/completions", chat())


async def listening(rig: Rig) -> None:
    await rig.bus.follow((ModelDemand, ModelLoad, ClusterHeadroom), _keep(rig))


def _keep(rig: Rig):
    def sink(fact: object) -> None:
        if hasattr(fact, "data"):
            rig.heard.append(fact)

    return sink


async def test_requests_wait_for_a_model_at_zero_and_drain_together(rig: Rig) -> None:
    engine = await rig.engine()
    await rig.start()
    await listening(rig)
    await rig.route(wakeable=True)
    wires = [await rig.wire() for _ in range(5)]

    for wire in wires:
        wire.send(ASK)
    await until(lambda: any(event.waiting == 5 for event in rig.events(ModelDemand)))
    assert rig.events(ModelDemand)[0].waiting >= 1
    await rig.route(engine, wakeable=True)

    answers = [await wire.answer() for wire in wires]
    assert [answer.status for answer in answers] == [200] * 5
    assert engine.totals.peak_active == 5
    await until(lambda: rig.events(ModelDemand)[-1].waiting == 0)


async def test_the_first_demand_goes_out_at_once_and_the_next_ones_at_their_pace(rig: Rig) -> None:
    await rig.start()
    await listening(rig)
    await rig.route(wakeable=True)
    loop = asyncio.get_running_loop()

    began = loop.time()
    (await rig.wire()).send(ASK)
    await until(lambda: rig.events(ModelDemand))
    for _ in range(20):
        (await rig.wire()).send(ASK)
    await until(lambda: rig.events(ModelDemand)[-1].waiting == 21)

    assert rig.events(ModelDemand)[0].waiting == 1
    assert len(rig.events(ModelDemand)) <= 2 + int((loop.time() - began) / 0.1)


async def test_a_full_queue_turns_the_next_one_away(rig: Rig) -> None:
    await rig.start(queue_limit=2)
    await rig.route(wakeable=True)
    for _ in range(2):
        (await rig.wire()).send(ASK)
    await until(lambda: rig.proxy.room.waiting == 2)

    answer = await rig.ask(ASK)

    assert (answer.status, answer.error()["code"]) == (503, "queue_full")
    assert int(answer.headers["retry-after"]) > 0


async def test_a_cold_start_that_takes_too_long_is_504(rig: Rig) -> None:
    await rig.start()
    await rig.route(wakeable=True, cold_start_timeout_seconds=0.1)

    answer = await rig.ask(ASK)

    assert (answer.status, answer.error()["code"]) == (504, "cold_start_timeout")


async def test_a_start_that_cannot_succeed_fails_those_who_wait_at_once(rig: Rig) -> None:
    await rig.start()
    await rig.route(wakeable=True)
    wire = await rig.wire()
    wire.send(ASK)
    await until(lambda: rig.proxy.room.waiting == 1)

    await rig.route(wakeable=True, failure="no node has 80 GiB")

    answer = await wire.answer()
    assert (answer.status, answer.error()["code"]) == (503, "activation_failed")
    assert "80 GiB" in answer.error()["message"]
    assert int(answer.headers["retry-after"]) > 0
    again = await rig.ask(ASK)
    assert again.status == 503


async def test_a_background_request_never_wakes_a_model(rig: Rig) -> None:
    await rig.start()
    await listening(rig)
    await rig.route(wakeable=True)

    answer = await rig.ask(post("/v1/chat/completions", chat(), "X-FlexInfer-Background: 1"))

    assert (answer.status, answer.error()["code"]) == (503, "model_asleep")
    assert not rig.events(ModelDemand)


async def test_a_model_nobody_may_wake_answers_503(rig: Rig) -> None:
    await rig.start()
    await rig.route()

    answer = await rig.ask(ASK)

    assert (answer.status, answer.error()["code"]) == (503, "no_endpoint")


async def test_a_client_that_gives_up_takes_its_demand_back(rig: Rig) -> None:
    await rig.start()
    await listening(rig)
    await rig.route(wakeable=True)
    wire = await rig.wire()
    wire.send(ASK)
    await until(lambda: rig.events(ModelDemand))

    await wire.close()

    await until(lambda: rig.events(ModelDemand)[-1].waiting == 0)
    assert rig.proxy.room.waiting == 0


async def test_load_and_headroom_are_told(rig: Rig) -> None:
    engine = await rig.engine(speeds=Speeds(tokens_per_second=200))
    proxy = await rig.start()
    await listening(rig)
    await rig.route(engine, speeds=(50.0,))
    wire = await rig.wire()
    wire.send(post("/v1/chat/completions", chat(stream=True, tokens=10_000)))
    await until(lambda: proxy.directory.used("default/m").tokens > 5)

    await proxy.signals.report()
    await until(lambda: rig.events(ModelLoad))

    load = rig.events(ModelLoad)[-1]
    assert (load.model, load.proxy, load.outstanding) == ("m", "p0", 1)
    assert load.last_used is not None
    headroom = [event for event in rig.events(ClusterHeadroom) if event.models][-1]
    assert headroom.url == proxy.url()
    assert [(row.model, row.tokens_per_second <= 50) for row in headroom.models] == [("m", True)]


async def test_the_last_known_table_serves_while_the_bus_is_away(rig: Rig) -> None:
    engine = await rig.engine()
    proxy = await rig.start()
    await rig.route(engine)

    rig.broker.stop() if hasattr(rig.broker, "stop") else None

    assert (await rig.ask(ASK)).status == 200
    assert proxy.readiness.report()[0]
    proxy._service.own_metrics()
    assert metrics.value_of("flexinfer_proxy_requests_total", {"model": "default/m", "code": "200"}) >= 1
