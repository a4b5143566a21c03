"""One model from create to delete on the embedded API: real informers, real writes, the in-memory bus."""

import asyncio
from typing import Any

import pytest

from flexinfer.contracts.events import ModelDemand, ModelLoad, ModelPhase
from flexinfer.contracts.kubernetes import (
    CONFIGMAPS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    MODELDEPLOYMENTS,
    MODELS,
    PODS,
    SERVICES,
)
from flexinfer.testing.bus import until

OFF = {"enabled": False}


async def test_create_measure_serve_scale_sleep_wake_update_delete(world: Any) -> None:
    await world.node()
    world.manage()
    await world.apply()
    found = await world.phase("Running")
    assert found["status"]["tokensPerSecond"] == "50.0"
    assert found["metadata"]["finalizers"] == ["flexinfer.ai/finalizer"]

    spec = {**found["spec"], "replicas": 2}
    await world.apply(spec=spec)
    await world.scaled(2)

    spec = {**spec, "replicas": 1, "idleTimeoutSeconds": 1}
    await world.apply(spec=spec)
    await world.phase("Idle")

    mint = world.agent
    await world.bus.publish(mint.mint(ModelDemand(namespace="default", model="m", proxy="p", waiting=1)))
    await world.phase("Running")

    await world.apply(spec={**spec, "idleTimeoutSeconds": 300, "image": "other:2"})
    await until(lambda: "other:2" in str(world.manager.view.deployments), 20)
    await world.phase("Running")

    await world.api.delete(MODELDEPLOYMENTS, "m", "default")
    await world.gone()
    for resource in (DEPLOYMENTS, SERVICES, JOBS, PODS):
        assert (await world.api.list(resource, "default", labels="app.kubernetes.io/part-of=flexinfer")).items == ()
    records = (await world.api.list(CONFIGMAPS, "flexinfer-system", labels="app")).items
    assert [record["metadata"]["name"] for record in records] == ["flexinfer-benchmark-results"]

    phases = [e.data.phase for e in world.reader.events if isinstance(e.data, ModelPhase)]
    assert [p for i, p in enumerate(phases) if i == 0 or phases[i - 1] != p] == [
        "Pending", "Benchmarking", "Deploying", "Running", "Idle", "Deploying", "Running", "Terminating",
    ]  # fmt: skip


async def test_every_transition_is_an_event_for_people(world: Any) -> None:
    await world.node()
    world.manage()
    await world.apply()
    await world.phase("Running")

    async def reasons() -> list[str]:
        return [event["reason"] for event in (await world.api.list(EVENTS, "default")).items]

    wanted = {"Accepted", "Measuring", "BenchmarkStarted", "BenchmarkCompleted", "Creating", "NodeSelected", "Serving"}
    async with asyncio.timeout(60):
        while not wanted <= set(await reasons()):  # noqa: ASYNC110 - only a list tells
            await asyncio.sleep(0.05)


async def test_demand_reaches_the_deployment_without_waiting_for_any_timer(world: Any) -> None:
    await world.node()
    world.manage()
    spec = {"backend": "llamacpp", "model": "file:///m/x.gguf", "gpu": {"vendor": "cpu"}, "benchmark": OFF}
    await world.apply(spec={**spec, "idleTimeoutSeconds": 1})
    await world.phase("Running")
    await world.phase("Idle")

    world.manager.pump.fire = lambda: None  # how long it takes is measured by benchmarks/manager_models.py
    await world.bus.publish(world.agent.mint(ModelDemand(namespace="default", model="m", proxy="p", waiting=1)))
    await world.scaled(1)


async def test_load_keeps_a_model_awake(world: Any) -> None:
    await world.node()
    world.manage()
    spec = {"backend": "llamacpp", "model": "file:///m/x.gguf", "gpu": {"vendor": "cpu"}, "benchmark": OFF}
    await world.apply(spec={**spec, "idleTimeoutSeconds": 2})
    await world.phase("Running")
    for _ in range(8):
        await world.bus.publish(world.agent.mint(ModelLoad(namespace="default", model="m", proxy="p", outstanding=1)))
        await asyncio.sleep(0.5)

    assert (await world.get())["status"]["phase"] == "Running"


async def test_the_second_kind_goes_the_same_way(world: Any) -> None:
    await world.node()
    world.manage()
    spec = {"backend": "llamacpp", "source": "file:///m/x.gguf", "gpu": {"vendor": "cpu"}, "benchmark": OFF}
    await world.apply("mod", spec, MODELS)
    await world.phase("Running", "mod", MODELS)
    await world.api.delete(MODELS, "mod", "default")
    await world.gone("mod", MODELS)


async def test_writes_are_few_and_none_when_nothing_happens(world: Any) -> None:
    await world.node()
    world.manage()
    spec = {"backend": "llamacpp", "model": "file:///m/x.gguf", "gpu": {"vendor": "cpu"}, "benchmark": OFF}
    await world.apply(spec=spec)
    await world.phase("Running")
    await asyncio.sleep(1.0)
    assert len(world.counting.writes) <= 14, world.counting.writes

    world.counting.writes.clear()
    for _ in range(10):
        await world.node()
        await asyncio.sleep(0.1)
    await world.kill()
    world.manage()
    await until(lambda: world.manager.pump.idle and len(world.manager.view.models) == 1)
    await asyncio.sleep(1.0)
    assert world.counting.writes == []


@pytest.mark.parametrize("when", ["before the manager", "after the manager"])
async def test_the_bus_may_come_late(world: Any, when: str) -> None:
    world.broker.stop()
    if when == "after the manager":
        world.manage()
    await world.apply()
    if when == "before the manager":
        world.manage()
    await world.phase("Pending")
    world.broker.start()
    await world.node()
    await world.phase("Running")
