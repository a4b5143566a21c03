"""What goes wrong on the way: crashes at every write, conflicts, refusals, lost watches, a bus that is away."""

import asyncio
from typing import Any

import pytest

from flexinfer.contracts.events import BenchCompleted
from flexinfer.contracts.kubernetes import CONFIGMAPS, DEPLOYMENTS, JOBS, MODELDEPLOYMENTS, NAMESPACES, PODS, SERVICES
from flexinfer.telemetry import metrics
from flexinfer.testing.bus import until


async def _end(world: Any) -> None:
    """The same end whatever happened before: serving, and one of everything."""
    await world.phase("Running")
    await world.count(PODS, 1, "app.kubernetes.io/component=engine")
    await world.count(SERVICES, 1)
    assert len((await world.api.list(DEPLOYMENTS, "default")).items) == 1
    assert len((await world.api.list(JOBS, "default")).items) == 1
    assert len(await world.recorded()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 16))
async def test_a_manager_killed_after_any_write_is_finished_by_the_next(world: Any, number: int) -> None:
    await world.node()
    killed = asyncio.Event()

    def die(count: int) -> None:
        if count == number:
            killed.set()
            world.crash()

    world.counting.after = die
    world.manage()
    await world.apply()
    async with asyncio.timeout(60):
        await killed.wait()
    await world.kill()
    world.manage()
    await _end(world)


@pytest.mark.parametrize("status", [409, 429, 500, 503])
@pytest.mark.parametrize("path", ["modeldeployments", "jobs", "configmaps", "deployments", "services"])
async def test_a_write_that_is_refused_once_is_made_again(world: Any, status: int, path: str) -> None:
    await world.node()
    fault = world.server.faults.fail(status, rf"^(POST|PATCH|PUT) .*{path}", times=2)
    world.manage()
    await world.apply(direct=True)
    await _end(world)
    await until(lambda: fault.struck == 2)


async def test_watches_that_break_or_expire_are_survived(world: Any) -> None:
    await world.node()
    world.manage()
    await world.apply()
    for _ in range(8):  # more would only test the informers' pauses, which double with each break
        world.server.drop_watches()
        world.server.expire()
        await asyncio.sleep(0.3)
    await _end(world)


async def test_results_that_arrive_while_the_api_is_away_are_not_lost(world: Any) -> None:
    await world.node()
    world.kubelet.tell_bus = True
    fault = world.server.faults.fail(503, r"^POST .*flexinfer-system/configmaps$", times=None)
    fault.times = 0
    world.manage()
    await world.apply()
    await world.phase("Benchmarking")
    fault.times = fault.struck + 3
    await _end(world)


async def test_the_bus_may_go_and_come_back(world: Any) -> None:
    await world.node()
    world.manage()
    await world.apply()
    await world.phase("Benchmarking")
    world.broker.stop()
    await world.phase("Running")
    world.broker.wipe()
    world.broker.start()
    await until(
        lambda: any(getattr(d, "model", "") == "m" and hasattr(d, "endpoints") for d in world.reader.state()), 20
    )
    await until(lambda: any(isinstance(data, BenchCompleted) for data in world.reader.state()))


async def test_deletion_needs_no_bus(world: Any) -> None:
    await world.node()
    world.manage()
    await world.apply()
    await world.phase("Running")
    world.broker.stop()
    await world.api.delete(MODELDEPLOYMENTS, "m", "default")
    await world.gone()


async def test_a_namespace_can_be_deleted_with_models_in_it(world: Any) -> None:
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    await world.api.create(NAMESPACES, team)
    await world.node()
    world.manage()
    await world.apply(namespace="team")
    await until(lambda: "Running" in str(world.manager.view.phases.get(("team", "m"))))
    await world.api.delete(NAMESPACES, "team")
    async with asyncio.timeout(60):
        while "team" in {ns["metadata"]["name"] for ns in (await world.api.list(NAMESPACES)).items}:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_malformed_events_and_objects_change_nothing(world: Any) -> None:
    before = metrics.value_of("flexinfer_controller_reconciles_total", {"result": "error"})
    await world.node()
    world.manage()
    await world.apply()
    for subject in ("flexinfer.v1.default.bench.x.completed", "flexinfer.v1.default.model.default.m.demand.p"):
        for raw in (b"", b"{}", b"\xff", b'{"specversion":"1.0"}'):
            world.broker.inject(subject, raw)
    bad = {
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "junk", "namespace": "flexinfer-system", "labels": {"app": "flexinfer-benchmarks"}},
        "data": {"k": "no json"},
    }  # fmt: skip
    await world.api.create(CONFIGMAPS, bad, "flexinfer-system")
    claim = {**bad, "metadata": {**bad["metadata"], "name": "junk2", "labels": {"app": "flexinfer-benchmark-claims"}}}
    await world.api.create(
        CONFIGMAPS, {**claim, "data": {"holder": "///", "attempts": "x", "retryAt": "y"}}, "flexinfer-system"
    )
    await world.phase("Running")
    assert metrics.value_of("flexinfer_controller_reconciles_total", {"result": "error"}) == before
