"""Telemetry ages by its own interval; silence never helps; clocks may disagree."""

import pytest

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import (
    BenchCompleted,
    Device,
    DeviceTelemetry,
    EngineTelemetry,
    NodeHardware,
    NodeStatus,
    NodeTelemetry,
)
from flexinfer.core.fleet.fold import STATE_TYPES, fold, replace_state, tick
from flexinfer.core.fleet.freshness import Level, level
from flexinfer.core.fleet.units import units
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.placement.demand import Kind
from flexinfer.core.placement.offers import offer_of

NOW = 1_800_000_000.0
GPU = Kind("NVIDIA", 1)


class Node:
    """One node with one card of 24,000 MiB."""

    def __init__(self, name="n"):
        self.view = FleetView()
        self.name = name
        self.mint = EventMint.start("agent", name, "boot", lambda: NOW)
        card = Device(index=0, uuid="u", vendor="NVIDIA", arch="sm_89", memory_mib=24000)
        fold(self.view, self.mint.mint(NodeHardware(node=name, devices=(card,))), NOW)

    def live(self, util, free, at=NOW, now=None, **more):
        device = DeviceTelemetry(index=0, uuid="u", util_percent=util, memory_free_mib=free)
        data = NodeTelemetry(node=self.name, interval_seconds=2.0, devices=(device,), **more)
        fold(self.view, self.mint.mint(data, at), at if now is None else now)

    def offer(self, now):
        tick(self.view, now)
        return offer_of(self.view.nodes[self.name], GPU, now)


@pytest.mark.parametrize(
    ("age", "expected"),
    [(0.0, Level.FRESH), (6.0, Level.FRESH), (6.1, Level.AGING), (20.0, Level.AGING), (20.1, Level.LOST)],
)
def test_levels_by_intervals(age, expected):
    node = Node()
    node.live(10.0, 12000)

    assert level(node.view.nodes["n"], NOW + age) is expected


def test_after_three_intervals_load_counts_as_at_least_half():
    node = Node()
    node.live(10.0, 12000, kv_cache_ratio=0.2)

    offer = node.offer(NOW + 7)

    assert (offer.util, offer.kv, offer.ratio, offer.capacity) == (50.0, 50.0, 0.5, 12000)


def test_a_busy_node_does_not_become_idle_by_silence():
    node = Node()
    node.live(90.0, 12000, kv_cache_ratio=0.8)

    assert (node.offer(NOW + 7).util, node.offer(NOW + 7).kv) == (90.0, 80.0)


def test_after_ten_intervals_no_headroom_and_vram_by_installed():
    node = Node()
    node.live(10.0, 12000)

    offer = node.offer(NOW + 21)

    assert (offer.util, offer.ratio, offer.capacity) == (50.0, 0.0, 24000)


def test_a_node_that_never_sent_telemetry_is_like_one_long_silent():
    node = Node()

    offer = node.offer(NOW)

    assert (offer.util, offer.kv, offer.ratio, offer.capacity) == (50.0, 50.0, 0.0, 24000)


def test_an_agent_that_said_goodbye_is_silent_at_once_until_it_speaks_again():
    node = Node()
    node.live(10.0, 12000)
    fold(node.view, node.mint.mint(NodeStatus(node="n", state="offline")), NOW + 1)
    assert node.offer(NOW + 1).ratio == 0.0

    node.live(10.0, 12000, at=NOW + 2)

    assert node.offer(NOW + 2).ratio == 0.5


def test_no_engine_is_a_known_zero_and_an_engine_without_the_figure_is_unknown():
    idle, opaque = Node(), Node()
    idle.live(0.0, 24000)
    opaque.live(0.0, 24000, engines=(EngineTelemetry(namespace="d", pod="p"),))

    assert (idle.offer(NOW).kv, opaque.offer(NOW).kv) == (0.0, 50.0)


def test_unknown_utilisation_is_half_not_zero():
    node = Node()
    node.live(None, 24000)

    assert node.offer(NOW).util == 50.0


@pytest.mark.parametrize(
    ("reported", "received", "counts_as"),
    [
        (NOW - 1, NOW, NOW - 1),
        (NOW - 3600, NOW, NOW),
        (NOW + 3600, NOW, NOW),
        (NOW + 1, NOW, NOW),
    ],
    ids=["in step", "clock behind by an hour", "clock ahead by an hour", "slightly ahead"],
)
def test_a_clock_that_disagrees_by_more_than_the_interval_is_not_believed(reported, received, counts_as):
    node = Node()
    node.live(10.0, 12000, at=reported, now=received)

    assert node.view.nodes["n"].telemetry_at == counts_as


def test_stored_state_may_be_old_and_is_dated_by_itself():
    node = Node()
    hardware = node.mint.mint(node.view.nodes["n"].hardware)
    old = node.mint.mint(NodeTelemetry(node="n", interval_seconds=2.0), NOW - 600)

    replace_state(node.view, STATE_TYPES, (hardware, old), NOW)

    assert node.view.nodes["n"].telemetry_at == NOW - 600
    assert level(node.view.nodes["n"], NOW) is Level.LOST


def test_time_alone_marks_a_node_as_changed():
    node = Node()
    node.live(10.0, 12000)
    tick(node.view, NOW)
    before = node.view.changes.count

    tick(node.view, NOW + 5.9)
    quiet = node.view.changes.count
    tick(node.view, NOW + 6.1)
    aged = node.view.changes.count
    tick(node.view, NOW + 20.1)

    assert quiet == before
    assert aged == before + 1
    assert node.view.changes.count == aged + 1


def test_a_node_gone_from_the_api_and_the_bus_is_forgotten_after_an_hour():
    node = Node()
    node.live(10.0, 12000)

    tick(node.view, NOW + 3000)
    kept = set(node.view.nodes)
    for hours in (1.1, 2.2):
        tick(node.view, NOW + hours * 3600)

    assert kept == {"n"}
    assert not node.view.nodes
    assert not node.view.order.seen
    assert node.view.digest == 0


def test_results_have_no_age_for_decisions():
    view = FleetView()
    mint = EventMint.start("bench", "b", "boot", lambda: NOW)
    result = BenchCompleted(
        key="k", namespace="d", model="m", workload="w", source="s", backend="vllm", device_class="c",
        tokens_per_second=5.0, iterations=1, duration_seconds=1.0,
    )  # fmt: skip
    fold(view, mint.mint(result), NOW)

    tick(view, NOW + 1e6)

    assert view.results == {"k": result}


def test_units_of_an_unreported_node_are_none():
    assert units(FleetView().node("n"), NOW) == []
