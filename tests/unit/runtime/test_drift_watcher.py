"""Drift reaches the metric in every manager, and people only through the leader."""

import asyncio

import pytest

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import (
    BenchCompleted,
    BenchDrifted,
    Cpu,
    EngineTelemetry,
    NodeHardware,
    NodeTelemetry,
)
from flexinfer.contracts.kubernetes import KubeDelta
from flexinfer.core.effects import Effect, Note, Publish
from flexinfer.core.hardware.device_class import cpu_class
from flexinfer.ports import Relisted, Snapshot
from flexinfer.runtime.drifting import DriftWatcher
from flexinfer.telemetry import metrics

CPU = Cpu(model="AMD EPYC", threads=2)
MINT = EventMint.start("agent", "n", "boot", lambda: 0.0)
RESULT = BenchCompleted(
    key="m-aaaa", namespace="default", model="m", workload="w", source="s", backend="b", device_class=cpu_class(CPU),
    tokens_per_second=100.0, iterations=5, duration_seconds=30.0,
)  # fmt: skip
POD = {
    "metadata": {
        "namespace": "default",
        "name": "m-0",
        "annotations": {"flexinfer.ai/benchmark-key": "w"},
        "labels": {"app.kubernetes.io/instance": "m"},
    }
}
SERIES = {"namespace": "default", "model": "m", "node": "drifting-node"}


class Performed:
    """Keeps the effects; ``two`` is set once there are two."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.two = asyncio.Event()

    async def __call__(self, effect: Effect) -> None:
        self.effects.append(effect)
        if len(self.effects) % 2 == 0:
            self.two.set()


def telemetry(at: float, speed: float | None):
    engines = ()
    if speed is not None:
        engines = (EngineTelemetry(namespace="default", pod="m-0", requests_running=1, tokens_per_second=speed),)
    return MINT.mint(NodeTelemetry(node="drifting-node", interval_seconds=2.0, engines=engines), at=at)


def feed(watcher: DriftWatcher, speed: float, begin: int, end: int) -> None:
    for at in range(begin, end, 2):
        watcher.bus(telemetry(float(at), speed))


@pytest.fixture
def performed() -> Performed:
    return Performed()


@pytest.fixture
def watcher(performed: Performed) -> DriftWatcher:
    made = DriftWatcher(performed)
    made.bus(Snapshot((), (MINT.mint(NodeHardware(node="drifting-node", cpu=CPU)), MINT.mint(RESULT)), 1))
    made.kube(Relisted("pods", (POD,)))
    return made


async def test_the_leader_tells_the_bus_and_people(watcher: DriftWatcher, performed: Performed):
    leading = asyncio.get_running_loop().create_task(watcher.run())
    await asyncio.sleep(0)
    feed(watcher, 70.0, 1000, 1400)
    async with asyncio.timeout(5):
        await performed.two.wait()
    performed.two.clear()
    published, note = performed.effects
    assert isinstance(published, Publish)
    assert isinstance(published.data, BenchDrifted)
    assert published.data.drifted
    assert isinstance(note, Note)
    assert (note.type, note.reason) == ("Warning", "BenchmarkDrift")
    assert "70% of the measured 100.0" in note.message
    assert note.regarding["metadata"] == {"namespace": "default", "name": "m-0"}
    feed(watcher, 100.0, 1400, 1700)
    async with asyncio.timeout(5):
        await performed.two.wait()
    assert [effect.reason for effect in performed.effects if isinstance(effect, Note)][-1] == "BenchmarkDriftOver"
    leading.cancel()
    await asyncio.wait({leading})


async def test_a_follower_only_counts(watcher: DriftWatcher, performed: Performed):
    feed(watcher, 70.0, 1000, 1400)
    assert performed.effects == []
    assert metrics.value_of("flexinfer_benchmark_drift_ratio", SERIES) == pytest.approx(0.7)


async def test_the_series_of_an_engine_that_is_gone_disappears(watcher: DriftWatcher):
    feed(watcher, 70.0, 1000, 1010)
    watcher.bus(telemetry(1010.0, None))
    assert metrics.REGISTRY.get_sample_value("flexinfer_benchmark_drift_ratio", SERIES) is None


async def test_pods_come_and_go(watcher: DriftWatcher):
    assert watcher.watch.pods["default", "m-0"].model == "m"
    watcher.kube(KubeDelta(plural="pods", action="DELETED", object=POD))
    assert watcher.watch.pods == {}
    watcher.kube(KubeDelta(plural="pods", action="ADDED", object=POD))
    watcher.kube(KubeDelta(plural="pods", action="ADDED", object={"metadata": {"name": "other"}}))
    assert list(watcher.watch.pods) == [("default", "m-0")]
