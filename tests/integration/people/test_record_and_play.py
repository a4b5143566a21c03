"""Record what a bus says, play the tape into a private bus, and see the same there."""

import asyncio
import json
import shutil
from operator import attrgetter
from pathlib import Path

import aiohttp

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.contracts.events import NodeHardware
from flexinfer.ports import Snapshot
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.tapes import tapes_of
from tests.contract.dashboard.mixed_day import mixed_day
from tests.integration.people.conftest import DEADLINE, Typed

id_of = attrgetter("id")
TAPES = Path(__file__).parents[2] / "tapes" / "recorded"


async def test_what_is_recorded_is_what_was_said(bus_url: str, tmp_path: Path) -> None:
    clock = SystemClock()
    bus = await NatsBus.start(bus_url, name="test", clock=clock)
    up = asyncio.Event()
    bus.on_connect(up.set)
    async with asyncio.timeout(DEADLINE):
        await up.wait()
        await bus.ensure()
    day = [event for _, event in mixed_day()][:200]
    await bus.publish(day[0], durable=True)  # state from before the recorder came

    kept = [event for event in day if ".bench." not in event.type]
    out = tmp_path / "tapes"
    recorder = await Typed.start(
        "flexinfer", "events", "record", "--nats-url", bus_url, "--out", str(out), "--filter=-bench",
        "--count", str(len(kept) - 1),
    )  # fmt: skip
    await recorder.says("recording into", error=True)
    for event in day[1:]:
        await bus.publish(event, durable=True)
    code, _, err = await recorder.end()

    assert code == 0
    assert f"{len(kept) - 1} events in 1 tape(s)" in err
    [(path, tape)] = tapes_of(out)
    assert path.name.endswith(".jsonl.gz")
    assert tape.bad == ()
    (_, first), *rest = tape.facts
    assert isinstance(first, Snapshot)
    assert [event.id for event in first.events] == [day[0].id]
    assert sorted((fact for _, fact in rest), key=id_of) == sorted(kept[1:], key=id_of)  # order holds per subject only
    await bus.close()


async def test_a_tape_is_played_into_a_private_bus_and_shown_live() -> None:
    player = await Typed.start(
        "flexinfer", "replay", str(TAPES / "home-lab-manager.jsonl.gz"), "--serve", "--speed", "0"
    )
    url = (await player.says("playing at")).split()[2].rstrip(";")
    await player.says("played 86 events")

    bus = await NatsBus.start(url, name="test", clock=SystemClock())
    up = asyncio.Event()
    bus.on_connect(up.set)
    async with asyncio.timeout(DEADLINE):
        await up.wait()
    nodes = {event.data.node for event in await bus.state((NodeHardware,))}
    await bus.close()
    assert nodes == {"vm", "rtx3060", "rx7900xtx", "cpu-box"}

    shown = await Typed.start("flexinfer", "events", "show", "--nats-url", url, "--since", "10000d", "--output", "json")
    _, out, _ = await shown.end()
    assert "ai.flexinfer.placement.decided.v1" in {json.loads(line)["type"] for line in out.splitlines()}

    assert (await player.end(stop=True))[0] == 0


async def test_a_dashboard_serves_a_tape(tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    lab.mkdir()
    for tape in TAPES.glob("home-lab-*.jsonl.gz"):
        shutil.copy(tape, lab)
    dashboard = await Typed.start("flexinfer-dashboard", "--tape", str(lab), "--host", "127.0.0.1", "--port", "0")
    url = (await dashboard.says(" at http://", error=True)).split(" at ")[1]
    async with aiohttp.ClientSession() as web:
        async with web.get(f"{url}/readyz") as answer:
            assert await answer.json() == {"ready": True, "checks": {}}
        async with web.get(f"{url}/api/state") as answer:
            assert len((await answer.json())["hardware"]) == 4
    assert (await dashboard.end(stop=True))[0] == 0

    (tmp_path / "x.jsonl").write_text("{}\n")
    other = await Typed.start("flexinfer-dashboard", "--tape", str(tmp_path / "x.jsonl"), "--port", "0")
    code, _, err = await other.end()
    assert code == 1
    assert "this is no FlexInfer tape" in err
