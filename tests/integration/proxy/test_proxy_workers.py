"""Several workers behind one port."""

import asyncio
import os
import re
import signal
from pathlib import Path

from flexinfer.contracts.events import ModelDemand
from flexinfer.testing.fake_engine import Fault
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


async def test_sigterm_drains_all_workers_and_a_dead_one_is_replaced(stage: Stage) -> None:
    engine = await stage.engine()
    await stage.route(engine)
    proxy = await (await stage.proxy("p", "--workers", "2")).ready()
    before = await children(proxy)
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    async with asyncio.timeout(10):
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
    async with asyncio.timeout(20):
        while len(pids := await children(proxy)) < 2:  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.05)

    await proxy.kill()

    async with asyncio.timeout(10):
        while any(_alive(pid) for pid in pids):  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.05)


def _alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
