"""The executable on a real bus: from zero, killed, without its bus, two of a kind."""

import asyncio

from flexinfer.contracts.events import ModelDemand, ModelLoad
from flexinfer.testing.fake_engine import Fault
from tests.contract.proxy.rig import Wire, chat, post, until
from tests.integration.proxy.processes import Stage

ASK = post("/v1/chat/completions", chat())


async def test_a_request_wakes_a_model_and_is_answered(stage: Stage) -> None:
    engine = await stage.engine()
    await stage.route(wakeable=True)
    proxy = await (await stage.proxy("p1")).ready()
    await stage.listen()
    wire = await Wire.to(proxy.port)
    wire.send(ASK)
    await until(lambda: any(event.waiting == 1 for event in stage.events(ModelDemand)))

    await stage.route(engine, wakeable=True)
    answer = await wire.answer()

    assert answer.status == 200
    await until(lambda: stage.events(ModelDemand)[-1].waiting == 0)
    await until(lambda: any(event.last_used for event in stage.events(ModelLoad)))
    await wire.close()


async def test_a_proxy_killed_in_a_cold_start_leaves_its_demand(stage: Stage) -> None:
    await stage.route(wakeable=True)
    proxy = await (await stage.proxy("p1")).ready()
    wire = await Wire.to(proxy.port)
    wire.send(ASK)
    async with asyncio.timeout(60):
        while not await stage.bus.state((ModelDemand,)):  # noqa: ASYNC110 - a store tells nobody
            await asyncio.sleep(0.02)

    await proxy.kill()

    (left,) = await stage.bus.state((ModelDemand,))
    assert left.data.waiting == 1
    assert await wire.closed()
    await wire.close()


async def test_two_proxies_drain_the_same_model_and_count_apart(stage: Stage) -> None:
    engine = await stage.engine()
    engine.fault = Fault(stall_after=2)
    await stage.route(wakeable=True)
    proxies = [await stage.proxy(name) for name in ("p1", "p2")]
    wires = []
    await stage.listen()
    for proxy in proxies:
        await proxy.ready()
        wires.append(await Wire.to(proxy.port))
        wires[-1].send(post("/v1/chat/completions", chat(stream=True)))
    await until(lambda: {e.proxy for e in stage.events(ModelDemand) if e.waiting} == {"p1", "p2"})

    await stage.route(engine, wakeable=True)

    await until(lambda: engine.totals.active == 2)
    await until(lambda: {e.proxy for e in stage.events(ModelLoad) if e.outstanding == 1} == {"p1", "p2"})
    for wire in wires:
        await wire.close()


async def test_traffic_flows_while_the_bus_is_down_and_the_table_catches_up(stage: Stage) -> None:
    first, second = await stage.engine(), await stage.engine()
    await stage.route(first)
    proxy = await (await stage.proxy("p1")).ready()

    await stage.nats.kill()
    assert (await proxy.ask(ASK)).status == 200
    ready = await proxy.get("/readyz")
    assert ready.status == 200

    await stage.nats.start()
    await until(lambda: stage.bus.connected)
    await stage.route(second, model="later")
    await stage.sees(proxy, "later", "ready")
    assert (await proxy.ask(post("/v1/chat/completions", chat("later")))).status == 200


async def test_without_a_table_it_is_not_ready_and_says_why(stage: Stage) -> None:
    await stage.nats.kill()
    proxy = await stage.proxy("p1")
    async with asyncio.timeout(60):
        while True:
            try:
                answer = await proxy.get("/readyz")
                break
            except OSError:
                await asyncio.sleep(0.05)

    assert answer.status == 503
    assert b"no snapshot from the bus" in answer.body
    refused = await proxy.ask(ASK)
    assert (refused.status, refused.error()["code"]) == (503, "not_ready")


async def test_an_engine_killed_mid_stream_cuts_the_stream_and_the_next_request_goes_elsewhere(stage: Stage) -> None:
    doomed, other = await stage.engine(), await stage.engine()
    doomed.fault = Fault(stall_after=2)
    await stage.route(doomed, other, speeds=(1000.0, 1.0))
    proxy = await (await stage.proxy("p1")).ready()
    wire = await Wire.to(proxy.port)
    wire.send(post("/v1/chat/completions", chat(stream=True, tokens=50)))
    await wire.reader.readuntil(b"\r\n\r\n")

    await until(lambda: doomed.totals.completion_tokens == 2)
    await doomed.stop()

    assert not (await wire._chunked())[2]
    answer = await proxy.ask(ASK)
    assert (answer.status, answer.headers["x-flexinfer-endpoint"]) == (200, "pod-1")
    await wire.close()


async def test_sigterm_drains(stage: Stage) -> None:
    engine = await stage.engine()
    engine.fault = Fault(stall_after=2, stall_for=0.5)
    await stage.route(engine)
    proxy = await (await stage.proxy("p1")).ready()
    wire = await Wire.to(proxy.port)
    wire.send(post("/v1/chat/completions", chat(stream=True, tokens=8)))
    await wire.reader.readuntil(b"\r\n\r\n")

    code = asyncio.ensure_future(proxy.terminate())  # noqa: TID251 - a test has no supervisor
    body, _, clean = await wire._chunked()

    assert clean
    assert body.endswith(b"data: [DONE]\n\n")
    assert await code == 0
    await wire.close()
