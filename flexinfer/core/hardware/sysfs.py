"""What the kernel tells of AMD devices in files: DRM cards, hwmon sensors, the KFD topology."""

import re
from collections.abc import Mapping, Sequence

from flexinfer.core.hardware import gfx
from flexinfer.core.hardware.amd import KfdNode, Reading
from flexinfer.core.hardware.findings import Live
from flexinfer.core.hardware.pci import address_of
from flexinfer.core.hardware.readings import celsius, count, number, percent, text_of, watts, words
from flexinfer.core.hardware.rocm import location, unique_id

# Files of a card's device directory that never change while the driver is loaded, and those that do.
CARD_FACTS = (
    "product_name", "unique_id", "mem_info_vram_total", "mem_info_gtt_total", "current_compute_partition",
    "current_memory_partition",
)  # fmt: skip
CARD_FIGURES = ("mem_info_vram_used", "mem_info_gtt_used", "gpu_busy_percent")
SENSORS = ("temp1_input", "power1_average", "power1_input", "freq1_input")

_PROPERTY = re.compile(r"^(\w+)\s+(\d{1,20})\s*$", re.MULTILINE)
_GPU_HEAPS = (1, 2)  # HSA_HEAPTYPE_FRAME_BUFFER_PUBLIC and _PRIVATE
_AMD = 0x1002


def slot_of(uevent: bytes | None, link: str | None) -> str | None:
    """PCI address of a DRM device: from its uevent file, or the name its ``device`` link ends in."""
    match = re.search(r"^PCI_SLOT_NAME=(\S+)", text_of(uevent), re.MULTILINE)
    return address_of(match.group(1) if match else (link or "").rstrip("/").rpartition("/")[2])


def card(pci: str | None, files: Mapping[str, bytes | None], driver: str | None = None) -> Reading:
    """One card from the files named above; a file that is missing or not a number is unknown."""
    text = {name: text_of(raw).strip() for name, raw in files.items() if raw}
    return Reading(
        index=0,
        name=words(text.get("product_name")),
        pci=pci,
        unique_id=unique_id(text.get("unique_id")),
        vram_bytes=count(text.get("mem_info_vram_total")) or None,
        vram_used_bytes=count(text.get("mem_info_vram_used")),
        gtt_bytes=count(text.get("mem_info_gtt_total")) or None,
        gtt_used_bytes=count(text.get("mem_info_gtt_used")),
        compute_partition=words(text.get("current_compute_partition")),
        memory_partition=words(text.get("current_memory_partition")),
        driver=driver,
        live=Live(
            util_percent=percent(text.get("gpu_busy_percent")),
            temperature_celsius=celsius(_scaled(text.get("temp1_input"), 1000)),
            power_watts=watts(_scaled(text.get("power1_average") or text.get("power1_input"), 1_000_000)),
            sm_clock_mhz=count(_scaled(text.get("freq1_input"), 1_000_000)),
        ),
    )


def _scaled(value: str | None, per: int) -> float | None:
    found = number(value)
    return found / per if found is not None else None


def kfd_node(
    node: int, properties: bytes | None, gpu_id: bytes | None, banks: Sequence[bytes | None]
) -> KfdNode | None:
    """One topology node, or None for a processor (``gpu_id`` 0) or one that cannot be read."""
    found = {name: int(value) for name, value in _PROPERTY.findall(text_of(properties))}
    if not found or not count(text_of(gpu_id).strip()) or found.get("vendor_id", _AMD) != _AMD:
        return None
    heap = sum(_heap(bank) for bank in banks)
    return KfdNode(
        node=node,
        arch=gfx.from_kfd(found.get("gfx_target_version")),
        pci=location(found.get("location_id"), found.get("domain", 0)),
        heap_bytes=heap or None,
    )


def _heap(bank: bytes | None) -> int:
    found = {name: int(value) for name, value in _PROPERTY.findall(text_of(bank))}
    return found.get("size_in_bytes", 0) if found.get("heap_type") in _GPU_HEAPS else 0
