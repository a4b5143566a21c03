"""Any bytes from any tool: parsers report or leave out, they never raise."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flexinfer.core.hardware import amd, amd_smi, cuda, gfx, intel, notices, nvidia, nvidia_smi, nvml, rocm, sysfs
from flexinfer.core.hardware.engine_metrics import parse_budget, parse_page, parse_slots
from flexinfer.core.hardware.engine_pods import engine_of
from flexinfer.core.hardware.machine import Memory, parse_cpuinfo, parse_meminfo, parse_stat
from flexinfer.core.hardware.pci import address_of, gpu_of
from flexinfer.core.hardware.projection import clean_value
from flexinfer.core.hardware.readings import count, number, text_of, words

WORDS = [
    "0", "1", "GPU-1", "[N/A]", "[GPU is lost]", "ERR!", "8.9", "24564", "0000:17:00.0", "Enabled", "card0", "gfx90a",
    "GPU use (%)", "{", "}", "[", "]", '"', ":", ",", "\n", "\x1b[31m", "Agent 1", "  Name: gfx90a",
    "  Device Type: GPU",
    "GPU 0: X (UUID: GPU-1)", "  MIG 1g.5gb Device 0: (UUID: MIG-1)",
    "infoROM is corrupted at gpu 0000:17:00.0",
    "Unable to determine the device handle for gpu 0000:18:00.0", "vllm:kv_cache_usage_perc", "} 0.5", "NaN", "1e999",
    "9" * 50, "-1", "location_id 768\n", "gfx_target_version 90010\n",
    "heap_type 1\nsize_in_bytes 5\n", "\ufffd", "\x00",
]  # fmt: skip
noise = st.one_of(
    st.binary(max_size=400), st.lists(st.sampled_from(WORDS), max_size=40).map(lambda parts: "".join(parts).encode())
)
fuzz = settings(deadline=None)  # other work on the machine is no failure of a parser
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=5),
    max_leaves=20,
)
CARD_KEYS = [
    "GPU use (%)", "VRAM Total Memory (B)", "VRAM Total Used Memory (B)", "Card Series", "GFX Version", "Node ID",
    "PCI Bus", "Unique ID", "GTT Total Memory (B)", "Temperature (Sensor edge) (C)",
]  # fmt: skip


@fuzz
@given(noise)
def test_text_of_tools(raw: bytes) -> None:
    text = text_of(raw)
    table = nvidia_smi.parse_table(text, nvidia_smi.FIELDS)
    readings = nvidia_smi.with_complaints([nvidia_smi.reading_of(row) for row in table.rows], list(table.other))
    listed, lines = nvidia_smi.parse_listing(text)
    readings = nvidia_smi.with_parts(nvidia_smi.with_complaints(readings, lines), listed)
    for unit in nvidia.units(readings, "test", Memory(), ()):
        assert unit.memory_mib is None or unit.memory_mib > 0
    for failure in (nvidia_smi.failure_of, rocm.failure_of, intel.failure_of):
        assert all(isinstance(part, str) for part in failure(text, 3))
    rocm.parse_smi(text)
    rocm.identities(text)
    amd.units(rocm.parse_smi(text), "test", amd.Evidence(agents=rocm.parse_rocminfo(text)))
    amd_smi.parse(text, text)
    intel.units(intel.parse_discovery(text), (), ())
    intel.parse_stats(text)


@fuzz
@given(noise, noise)
def test_files_of_the_kernel(one: bytes, other: bytes) -> None:
    card = sysfs.card("0000:03:00.0", dict.fromkeys((*sysfs.CARD_FACTS, *sysfs.CARD_FIGURES, *sysfs.SENSORS), one))
    node = sysfs.kfd_node(1, one, b"1", [other, None])
    evidence = amd.Evidence(kfd=(node,) if node else (), cards=(card,))
    amd.units(amd.from_kernel(evidence), "sysfs", evidence)
    sysfs.slot_of(one, text_of(other))
    intel.card(None, text_of(one), {"tile0/vram0/total_bytes": one, "lmem_total_bytes": other}, None, 2)
    gpu_of("0000:03:00.0", text_of(one), text_of(other), "0x030000", None, None)
    parse_stat(text_of(one))
    parse_cpuinfo(text_of(one), parse_meminfo(text_of(other)))


@fuzz
@given(noise)
def test_pages_and_notices(raw: bytes) -> None:
    text = text_of(raw)
    page = parse_page(text)
    assert page is None or page.kv_ratio is None or 0 <= page.kv_ratio <= 1
    slots = parse_slots(text)
    assert slots is None or slots.kv_ratio is None or 0 <= slots.kv_ratio <= 1
    parse_budget(text)
    for look in (notices.from_file, notices.from_logind, notices.from_aws, notices.from_azure):
        look(raw)
    notices.from_gcp(raw, raw)


@fuzz
@given(st.dictionaries(st.sampled_from([*WORDS, "card0", "card1", "system"]), st.one_of(
    values, st.dictionaries(st.sampled_from(CARD_KEYS), values)), max_size=4))  # fmt: skip
def test_json_of_any_shape(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    amd.units(rocm.parse_smi(text), "test", amd.Evidence())
    rocm.identities(text)


@fuzz
@given(values)
def test_json_of_any_value(value: Any) -> None:
    for document in (value, [value], {"gpu_data": value}, {"device_list": value}, {"device_list": [value]},
                     [{"gpu": 0, "asic": value, "vram": {"size": value}, "bus": value}], {"Events": value},
                     [{"n_ctx": value, "is_processing": True, "next_token": value}]):  # fmt: skip
        text = json.dumps(document)
        amd.units(amd_smi.parse(text, text), "test", amd.Evidence())
        intel.units(intel.parse_discovery(text), (), ())
        parse_slots(text)
        notices.from_azure(text.encode())
    engine_of({"metadata": value, "spec": value, "status": {"phase": "Running", "podIP": "10.0.0.1"}})
    engine_of({"spec": {"containers": value}, "status": {"phase": "Running", "podIP": "10.0.0.1"}})


@fuzz
@given(values)
def test_answers_of_bindings(value: Any) -> None:
    reading = amd_smi.library_reading(0, dict.fromkeys(("bdf", "asic", "vram_info", "power", "activity", "ecc"), value))
    amd.units([reading], "amdsmi", amd.Evidence())
    nvml.capability(value)
    nvml.text(value)
    nvml.live(util=value, memory=value, temperature=value, milliwatts=value, clock=value)


@fuzz
@given(st.text())
def test_small_texts(text: str) -> None:
    found = clean_value(text)
    assert found is None or (len(found) <= 63 and found[0].isalnum() and found[-1].isalnum() and found.isascii())
    assert gfx.canonical(text) in {None, *gfx.KNOWN}
    cuda.sm(text)
    address_of(text)
    number(text)
    words(text)
    nvidia.profile_mib(text)
    nvidia.is_vgpu(text)


@fuzz
@given(st.integers())
def test_kfd_versions_of_any_size(version: int) -> None:
    assert gfx.from_kfd(version) in {None, *gfx.KNOWN}
    rocm.location(version, version)


@fuzz
@given(st.sampled_from(["[", "{", '{"a":', '[{"gpu":0,']), st.integers(1, 3000))
def test_deep_and_unfinished_json(opening: str, depth: int) -> None:
    text = opening * depth
    assert rocm.parse_smi(text) == ()
    assert amd_smi.parse(text, text) == ()


@pytest.mark.parametrize("value", [True, None, "1e5 W x", float("nan"), float("inf"), 10**400, "1" * 30, [], {}])
def test_what_is_no_number(value: Any) -> None:
    assert number(value) is None
    assert count(value) is None
