"""Each reason of the filter, alone, and what eviction could cure."""

import pytest

from flexinfer.contracts.events import Cpu, Partition
from flexinfer.core.placement.checks import REASONS
from flexinfer.core.placement.demand import demand_of
from flexinfer.core.placement.offers import verdict


def reason(fleet, pod, node="n"):
    found = verdict(fleet.view, node, demand_of(pod), fleet.now)
    return None if found is None else found.code


def test_a_suitable_idle_node_passes(fleet, pod):
    fleet.node("n", "4090")

    assert reason(fleet, pod(vram="20000")) is None


@pytest.mark.parametrize(
    ("card", "demand", "code"),
    [
        ("4090", {"resource": "amd.com/gpu"}, "WrongVendor"),
        ("7900", {"resource": "gpu.intel.com/i915"}, "WrongVendor"),
        ("4090", {"arch": "sm_90"}, "WrongArchitecture"),
        ("p40", {"quantization": "awq", "backend": "vllm"}, "QuantizationUnsupported"),
        ("3090", {"quantization": "fp8", "backend": "tgi"}, "QuantizationUnsupported"),
        ("4090", {"vram": "30000"}, "VramTooSmall"),
        ("4090", {"gpus": 2}, "TooFewDevices"),
        ("4090", {"resource": "nvidia.com/mig-1g.10gb"}, "NoPartition"),
    ],
)
def test_what_no_eviction_cures(fleet, pod, card, demand, code):
    fleet.node("n", card)

    assert reason(fleet, pod(**demand)) == code
    assert next(one for one in REASONS if one.code == code).final


@pytest.mark.parametrize(
    ("card", "demand"),
    [
        ("p40", {"quantization": "q4_k_m", "backend": "llamacpp"}),
        ("p40", {"quantization": "awq", "backend": "llamacpp"}),
        ("4090", {"quantization": "awq", "backend": "vllm"}),
        ("3090", {"quantization": "fp8", "backend": "vllm"}),
        ("p40", {"quantization": "something-new", "backend": "vllm"}),
        ("4090", {"arch": "sm_89, sm_90"}),
        ("4090", {"arch": "SM_89"}),
    ],
)
def test_formats_and_architectures_that_pass(fleet, pod, card, demand):
    fleet.node("n", card)

    assert reason(fleet, pod(**demand)) is None


def test_an_unknown_format_passes_with_a_note(pod):
    notes = demand_of(pod(quantization="something-new", backend="vllm")).describe()["notes"]

    assert notes == ["quantization 'something-new' is not in the table: every device passes"]


def test_a_node_nobody_reported_fails_for_good(fleet, pod):
    assert reason(fleet, pod()) == "NoFacts"


def test_installed_memory_that_is_not_known_does_not_help(fleet, pod):
    fleet.node("n", "4090", silent=True)
    device = fleet.view.nodes["n"].hardware.devices[0]
    fleet.tell("n", type(fleet.view.nodes["n"].hardware)(node="n", devices=(type(device)(
        index=0, uuid="n-0", vendor="NVIDIA", arch="sm_89"),)))  # fmt: skip

    assert reason(fleet, pod(vram="1000")) == "VramUnknown"
    assert reason(fleet, pod()) is None


def test_what_eviction_could_cure(fleet, pod):
    fleet.node("busy", "4090", free=0.2)
    fleet.node("leaving", "4090")
    fleet.status("leaving", "draining")

    assert reason(fleet, pod(vram="9000"), "busy") == "NoFreeVram"
    assert reason(fleet, pod(), "leaving") == "Draining"
    assert not next(one for one in REASONS if one.code == "NoFreeVram").final


def test_memory_is_split_over_the_demanded_devices(fleet, pod):
    fleet.node("n", "4090", "4090")

    assert reason(fleet, pod(gpus=2, vram="45000")) is None
    assert reason(fleet, pod(gpus=1, vram="45000")) == "VramTooSmall"


def test_a_device_that_cannot_be_used_is_not_counted(fleet, pod):
    fleet.node("n", "4090", silent=True)
    hardware = fleet.view.nodes["n"].hardware
    lost = type(hardware.devices[0])(index=0, uuid="n-0", vendor="NVIDIA", memory_mib=24564, counted=False)
    fleet.tell("n", type(hardware)(node="n", devices=(lost,)))

    assert reason(fleet, pod()) == "WrongVendor"


def test_partitions_are_matched_by_profile(fleet, pod):
    fleet.node("n", "4090", silent=True)
    hardware = fleet.view.nodes["n"].hardware
    slice_ = type(hardware.devices[0])(
        index=0, uuid="MIG-1", vendor="NVIDIA", memory_mib=9856, partition=Partition(kind="mig", profile="1g.10gb")
    )
    fleet.tell("n", type(hardware)(node="n", devices=(slice_,)))

    assert reason(fleet, pod(resource="nvidia.com/mig-1g.10gb")) is None
    assert reason(fleet, pod(resource="nvidia.com/mig-2g.20gb")) == "NoPartition"


def test_a_demand_without_accelerators_passes_cpu_nodes_even_unreported_ones(fleet, pod):
    fleet.node("c", cpu=Cpu(model="AMD EPYC", threads=8))

    assert reason(fleet, pod(gpus=0), "c") is None
    assert reason(fleet, pod(gpus=0), "never-heard-of") is None
    assert reason(fleet, pod(gpus=0, vendor="cpu", vram="9000"), "c") is None


def test_sentences_are_short_and_distinct():
    assert len({one.text for one in REASONS}) == len(REASONS)
    assert all(len(one.text) < 60 and not any(c.isdigit() for c in one.text) for one in REASONS)
