"""Degraded mode: the fleet as its projections tell it, and the way back."""

import msgspec
import pytest

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import BenchCompleted, Device, NodeHardware
from flexinfer.core.fleet.fold import STATE_TYPES, replace_state
from flexinfer.core.fleet.freshness import Level, level
from flexinfer.core.fleet.projections import assume_node, assume_results
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.hardware.device_class import classes_of
from flexinfer.core.placement.demand import Kind
from flexinfer.core.placement.offers import offer_of

NOW = 1_800_000_000.0
PREFIX = "flexinfer.ai/"


def node(labels, annotations=(), capacity=()):
    return {
        "metadata": {
            "name": "n",
            "labels": {PREFIX + key: value for key, value in dict(labels).items()},
            "annotations": {PREFIX + key: value for key, value in dict(annotations).items()},
        },
        "status": {"capacity": dict(capacity)},
    }


LABELS = {
    "gpu.vendor": "NVIDIA", "gpu.vram": "24Gi", "gpu.arch": "sm_89", "gpu.int4": "true", "gpu.count": "2",
    "gpu.product": "NVIDIA-GeForce-RTX-4090",
}  # fmt: skip
LOAD = {"gpu.util": "12.34", "gpu-free-memory": "40000", "kv-cache-usage": "0.1234"}


def test_labels_make_devices_of_the_class_results_know():
    view = FleetView()

    assume_node(view, node(LABELS, LOAD), NOW)

    assert classes_of(view.nodes["n"].hardware, 1) == ("nvidia-geforce-rtx-4090-sm-89-24g-x1",)
    offer = offer_of(view.nodes["n"], Kind("NVIDIA", 2, need="int4"), NOW)
    assert (offer.capacity, offer.util, offer.kv) == (20000, 50.0, 50.0)
    assert offer.ratio == pytest.approx(20000 / 24576)


def test_what_projections_say_of_load_counts_as_late_however_long_it_lasts():
    view = FleetView()
    assume_node(view, node(LABELS, LOAD), NOW)

    assert level(view.nodes["n"], NOW) is Level.AGING
    assert level(view.nodes["n"], NOW + 1e5) is Level.AGING


def test_the_annotation_that_lists_devices_is_preferred():
    device = {"index": 0, "uuid": "GPU-1", "vendor": "AMD", "arch": "gfx1100", "memoryMib": 20464, "health": "ok"}
    view = FleetView()

    assume_node(view, node(LABELS, {"gpu-devices": msgspec.json.encode([device]).decode()}), NOW)

    assert view.nodes["n"].hardware.devices == (
        Device(index=0, uuid="GPU-1", vendor="AMD", arch="gfx1100", memory_mib=20464),
    )


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({}, {}),
        ({"gpu.vendor": "MATROX", "gpu.count": "1"}, {}),
        ({"gpu.vendor": "NVIDIA", "gpu.count": "many"}, {}),
        ({}, {"gpu-devices": "{"}),
        ({}, {"gpu-devices": '[{"index": -1}]'}),
        ({}, {"gpu-devices": '[{"index": 0, "uuid": "u", "vendor": "NVIDIA", "health": {"a": 1}}, 5]'}),
        ({}, {"gpu.util": "busy", "gpu-free-memory": "-1"}),
    ],
)
def test_what_cannot_be_read_is_absent(labels, annotations):
    view = FleetView()

    assume_node(view, node(labels, annotations), NOW)

    assert view.nodes["n"].hardware.devices == ()


def test_processor_nodes_have_threads_and_memory_from_capacity():
    view = FleetView()

    assume_node(view, node({"cpu.avx512": "true"}, capacity={"cpu": "32", "memory": "131072Mi"}), NOW)

    cpu = view.nodes["n"].hardware.cpu
    assert (cpu.threads, cpu.memory_mib, cpu.avx512) == (32, 131072, True)


def test_a_heartbeat_of_the_node_is_no_news():
    view = FleetView()
    assume_node(view, node(LABELS, LOAD), NOW)
    before = view.version

    assume_node(view, node(LABELS, LOAD), NOW + 1)

    assert view.version == before


def test_results_come_from_the_record():
    result = BenchCompleted(
        key="k", namespace="d", model="m", workload="w", source="s", backend="vllm", device_class="c",
        tokens_per_second=5.0, iterations=1, duration_seconds=1.0,
    )  # fmt: skip
    text = msgspec.json.encode(msgspec.to_builtins(result) | {"observedAt": NOW}).decode()
    view = FleetView()

    unreadable = assume_results(view, [{"data": {"k": text, "note": "by hand"}}, {"data": None}])

    assert view.results == {"k": result}
    assert (view.result_at["k"], unreadable) == (NOW, 1)


def test_a_snapshot_of_the_bus_replaces_all_of_it():
    view = FleetView(degraded=True)
    assume_node(view, node(LABELS, LOAD), NOW)
    mint = EventMint.start("agent", "other", "boot", lambda: NOW)

    replace_state(view, STATE_TYPES, [mint.mint(NodeHardware(node="other"))], NOW)

    assert not view.degraded
    assert view.nodes["n"].hardware is None
    assert not view.nodes["n"].assumed
    assert view.nodes["other"].hardware is not None
