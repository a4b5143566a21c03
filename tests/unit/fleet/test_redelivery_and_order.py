"""Facts may come twice, late and in any order; the view ends the same."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flexinfer.contracts.envelope import Event, EventMint
from flexinfer.contracts.events import (
    BenchCompleted,
    Device,
    DeviceTelemetry,
    EventData,
    NodeHardware,
    NodeStatus,
    NodeTelemetry,
)
from flexinfer.core.fleet.fold import STATE_TYPES, fold, replace_objects, replace_state
from flexinfer.core.fleet.view import FleetView

NOW = 1_800_000_000.0

names = st.sampled_from(["a", "b.example", "c"])


def hardware(name: str, memory: int) -> EventData:
    return NodeHardware(node=name, devices=(Device(index=0, uuid=f"u-{name}", vendor="NVIDIA", memory_mib=memory),))


def telemetry(name: str, util: float) -> EventData:
    live = DeviceTelemetry(index=0, uuid=f"u-{name}", util_percent=util, memory_free_mib=100)
    return NodeTelemetry(node=name, interval_seconds=2.0, devices=(live,))


def result(key: str, speed: float) -> EventData:
    return BenchCompleted(
        key=key, namespace="d", model="m", workload="w", source="s", backend="vllm", device_class="c",
        tokens_per_second=speed, iterations=1, duration_seconds=1.0,
    )  # fmt: skip


payloads = st.one_of(
    st.builds(hardware, names, st.integers(1, 100)),
    st.builds(telemetry, names, st.floats(0, 100)),
    st.builds(lambda name, state: NodeStatus(node=name, state=state), names, st.sampled_from(["online", "draining"])),
    st.builds(result, st.sampled_from(["k1", "k2"]), st.floats(1, 100)),
)


def minted(data: list[EventData]) -> list[Event]:
    mint = EventMint.start("agent", "x", "boot", lambda: NOW)
    return [mint.mint(one) for one in data]


def content(view: FleetView) -> dict[str, Any]:
    nodes = {
        node.name: (node.hardware, node.telemetry, node.telemetry_at, node.status, node.cost, node.exists)
        for node in view.nodes.values()
    }
    return {"nodes": nodes, "results": view.results, "digest": view.digest}


def folded(events: list[Event]) -> FleetView:
    view = FleetView()
    for event in events:
        fold(view, event, NOW)
    return view


@given(st.lists(payloads, max_size=20), st.data())
def test_any_order_and_any_repeats_end_in_the_same_view(data, draw):
    events = minted(data)
    delivered = draw.draw(st.permutations(events))
    repeats = draw.draw(st.lists(st.sampled_from(events), max_size=10)) if events else []

    assert content(folded([*delivered, *repeats])) == content(folded(events))


@given(st.lists(payloads, max_size=20))
def test_a_repeat_is_not_news(data):
    events = minted(data)
    view = folded(events)
    before = (view.version, view.changes.count)

    assert not any(fold(view, event, NOW + 1) for event in events)
    assert (view.version, view.changes.count) == before


@given(st.lists(payloads, max_size=20))
def test_the_digest_tells_views_of_different_facts_apart_and_of_equal_facts_together(data):
    events = minted(data)
    whole = folded(events)

    assert folded(events[::-1]).digest == whole.digest
    if events and fold(folded(events[:-1]), events[-1], NOW):
        assert folded(events[:-1]).digest != whole.digest


@given(st.lists(payloads, max_size=20))
def test_a_snapshot_of_the_same_state_changes_nothing_but_completes_it(data):
    events = minted(data)
    live = folded(events)
    newest = {(type(event.data), event.subject): event for event in events}

    fresh = FleetView()
    replace_state(fresh, STATE_TYPES, newest.values(), NOW)
    replace_state(live, STATE_TYPES, newest.values(), NOW)

    assert content(fresh) == content(live)


def test_a_snapshot_drops_what_it_does_not_hold():
    view = folded(minted([hardware("a", 1), telemetry("a", 1.0), result("k1", 1.0), hardware("b", 1)]))
    kept = minted([hardware("b", 1)])

    replace_state(view, STATE_TYPES, kept, NOW)

    assert view.nodes["a"].hardware is None
    assert view.nodes["a"].telemetry is None
    assert view.nodes["b"].hardware is not None
    assert (view.results, view.by_workload) == ({}, {})


def test_a_bus_that_forgot_everybody_is_no_news_of_nodes_that_are_still_there():
    view = folded(minted([hardware("a", 1), telemetry("a", 1.0), hardware("b", 1)]))
    replace_objects(view, "nodes", [{"metadata": {"name": "a"}}], NOW)

    replace_state(view, STATE_TYPES, [], NOW)

    assert view.nodes["a"].hardware is not None
    assert view.nodes["a"].telemetry_at == NOW
    assert view.nodes["b"].hardware is None


def test_a_new_boot_replaces_the_old_one_whose_late_events_are_repeats():
    old = EventMint.start("agent", "a", "boot-1", lambda: NOW)
    new = EventMint.start("agent", "a", "boot-2", lambda: NOW)
    late = [old.mint(telemetry("a", 1.0)) for _ in range(5)]
    view = FleetView()

    fold(view, late[0], NOW)
    fold(view, new.mint(telemetry("a", 2.0)), NOW)

    assert not fold(view, late[4], NOW)
    assert view.nodes["a"].telemetry.devices[0].util_percent == 2.0
