"""A declared fleet in simulated time: hours in seconds, faults at their times, the same seed the same bytes."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flexinfer.contracts.events import BenchSettings, NodeHardware, NodeStatus, NodeTelemetry
from flexinfer.core.fleet.fold import STATE_TYPES
from flexinfer.ports import BusFact, Snapshot
from flexinfer.testing.fleet import SimulatedFleet, VirtualFleet, load_fleet, parse_fleet, simulate
from flexinfer.testing.replay import load, replay, trace
from flexinfer.testing.simulated_time import START, Stalled

EXAMPLES = Path(__file__).resolve().parents[3] / "flexinfer" / "local" / "examples"
HOME_LAB = load_fleet(EXAMPLES / "home-lab.yaml")
RACK = load_fleet(EXAMPLES / "rack.yaml").model_copy(update={"telemetry_interval": 30.0})
WORKLOAD = "llama-0123456789ab"
QUICK = BenchSettings(warmup_iterations=1, iterations=2, min_duration_seconds=1.0, concurrency=(1,))


def pod(name: str, vram: int = 6000, vendor: str = "auto") -> dict[str, Any]:
    notes = {
        "flexinfer.ai/benchmark-key": WORKLOAD,
        "flexinfer.ai/model": "llama",
        "flexinfer.ai/gpu.vram-estimate-mb": str(vram),
        "flexinfer.ai/gpu.vendor": vendor,
    }
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": notes}
    return {"metadata": meta, "spec": {"containers": [{"name": "engine"}]}}


def one_node(**more: Any) -> VirtualFleet:
    gpu = {"vendor": "NVIDIA", "product": "L4", "arch": "sm_89", "memory": "24Gi", "count": 2}
    node = {"name": "n", "gpus": [gpu], "speed": {"tokens_per_second": 50, "first_token": 0.1}, **more}
    return parse_fleet({"seed": 3, "nodes": [node]}, "test")


class Heard:
    """Every event of one node, with the fleet's time."""

    def __init__(self, sim: SimulatedFleet, node: str) -> None:
        self.said: list[tuple[float, Any]] = []
        self._sim = sim
        self._node = node

    def __call__(self, fact: BusFact) -> None:
        events = fact.events if isinstance(fact, Snapshot) else (fact,)
        self.said += [(self._sim.elapsed, e.data) for e in events if getattr(e.data, "node", "") == self._node]

    def times(self, kind: type) -> list[float]:
        return [at for at, data in self.said if isinstance(data, kind)]


async def heard(sim: SimulatedFleet, node: str) -> Heard:
    found = Heard(sim, node)
    await sim.bus.follow((NodeHardware, NodeTelemetry, NodeStatus), found)
    return found


def test_an_hour_of_the_home_lab_says_what_an_hour_says() -> None:
    async def story(sim: SimulatedFleet) -> Heard:
        found = await heard(sim, "rtx3060")
        await sim.until(3600)
        return found

    said = simulate(HOME_LAB, story)

    assert 1790 <= len(said.times(NodeTelemetry)) < 3600  # each two seconds, and at once when a figure jumps
    assert len(said.times(NodeHardware)) >= 6  # again every ten minutes
    assert all(data.virtual for _, data in said.said if isinstance(data, NodeHardware))


def test_an_hour_of_the_rack_reaches_the_extender_which_places_by_it() -> None:
    async def story(sim: SimulatedFleet) -> None:
        extender = await sim.extender()
        await sim.until(60)
        first = extender.place(pod("early", vram=10_000, vendor="intel"))
        await sim.until(310)
        during = extender.place(pod("draining", vram=10_000, vendor="intel"))
        lost = [extender.view.nodes[f"t4-{n}"].hardware for n in range(1, 5)]
        await sim.until(3600)
        after = extender.place(pod("late", vram=10_000, vendor="intel"))

        assert len(extender.view.nodes) == 30
        assert set(first.scores) == {f"arc-{n}" for n in range(1, 7)}
        assert during.scores == {}
        assert any("drain" in why or "shut" in why for why in during.rejected.values())
        assert [[device.counted for device in each.devices] for each in lost if each] == [[False]] * 4
        assert set(after.scores) == set(first.scores)

    simulate(RACK, story)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    async def story(sim: SimulatedFleet) -> tuple[str, int]:
        engine = await sim.serve(pod("a"), "rtx3060")
        await sim.measure(engine, WORKLOAD, QUICK)
        return await sim.digest_after(300), sim.events

    first = simulate(HOME_LAB, story)

    assert simulate(HOME_LAB, story) == first
    assert simulate(HOME_LAB, story, seed=8)[0] != first[0]


_IN_ANOTHER_PROCESS = """
import sys
from pathlib import Path
from flexinfer.testing.fleet import load_fleet, simulate
print(simulate(load_fleet(Path(sys.argv[1])), lambda sim: sim.digest_after(200)))
"""


def test_another_process_with_another_hash_seed_says_the_same_bytes() -> None:
    path = str(EXAMPLES / "home-lab.yaml")
    found = {
        subprocess.run(
            [sys.executable, "-c", _IN_ANOTHER_PROCESS, path], env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, timeout=300, check=True,
        ).stdout
        for seed in ("1", "77")
    }  # fmt: skip

    assert len(found) == 1


def test_engines_give_exactly_the_declared_speed_and_the_fastest_is_chosen_by_it(tmp_path: Path) -> None:
    async def story(sim: SimulatedFleet) -> tuple[dict[str, float], Any, Path]:
        extender = await sim.extender(record=tmp_path)
        await sim.run(5)
        speeds = {}
        for node in ("rtx3060", "rx7900xtx"):
            engine = await sim.serve(pod(f"bench-{node}"), node)
            speeds[node] = await sim.measure(engine, WORKLOAD)
            await sim.remove(engine)
        await sim.run(30)
        placed = extender.place(pod("model"))
        await sim.serve(pod("model"), placed.best or "")
        await sim.until(400)
        extender.place(pod("second"))
        extender.close()
        return speeds, placed, extender.tape or tmp_path

    speeds, placed, tape = simulate(HOME_LAB, story)

    # 128 tokens after the declared time to the first: as declared in the file, to the last digit.
    assert speeds["rtx3060"] == pytest.approx(128 / (0.06 + 128 / 42), rel=1e-3)
    assert speeds["rx7900xtx"] == pytest.approx(128 / (0.04 + 128 / 88), rel=1e-3)
    assert placed.best == "rx7900xtx"
    assert placed.rejected == {"cpu-box": "flexinfer: no accelerator of the demanded vendor"}
    decided = [step.data for step in replay(load(tape))]
    assert [each.pod for each in decided] == ["model", "second"]
    assert decided[0] == placed.decided
    assert trace(load(tape)) == trace(load(tape))


def test_two_runs_of_one_story_write_the_same_tape(tmp_path: Path) -> None:
    async def story(sim: SimulatedFleet, folder: Path) -> bytes:
        extender = await sim.extender(record=folder)
        await sim.run(120)
        extender.place(pod("model"))
        extender.close()
        assert extender.tape is not None
        return extender.tape.read_bytes()

    first = simulate(HOME_LAB, lambda sim: story(sim, tmp_path / "one"))

    assert simulate(HOME_LAB, lambda sim: story(sim, tmp_path / "two")) == first


def test_a_silent_agent_says_nothing_while_the_fault_lasts() -> None:
    async def story(sim: SimulatedFleet) -> Heard:
        found = await heard(sim, "n")
        await sim.until(400)
        return found

    said = simulate(one_node(faults=[{"kind": "silent", "at": "100s", "for": "120s"}]), story)
    times = said.times(NodeTelemetry)

    assert not [at for at in times if 100 < at < 220]
    assert [at for at in times if at < 100]
    assert [at for at in times if at > 220]


def test_a_lost_device_and_a_drain_are_told_within_a_probe() -> None:
    async def story(sim: SimulatedFleet) -> Heard:
        found = await heard(sim, "n")
        await sim.until(300)
        return found

    faults = [{"kind": "lost-device", "at": "100s", "for": "50s"}, {"kind": "draining", "at": "200s", "for": "50s"}]
    said = simulate(one_node(faults=faults), story)
    hardware = [(at, sum(d.counted for d in data.devices)) for at, data in said.said if isinstance(data, NodeHardware)]
    states = [(round(at), data.state) for at, data in said.said if isinstance(data, NodeStatus)]

    assert [count for _, count in hardware] == [2, 1, 2]
    assert 100 <= hardware[1][0] <= 111
    assert 150 <= hardware[2][0] <= 171
    assert states == [(0, "online"), (200, "draining"), (250, "online")]


def test_a_slow_node_measures_slow_while_it_is() -> None:
    async def story(sim: SimulatedFleet) -> list[float]:
        engine = await sim.serve(pod("a"), "n")
        found = [await sim.measure(engine, WORKLOAD, QUICK)]
        await sim.until(300)
        found.append(await sim.measure(engine, WORKLOAD, QUICK))
        await sim.until(700)
        found.append(await sim.measure(engine, WORKLOAD, QUICK))
        return found

    before, during, after = simulate(one_node(faults=[{"kind": "slow", "at": 250, "for": "300s"}]), story)

    assert during == pytest.approx(5, rel=0.03)
    assert (before, after) == (pytest.approx(48.12, rel=1e-3), pytest.approx(48.12, rel=1e-3))


def test_pods_take_memory_and_requests_show_as_load() -> None:
    async def story(sim: SimulatedFleet) -> list[tuple[int | None, float]]:
        extender = await sim.extender()
        engine = await sim.serve(pod("a", vram=6000), "n")
        running = sim.tasks.once("requests", sim.measure(engine, WORKLOAD, QUICK))
        await sim.run(6)
        busy = extender.view.nodes["n"].telemetry
        await running
        await sim.remove(engine)
        await sim.run(6)
        idle = extender.view.nodes["n"].telemetry
        assert busy is not None
        assert idle is not None
        return [(each.devices[0].memory_used_mib, each.devices[0].util_percent or 0.0) for each in (busy, idle)]

    busy, idle = simulate(one_node(), story)

    assert (busy[0], idle[0]) == (6000, 0)
    assert busy[1] > idle[1]


def test_the_bus_can_be_lost_for_long_and_what_counts_is_there_again() -> None:
    async def story(sim: SimulatedFleet) -> tuple[int, int]:
        extender = await sim.extender()
        await sim.run(60)
        sim.broker.stop()
        await sim.run(900)
        before = extender.intake.snapshots
        sim.broker.start()
        await sim.run(10)
        return before, extender.intake.snapshots

    before, after = simulate(HOME_LAB, story)

    assert after > before


def test_waiting_for_what_cannot_come_is_an_error_not_a_hang() -> None:
    async def story(sim: SimulatedFleet) -> None:
        await sim.end()
        await sim.bus.follow(STATE_TYPES, lambda fact: None)
        await sim.tasks.once("never", _never())

    async def _never() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stalled):
        simulate(one_node(), story)


def test_the_clock_is_the_fleets() -> None:
    async def story(sim: SimulatedFleet) -> tuple[float, float]:
        await sim.run(90)
        return sim.clock.now(), sim.elapsed

    assert simulate(one_node(), story) == (pytest.approx(START + 90), pytest.approx(90))
