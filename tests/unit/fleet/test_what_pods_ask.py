"""Accelerators and memory a pod asks for, as Kubernetes adds them up, whatever people write."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.contracts.extender import PodObject
from flexinfer.core.fleet.pods import MIB_PER_MB, ask_of


def ask(containers=(), init=(), **annotations):
    names = {
        "vram": "flexinfer.ai/gpu.vram-estimate-mb",
        "vendor": "flexinfer.ai/gpu.vendor",
        "arch": "flexinfer.ai/gpu.arch",
    }
    spec = {"containers": list(containers), "initContainers": list(init)}
    found = {names[key]: value for key, value in annotations.items()}
    return ask_of(msgspec.convert({"metadata": {"annotations": found}, "spec": spec}, PodObject))


def uses(count, resource="nvidia.com/gpu", sidecar=False, where="limits"):
    body = {"name": "c", "resources": {where: {resource: count}}}
    return body | ({"restartPolicy": "Always"} if sidecar else {})


@pytest.mark.parametrize(
    ("containers", "init", "units"),
    [
        ([uses("1")], [], 1),
        ([uses("1"), uses("2")], [], 3),
        ([uses(2)], [], 2),
        ([uses("1", where="requests")], [], 1),
        ([uses("1")], [uses("4")], 4),
        ([uses("4")], [uses("1")], 4),
        ([uses("1")], [uses("2", sidecar=True)], 3),
        ([], [uses("2", sidecar=True)], 2),
        ([uses("1")], [uses("2", sidecar=True), uses("3")], 5),
        ([uses("1")], [uses("3"), uses("1", sidecar=True)], 3),
    ],
)
def test_containers_sidecars_and_init_containers(containers, init, units):
    found = ask(containers, init)

    assert (found.devices, found.whole) == (units, units)


@pytest.mark.parametrize(
    ("resource", "vendor", "partition"),
    [
        ("nvidia.com/gpu", "NVIDIA", ""),
        ("amd.com/gpu", "AMD", ""),
        ("gpu.intel.com/xe", "INTEL", ""),
        ("gpu.intel.com/i915", "INTEL", ""),
        ("nvidia.com/mig-1g.10gb", "NVIDIA", "1g.10gb"),
    ],
)
def test_vendor_by_resource(resource, vendor, partition):
    found = ask([uses("1", resource)])

    assert (found.vendor, found.partition) == (vendor, partition)


def test_a_shared_accelerator_is_asked_for_by_annotation():
    assert (ask(vendor="nvidia").devices, ask(vendor="nvidia").whole) == (1, 0)
    assert ask(arch="sm_89").devices == 1
    assert ask(vram="9000").memory_mib == pytest.approx(9000 * MIB_PER_MB)


def test_nothing_asked_is_a_demand_on_the_processor():
    assert (ask().vendor, ask().devices) == ("CPU", 0)
    assert ask(vendor="cpu", vram="9000").devices == 0
    assert ask([uses("4", "cpu")]).devices == 0


def test_several_vendors_are_noted():
    found = ask([uses("1"), uses("1", "amd.com/gpu")])

    assert (found.vendor, found.devices) == ("AMD", 1)
    assert found.notes == ("several accelerator resources are requested; amd.com/gpu decides",)


@pytest.mark.parametrize("vram", ["lots", "-5", "1e99", "", "9000 MB", "NaN"])
def test_an_unreadable_estimate_counts_as_absent_and_is_noted(vram):
    found = ask([uses("1")], vram=vram)

    assert found.memory_mib == 0
    assert found.notes == ("flexinfer.ai/gpu.vram-estimate-mb is no number of MB and was ignored",)


def test_an_unknown_vendor_is_noted():
    assert ask([uses("1")], vendor="matrox").notes == (
        "flexinfer.ai/gpu.vendor names no vendor known here and was ignored",
    )


quantities = st.text(max_size=12) | st.integers() | st.floats(allow_nan=True)


@given(
    st.lists(st.dictionaries(st.sampled_from(["nvidia.com/gpu", "amd.com/gpu", "cpu"]), quantities), max_size=3),
    st.dictionaries(st.sampled_from(["vram", "vendor", "arch"]), st.text(max_size=20)),
)
def test_whatever_people_write_is_read_without_raising(resources, annotations):
    found = ask([{"name": "c", "resources": {"limits": one}} for one in resources], **annotations)

    assert found.devices >= found.whole >= 0
    assert 0 <= found.memory_mib < 1e16
