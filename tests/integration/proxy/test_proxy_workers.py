"""Several workers behind one port."""

import asyncio
import os
import re
import signal
from pathlib import Path

from flexinfer.contracts.events import ClusterHeadroom, ModelDemand, ModelLoad
from flexinfer.testing.fake_engine import Fault, Speeds
from tests.contract.proxy.rig import Wire, chat, post, until
from tests.integration.proxy.processes import Program, Stage

ASK = post("/v1/chat/completions", chat())


async def children(program: Program) -> list[int]:
    """Pids of the workers."""
    listing = await asyncio.create_subprocess_exec(
        "ps", "-o", "pid=", "--ppid", str(program.process.pid), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await listing.communicate()
    return [int(pid) for pid in out.split()]


async def served(program: Program) -> int:
    text = (await program.get("/metrics")).body.decode()
    found = re.findall(r'^flexinfer_proxy_requests_total\{code="200",model="default/m"\} ([0-9.]+)', text, re.MULTILINE)
    return int(sum(map(float, found)))


async def test_workers_share_the_port_and_their_figures_add_up(stage: Stage) -> None:
    engines = [await stage.engine() for _ in range(2)]
    await stage.route(*engines, speeds=(50.0, 50.0))
    proxy = await (await stage.proxy("p", "--workers", "2")).ready()

    for _ in range(40):
        assert (await proxy.ask(ASK)).status == 200

    assert await served(proxy) == 40
    assert abs(engines[0].totals.requests - engines[1].totals.requests) <= 2


async def test_every_worker_wakes_and_drains_under_its_own_name(stage: Stage) -> None:
    engine = await stage.engine()
    await stage.route(wakeable=True)
    proxy = await (await stage.proxy("p", "--workers", "2")).ready()
    await stage.listen()
    wires = [await Wire.to(proxy.port) for _ in range(16)]
    for wire in wires:
        wire.send(ASK)

    def told() -> int:
        latest = {event.proxy: event.waiting for event in stage.events(ModelDemand)}
        return sum(latest.values())

    await until(lambda: told() == 16)
    assert {event.proxy for event in stage.events(ModelDemand)} <= {"p-0", "p-1"}
    await stage.route(engine, wakeable=True)

    assert [(await wire.answer()).status for wire in wires] == [200] * 16
    await until(lambda: told() == 0)
    for wire in wires:
        await wire.close()


async def gauge(program: Program, name: str) -> float:
    text = (await program.get("/metrics")).body.decode()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


async def test_workers_agree_on_load(stage: Stage) -> None:
    """Each tells the bus of its own, whoever is asked knows the sum, and nobody forgets when it is over."""
    engine = await stage.engine(speeds=Speeds(tokens_per_second=5))
    await stage.route(engine)
    proxy = await (await stage.proxy("p", "--workers", "2")).ready()
    await stage.listen()
    await until(lambda: {event.proxy for event in stage.events(ClusterHeadroom)} == {"p-0", "p-1"})  # both serve
    wires = [await Wire.to(proxy.port) for _ in range(24)]
    for wire in wires:
        wire.send(post("/v1/chat/completions", chat(stream=True, tokens=1_000_000)))
    await until(lambda: engine.totals.active == 24)

    def told() -> int:
        return sum({event.proxy: event.outstanding for event in stage.events(ModelLoad)}.values())

    await until(lambda: told() == 24)
    assert {event.proxy for event in stage.events(ModelLoad)} == {"p-0", "p-1"}
    for _ in range(6):  # whichever worker answers
        assert await gauge(proxy, "flexinfer_proxy_outstanding_requests") == 24
        assert await gauge(proxy, "flexinfer_proxy_client_connections") >= 24
    for wire in wires:
        await wire.close()
    await until(lambda: told() == 0)
    await until(lambda: engine.totals.active == 0)
    assert await gauge(proxy, "flexinfer_proxy_outstanding_requests") == 0


async def test_sigterm_drains_all_workers_and_a_dead_one_is_replaced(stage: Stage) -> None:
    engine = await stage.engine()
    await stage.route(engine)
    proxy = await (await stage.proxy("p", "--workers", "2")).ready()
    before = await children(proxy)
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    async with asyncio.timeout(60):
        while len(set(await children(proxy)) - {before[0]}) < 2:  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.05)
    await proxy.ready()
    engine.fault = Fault(stall_after=2, stall_for=0.5)
    wire = await Wire.to(proxy.port)
    wire.send(post("/v1/chat/completions", chat(stream=True, tokens=6)))
    await wire.reader.readuntil(b"\r\n\r\n")

    proxy.process.terminate()
    body, _, clean = await wire._chunked()

    assert clean
    assert body.endswith(b"[DONE]\n\n")
    assert await proxy.process.wait() == 0
    await wire.close()


async def test_workers_end_with_their_parent(stage: Stage) -> None:
    proxy = await stage.proxy("p", "--workers", "2")
    async with asyncio.timeout(60):
        while len(pids := await children(proxy)) < 2:  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.05)

    await proxy.kill()

    async with asyncio.timeout(60):
        while any(_alive(pid) for pid in pids):  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.05)


def _alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
