"""Rejected pods are touched while, and only while, a node would take them."""

from itertools import pairwise
from typing import Any

import pytest

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import Device, NodeHardware, PlacementDecided
from flexinfer.core.fleet.fold import fold
from flexinfer.core.fleet.view import FleetView
from flexinfer.runtime.nudging import FIRST_SECONDS, STEPS, Retries

POD = {
    "metadata": {
        "name": "p", "namespace": "d", "uid": "u1",
        "annotations": {"flexinfer.ai/gpu.vendor": "NVIDIA", "flexinfer.ai/gpu.vram-estimate-mb": "20000"},
    },
    "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
}  # fmt: skip


def decided(outcome: str = "rejected", uid: str = "u1") -> PlacementDecided:
    return PlacementDecided(namespace="d", pod="p", pod_uid=uid, outcome=outcome, demand={})  # type: ignore[arg-type]


@pytest.fixture
def view() -> FleetView:
    return FleetView()


@pytest.fixture
def add(view: FleetView) -> Any:
    mint = EventMint.start("agent", "n", "b", lambda: 1.0)

    def put(memory: int, now: float = 0.0, name: str = "n1") -> None:
        device = Device(index=0, uuid=f"GPU-{name}", vendor="NVIDIA", memory_mib=memory)
        fold(view, mint.mint(NodeHardware(node=name, devices=(device,))), now)

    return put


def test_a_pod_is_touched_once_a_node_would_take_it_and_ever_more_rarely(view: FleetView, add: Any) -> None:
    retries = Retries(view)
    retries.pod(POD)
    retries.decided(decided())
    add(8000)
    assert [retries.due(t) for t in (0.0, 1.0)] == [[], []]

    add(24000)
    touches = [t / 10 for t in range(20, 2000) if retries.due(t / 10)]

    waits = [round(b - a, 1) for a, b in pairwise(touches)]
    assert touches[0] == pytest.approx(2.0 + FIRST_SECONDS, abs=0.11)
    assert waits[: len(STEPS)] == list(STEPS)
    assert set(waits[len(STEPS) :]) == {STEPS[-1]}


def test_nothing_is_touched_while_no_node_passes_any_more(view: FleetView, add: Any) -> None:
    retries = Retries(view)
    retries.pod(POD)
    retries.decided(decided())
    add(24000)
    retries.due(0.0)
    add(8000)

    assert [retries.due(t) for t in (0.3, 1.0, 50.0)] == [[], [], []]


@pytest.mark.parametrize(
    "ends",
    [
        lambda r: r.pod({**POD, "spec": {**POD["spec"], "nodeName": "n1"}}),
        lambda r: r.pod(POD, gone=True),
        lambda r: r.decided(decided("ranked")),
        lambda r: r.listed([]),
        lambda r: r.pod({**POD, "metadata": {**POD["metadata"], "deletionTimestamp": "now"}}),
    ],
    ids=["bound", "deleted", "accepted", "not listed", "going"],
)
def test_it_ends(view: FleetView, add: Any, ends: Any) -> None:
    retries = Retries(view)
    retries.pod(POD)
    retries.decided(decided())
    add(24000)
    retries.due(0.0)
    ends(retries)

    assert retries.due(10.0) == []
    assert retries.rejected == {}


def test_a_decision_may_arrive_before_the_pod(view: FleetView, add: Any) -> None:
    retries = Retries(view)
    retries.decided(decided())
    retries.pod(POD)
    add(24000)

    assert [retries.due(0.0), retries.due(0.2)] == [[], [("d", "p")]]


def test_a_decision_about_an_earlier_pod_of_that_name_is_not_taken_for_this_one(view: FleetView, add: Any) -> None:
    retries = Retries(view)
    retries.pod(POD)
    retries.decided(decided(uid="u0"))
    add(24000)

    assert [retries.due(0.0), retries.due(1.0)] == [[], []]


def test_only_changed_nodes_are_asked_again(view: FleetView, add: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("flexinfer.runtime.nudging.verdict", lambda _v, name, *_a: asked.append(name) or "no")
    retries = Retries(view)
    retries.pod(POD)
    retries.decided(decided())
    for number in range(50):
        add(1000, name=f"n{number}")
    retries.due(0.0)
    assert len(asked) == 50

    add(2000, name="n7")
    retries.due(1.0)
    assert asked[50:] == ["n7"]


def test_among_pods_that_want_the_same_the_higher_priority_goes_first(view: FleetView, add: Any) -> None:
    retries = Retries(view)
    for name, priority in (("low", "10"), ("high", "500")):
        meta = {**POD["metadata"], "name": name, "uid": name}
        meta["annotations"] = {**meta["annotations"], "flexinfer.ai/priority": priority}
        retries.pod({**POD, "metadata": meta})
        retries.decided(PlacementDecided(namespace="d", pod=name, pod_uid=name, outcome="rejected", demand={}))
    add(24000)
    touches = [(round(t / 10, 1), name) for t in range(40) for _, name in retries.due(t / 10)]

    assert [name for _, name in touches][:3] == ["high", "high", "low"]
