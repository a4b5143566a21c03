"""One event costs the same however many models there are: counted in calls, since time is no measure here."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from flexinfer.contracts.events import (
    BenchCompleted,
    DeviceTelemetry,
    EngineTelemetry,
    EventData,
    ModelDemand,
    ModelLoad,
    ModelPhase,
    NodeTelemetry,
)
from flexinfer.core.lifecycle.fold_events import fold_event
from flexinfer.core.lifecycle.plan import plan


def _telemetry(_sim: Any) -> EventData:
    device = DeviceTelemetry(index=0, uuid="x", util_percent=50.0)
    engine = EngineTelemetry(namespace="default", pod="nobody", requests_running=1)
    return NodeTelemetry(node="n1", interval_seconds=2.0, devices=(device,), engines=(engine,))


def _result(_sim: Any) -> EventData:
    return BenchCompleted(
        key="other-0123456789ab", namespace="team", model="other", workload="other", source="s", backend="vllm",
        device_class="c", tokens_per_second=10.0, iterations=1, duration_seconds=1.0,
    )  # fmt: skip


EVENTS: dict[str, Callable[[Any], EventData]] = {
    "telemetry": _telemetry,
    "hardware heartbeat": lambda sim: sim.view.hardware("n1"),
    "load": lambda _sim: ModelLoad(namespace="default", model="m0", proxy="p", outstanding=1),
    "demand": lambda _sim: ModelDemand(namespace="default", model="m0", proxy="p", waiting=1),
    "result": _result,
    "phase of another manager": lambda sim: ModelPhase(
        namespace="default", model="m0", kind="ModelDeployment", phase="Running", reason="x", message=""
    ),
}


def _running(new_sim: Any, models: int) -> Any:
    sim = new_sim()
    sim.node()
    for number in range(models):
        sim.apply(name=f"m{number}", benchmark={"enabled": False})
    sim.run()
    return sim


def _calls(sim: Any, data: EventData) -> int:
    """Calls it takes to fold one event and to decide about whomever it concerns."""
    event = sim.other.mint(data)
    count = 0

    def tell(_frame: FrameType, what: str, _arg: Any) -> None:
        nonlocal count
        count += what in {"call", "c_call"}

    sys.setprofile(tell)
    try:
        for key in fold_event(sim.view, event, sim.now):
            plan(sim.view, key, sim.now)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_concerns_whom_it_concerns(new_sim: Any, kind: str) -> None:
    few, many = (_running(new_sim, models) for models in (3, 60))

    assert _calls(many, EVENTS[kind](many)) <= _calls(few, EVENTS[kind](few)) + 20
