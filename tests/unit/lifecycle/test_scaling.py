"""Replicas follow use: to zero when nobody asks, back at once, and not up and down all the time."""

from typing import Any

import pytest

from flexinfer.contracts.events import EngineTelemetry, ModelDemand, NodeTelemetry
from flexinfer.contracts.kubernetes import DEPLOYMENTS
from flexinfer.core.effects import Apply, Patch, Publish
from flexinfer.core.lifecycle.scale import DEMAND_TTL, DRAIN_GRACE, MIN_AWAKE

OFF = {"enabled": False}


def running(sim: Any, **spec: Any) -> Any:
    sim.apply(benchmark=OFF, idleTimeoutSeconds=60, **spec)
    sim.run()
    assert sim.status()["phase"] == "Running"
    return sim


def replicas(sim: Any) -> int:
    return int(sim.objects[("deployments", "default", "m")]["spec"]["replicas"])


def demand(sim: Any, waiting: int = 1) -> None:
    sim.tell(ModelDemand(namespace="default", model="m", proxy="p1", waiting=waiting))


def test_an_idle_model_goes_to_zero_and_says_that_it_wakes(one_node: Any) -> None:
    sim = running(one_node)

    sim.pass_time(59)
    assert replicas(sim) == 1

    sim.pass_time(2 + DRAIN_GRACE)
    assert replicas(sim) == 0
    assert (sim.status()["phase"], sim.status()["readyReplicas"]) == ("Idle", 0)
    assert sim.endpoint().wakeable
    assert sim.endpoint().endpoints == ()


def test_endpoints_drain_before_the_replicas_go(one_node: Any) -> None:
    sim = running(one_node)
    sim.log.clear()
    sim.pass_time(60 + DRAIN_GRACE + 1)

    kinds = [
        "drain" if isinstance(e, Publish) and any(x.state == "draining" for x in getattr(e.data, "endpoints", ())) else
        "scale" if isinstance(e, Patch) and e.resource == DEPLOYMENTS else "" for e in sim.log
    ]  # fmt: skip
    assert [kind for kind in kinds if kind][:2] == ["drain", "scale"]


def test_a_request_while_draining_calls_it_off(one_node: Any) -> None:
    sim = running(one_node)
    sim.pass_time(61)
    assert all(entry.state == "draining" for entry in sim.endpoint().endpoints)

    sim.load(outstanding=1)
    sim.settle()

    assert all(entry.state == "ready" for entry in sim.endpoint().endpoints)
    sim.pass_time(DRAIN_GRACE + 1)
    assert replicas(sim) == 1


def test_demand_wakes_it_with_the_first_write(one_node: Any) -> None:
    sim = running(one_node)
    sim.pass_time(60 + DRAIN_GRACE + 1)
    assert replicas(sim) == 0
    sim.log.clear()

    demand(sim)
    sim.settle()

    assert replicas(sim) == 1
    first = next(e for e in sim.log if isinstance(e, Patch | Apply))
    assert isinstance(first, Patch)
    assert first.resource == DEPLOYMENTS
    assert (sim.status()["phase"], sim.condition("Progressing")["reason"]) == ("Deploying", "Waking")
    sim.run()
    assert sim.status()["phase"] == "Running"


def test_it_stays_awake_for_a_while_however_short_the_idle_timeout(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark=OFF, idleTimeoutSeconds=1)
    sim.run()
    sim.pass_time(1 + DRAIN_GRACE + 1)
    assert replicas(sim) == 0
    demand(sim)
    sim.settle()
    demand(sim, waiting=0)
    sim.run()

    sim.pass_time(MIN_AWAKE - 1)
    assert replicas(sim) == 1
    sim.pass_time(1 + DRAIN_GRACE + 1)
    assert replicas(sim) == 0


def test_stale_demand_of_a_proxy_that_died_does_not_wake_for_ever(one_node: Any) -> None:
    sim = running(one_node)
    demand(sim)
    sim.pass_time(DEMAND_TTL + 61 + DRAIN_GRACE + 1)

    assert replicas(sim) == 0


def test_outstanding_requests_keep_it(one_node: Any) -> None:
    sim = running(one_node)
    for _ in range(20):
        sim.load(outstanding=1)
        sim.pass_time(5)

    assert replicas(sim) == 1


def test_engine_counters_keep_a_model_that_is_used_past_the_proxies(one_node: Any) -> None:
    sim = running(one_node)
    name = sim.pods()[0][2]
    for _ in range(20):
        engine = EngineTelemetry(namespace="default", pod=name, requests_running=1)
        sim.tell(NodeTelemetry(node="n1", interval_seconds=2, engines=(engine,)))
        sim.pass_time(5)

    assert replicas(sim) == 1


def test_silence_of_the_bus_is_no_reason_to_stop_a_model(one_node: Any) -> None:
    sim = running(one_node)
    sim.bus_up = False
    sim.pass_time(600)

    assert replicas(sim) == 1

    sim.bus_up = True
    sim.snapshot()
    sim.pass_time(59)
    assert replicas(sim) == 1


def test_a_restart_counts_idle_time_anew(one_node: Any) -> None:
    sim = running(one_node)
    sim.pass_time(59)
    sim.restart()
    sim.pass_time(30)

    assert replicas(sim) == 1


def test_a_model_that_never_became_ready_is_not_put_to_sleep(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark=OFF, idleTimeoutSeconds=60)
    sim.settle()
    sim.pass_time(600)

    assert replicas(sim) == 1
    assert sim.status()["phase"] == "Deploying"


def test_a_floor_stays_and_use_brings_back_the_rest(one_node: Any) -> None:
    sim = running(one_node, replicas=3, minReplicas=1)
    assert replicas(sim) == 3

    sim.pass_time(61)
    assert replicas(sim) == 1
    assert sim.status()["phase"] == "Running"

    sim.load(outstanding=2)
    sim.settle()
    assert replicas(sim) == 3


def test_idle_timeout_zero_means_never(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark=OFF, idleTimeoutSeconds=0)
    sim.run()
    sim.pass_time(100_000)

    assert replicas(sim) == 1


def test_replicas_zero_switches_off_and_nothing_wakes_it(one_node: Any) -> None:
    sim = running(one_node)
    sim.apply(benchmark=OFF, idleTimeoutSeconds=60, replicas=0)
    sim.settle()
    assert (sim.status()["phase"], sim.condition("Available")["reason"]) == ("Idle", "SwitchedOff")
    assert not sim.endpoint().wakeable

    demand(sim)
    sim.settle()
    assert replicas(sim) == 0

    sim.apply(benchmark=OFF, idleTimeoutSeconds=60, replicas=1)
    sim.run()
    assert sim.status()["phase"] == "Running"


def test_more_replicas_are_a_patch_not_a_new_version(one_node: Any) -> None:
    sim = running(one_node)
    sim.log.clear()
    sim.apply(benchmark=OFF, idleTimeoutSeconds=60, replicas=2)
    sim.settle()

    writes = [e for e in sim.writes() if e.resource == DEPLOYMENTS]
    assert [type(e) for e in writes] == [Patch]
    assert replicas(sim) == 2


@pytest.mark.parametrize(
    ("serverless", "count"),
    [({"enabled": False}, 1), ({"enabled": False, "maxReplicas": 2}, 2), ({"maxReplicas": 4}, 4)],
)
def test_a_model_runs_max_replicas_while_in_use(one_node: Any, serverless: dict[str, Any], count: int) -> None:
    sim = one_node
    sim.apply(kind="Model", serverless=serverless, benchmark=OFF)
    sim.run()

    assert replicas(sim) == count
    sim.pass_time(301 + DRAIN_GRACE)
    assert replicas(sim) == (count if serverless.get("enabled") is False else 0)
