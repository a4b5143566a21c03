"""amd-smi's JSON (``static`` and ``metric``) and amdsmi's dictionaries."""

from collections.abc import Mapping
from typing import Any

from flexinfer.core.hardware import gfx
from flexinfer.core.hardware.amd import Reading
from flexinfer.core.hardware.findings import Live
from flexinfer.core.hardware.json_text import documents, mapping
from flexinfer.core.hardware.pci import address_of
from flexinfer.core.hardware.readings import MIB, celsius, count, percent, watts, words
from flexinfer.core.hardware.rocm import unique_id

STATIC_ARGS = ("static", "--json")
METRIC_ARGS = ("metric", "--json")

NOT_AVAILABLE = {0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF}


def parse(static: str, metric: str) -> tuple[Reading, ...]:
    """Devices of ``amd-smi static`` with the figures of ``amd-smi metric``; a list (6.x) or ``gpu_data`` (7.x)."""
    figures = {item.get("gpu"): item for item in _items(metric)}
    return tuple(_reading(at, item, mapping(figures.get(item.get("gpu")))) for at, item in enumerate(_items(static)))


def _items(text: str) -> list[dict[str, Any]]:
    for document in documents(text):
        found = document.get("gpu_data") if isinstance(document, dict) else document
        if isinstance(found, list):
            items = [item for item in found if isinstance(item, dict) and isinstance(item.get("gpu"), int)]
            if items:
                return items
        if isinstance(document, dict) and isinstance(document.get("gpu"), int):
            return [document]
    return []


def _value(value: Any) -> Any:
    """``{"value": 24560, "unit": "MB"}`` or the bare value; the raw "not available" patterns become None."""
    found = value.get("value") if isinstance(value, dict) else value
    return None if isinstance(found, int) and found in NOT_AVAILABLE else found


def _bytes(value: Any) -> int | None:
    """A size; called MB, meant MiB, except where it says GB."""
    found = count(_value(value))
    unit = str(mapping(value).get("unit", "MB")).upper()
    scale = {"B": 1, "KB": 1 << 10, "GB": 1 << 30}.get(unit, MIB)
    return found * scale if found is not None else None


def _reading(at: int, item: dict[str, Any], figures: dict[str, Any]) -> Reading:
    asic, partition = mapping(item.get("asic")), mapping(item.get("partition"))
    usage, memory = mapping(figures.get("usage")), mapping(figures.get("mem_usage"))
    temperature, power = mapping(figures.get("temperature")), mapping(figures.get("power"))
    clock = mapping(mapping(figures.get("clock")).get("gfx_0"))
    free = _bytes(memory.get("free_vram"))
    total = _bytes(mapping(item.get("vram")).get("size"))
    return Reading(
        index=count(item.get("gpu")) or at,
        name=words(asic.get("market_name")) or words(mapping(item.get("board")).get("product_name")),
        arch=gfx.canonical(words(asic.get("target_graphics_version"))),
        pci=address_of(words(mapping(item.get("bus")).get("bdf"))),
        vram_bytes=(total if total is not None else _bytes(memory.get("total_vram"))) or None,
        vram_used_bytes=_bytes(memory.get("used_vram")),
        gtt_bytes=_bytes(memory.get("total_gtt")) or None,
        gtt_used_bytes=_bytes(memory.get("used_gtt")),
        compute_partition=words(partition.get("accelerator_partition")) or words(partition.get("compute_partition")),
        memory_partition=words(partition.get("memory_partition")),
        driver=words(mapping(item.get("driver")).get("version")),
        live=Live(
            util_percent=percent(_value(usage.get("gfx_activity"))),
            memory_free_mib=free // MIB if free is not None else None,
            temperature_celsius=_first_celsius(temperature.get(key) for key in ("edge", "hotspot", "mem")),
            power_watts=watts(_value(power.get("socket_power"))),
            sm_clock_mhz=count(_value(clock.get("clk"))),
            ecc_uncorrected=count(_value(mapping(figures.get("ecc")).get("total_uncorrectable_count"))),
        ),
    )


def _first_celsius(values: Any) -> float | None:
    return next((found for value in values if (found := celsius(_value(value))) is not None), None)


def library_reading(index: int, answers: Mapping[str, Any]) -> Reading:
    """One device from amdsmi's answers by function group; a group that failed is missing.

    Keys drifted between releases: ``vram_size_mb`` became ``vram_size``; MI200 fills only
    ``average_socket_power``, MI300 only ``current_socket_power``.
    """
    asic, size = mapping(answers.get("asic")), mapping(answers.get("vram_info"))
    usage, power = mapping(answers.get("vram_usage")), mapping(answers.get("power"))
    total = _first(_bytes(size.get(key)) for key in ("vram_size", "vram_size_mb"))
    return Reading(
        index=index,
        name=words(asic.get("market_name")) or words(mapping(answers.get("board")).get("product_name")),
        arch=gfx.canonical(words(asic.get("target_graphics_version"))),
        pci=address_of(words(answers.get("bdf"))),
        unique_id=unique_id(words(asic.get("asic_serial"))),
        vram_bytes=(total if total is not None else _bytes(usage.get("vram_total"))) or None,
        vram_used_bytes=_bytes(usage.get("vram_used")),
        gtt_bytes=count(answers.get("gtt_total")) or None,
        gtt_used_bytes=count(answers.get("gtt_used")),
        compute_partition=words(answers.get("compute_partition")),
        memory_partition=words(answers.get("memory_partition")),
        driver=words(mapping(answers.get("driver")).get("driver_version")),
        live=Live(
            util_percent=percent(_value(mapping(answers.get("activity")).get("gfx_activity"))),
            temperature_celsius=_first_celsius(answers.get(key) for key in ("temp_edge", "temp_hotspot")),
            power_watts=_first(
                watts(_value(power.get(key)))
                for key in ("current_socket_power", "average_socket_power", "socket_power")
            ),
            sm_clock_mhz=_first(count(_value(mapping(answers.get("clock")).get(key))) for key in ("clk", "cur_clk")),
            ecc_uncorrected=count(_value(mapping(answers.get("ecc")).get("uncorrectable_count"))),
        ),
    )


def _first(values: Any) -> Any:
    return next((value for value in values if value is not None), None)
