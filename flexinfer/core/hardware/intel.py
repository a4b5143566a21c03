"""Intel boards with memory of their own, from xpu-smi, sysfs and the PCI bus. Integrated graphics never count.

Memory comes from xpu-smi or the driver's files. The size of the PCI window is not used: it is a power of two and
would give 16 GiB to a board of 12.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flexinfer.core.hardware.findings import NO_FIGURES, Fault, Live, Unit
from flexinfer.core.hardware.json_text import documents, mapping
from flexinfer.core.hardware.nvidia import absent_unit
from flexinfer.core.hardware.pci import PciGpu, address_of, fault_of, intel_is_discrete
from flexinfer.core.hardware.readings import MIB, celsius, count, number, percent, text_of, watts, words

DISCOVERY_ARGS = ("discovery", "-j")
DRIVERS = frozenset({"i915", "xe"})

CARD_FACTS = ("lmem_total_bytes",)
SENSORS = ("temp2_input", "temp1_input", "power1_input")
CLOCK_FILE = "tile0/gt0/freq0/act_freq"

_DEVICE_IN_UUID = re.compile(r"([0-9a-f]{4})8086$")
_MAX_TILES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One board as one source described it; sizes in bytes."""

    index: int = 0
    name: str | None = None
    pci: str | None = None
    device_id: str = ""
    uuid: str | None = None
    memory_bytes: int | None = None
    used_bytes: int | None = None
    driver: str | None = None
    live: Live = NO_FIGURES


def parse_discovery(text: str) -> tuple[Reading, ...]:
    """Devices of ``xpu-smi discovery -j``; sizes are strings and may be missing."""
    for document in documents(text):
        listed = mapping(document).get("device_list")
        if isinstance(listed, list):
            found = [item for item in listed if isinstance(item, dict)]
            return tuple(_reading(at, item) for at, item in enumerate(found))
    return ()


def _reading(at: int, item: dict[str, object]) -> Reading:
    uuid = words(item.get("uuid"))
    named = re.search(r"0x([0-9a-fA-F]{4})", str(item.get("pci_device_id") or ""))
    inside = _DEVICE_IN_UUID.search((uuid or "").replace("-", "").lower())
    return Reading(
        index=count(item.get("device_id")) or at,
        name=words(item.get("device_name")),
        pci=address_of(words(item.get("pci_bdf_address"))),
        device_id=(named.group(1) if named else inside.group(1) if inside else "").lower(),
        uuid=uuid,
        memory_bytes=count(item.get("memory_physical_size_byte")) or None,
    )


def failure_of(text: str, code: int) -> tuple[str, str]:
    """(reason, first line) of an answer without a device."""
    line = next((words(part, 200) for part in text.splitlines() if words(part)), None) or ""
    if "error" in text.lower() or code:
        return f"exit-{code}" if code else "tool-error", line
    return "no-devices" if documents(text) is not None and "device_list" in text else "no-output", line


def tile_files(tiles: int = _MAX_TILES) -> tuple[str, ...]:
    """Memory files of the xe driver, per tile."""
    return tuple(f"tile{tile}/vram0/{name}" for tile in range(tiles) for name in ("total_bytes", "used_bytes"))


def card(pci: str | None, device_id: str, files: Mapping[str, bytes | None], driver: str | None, tiles: int) -> Reading:
    """One board from sysfs. ``tiles`` scales i915's ``lmem_total_bytes``, which is per tile."""
    text = {name: text_of(raw).strip() for name, raw in files.items() if raw}
    totals = [found for name in text if name.endswith("total_bytes") and "vram" in name if (found := count(text[name]))]
    used = [taken for name in text if name.endswith("used_bytes") if (taken := count(text[name])) is not None]
    lmem = count(text.get("lmem_total_bytes"))
    temperature = next((heat for name in SENSORS[:2] if (heat := number(text.get(name))) is not None), None)
    power = number(text.get("power1_input"))
    return Reading(
        pci=pci,
        device_id=device_id,
        memory_bytes=sum(totals) or (lmem * max(1, tiles) if lmem else None),
        used_bytes=sum(used) if used and len(used) == len(totals) else None,
        driver=driver,
        live=Live(
            temperature_celsius=celsius(temperature / 1000 if temperature is not None else None),
            power_watts=watts(power / 1_000_000 if power is not None else None),
            sm_clock_mhz=count(text.get(CLOCK_FILE)),
        ),
    )


def units(readings: Sequence[Reading], cards: Sequence[Reading], gpus: Sequence[PciGpu]) -> tuple[Unit, ...]:
    """Boards of xpu-smi completed from sysfs, then boards only sysfs or the bus knows, in the order of the bus."""
    by_pci = {card.pci: card for card in cards if card.pci}
    chips = {gpu.address: gpu for gpu in gpus if gpu.vendor == "INTEL"}
    found: list[Unit] = []
    for reading in readings:
        gpu, known = chips.get(reading.pci or ""), by_pci.get(reading.pci or "")
        chip = reading.device_id or (gpu.device_id if gpu else "")
        if intel_is_discrete(chip, reading.pci, own_memory=reading.memory_bytes is not None):
            found.append(_unit(_complete(reading, known), "xpu-smi", gpu, len(found)))
    listed = {unit.pci for unit in found}
    for address, gpu in sorted(chips.items()):
        known = by_pci.get(address)
        own = known is not None and known.memory_bytes is not None
        if address in listed or not intel_is_discrete(gpu.device_id, address, own_memory=own):
            continue
        fault = fault_of(gpu)
        if fault is None and gpu.driver not in DRIVERS:
            fault = Fault("driver-error", "driver-not-loaded", f"bound to {gpu.driver}")
        if fault:
            found.append(absent_unit(gpu, len(found), fault))
        else:
            found.append(_unit(known or Reading(pci=address), "sysfs", gpu, len(found)))
    return tuple(found)


def _complete(reading: Reading, known: Reading | None) -> Reading:
    if known is None:
        return reading
    return replace(
        reading,
        memory_bytes=reading.memory_bytes or known.memory_bytes,
        used_bytes=known.used_bytes,
        driver=known.driver,
        live=known.live,
    )


def _unit(reading: Reading, source: str, gpu: PciGpu | None, index: int) -> Unit:
    total, used = reading.memory_bytes, reading.used_bytes
    free = (total - used) // MIB if total is not None and used is not None and total >= used else None
    return Unit(
        vendor="INTEL",
        index=index,
        uuid=f"intel-{reading.pci or reading.index}",
        source=source,
        product=reading.name,
        pci=reading.pci,
        memory_mib=total // MIB if total else None,
        memory_type="dedicated" if total else None,
        driver=reading.driver or (gpu.driver if gpu else None),
        numa=gpu.numa if gpu else None,
        live=replace(reading.live, memory_free_mib=free, memory_used_mib=used // MIB if used is not None else None),
    )


def parse_stats(text: str) -> Live:
    """Device figures of ``xpu-smi stats -d N -j``; consumer boards leave the utilisation out."""
    found: dict[str, object] = {}
    for document in documents(text):
        for item in mapping(document).get("device_level") or ():
            entry = mapping(item)
            found[str(entry.get("metrics_type"))] = entry.get("value", entry.get("avg"))
    used = number(found.get("XPUM_STATS_MEMORY_USED"))
    return Live(
        util_percent=percent(found.get("XPUM_STATS_GPU_UTILIZATION")),
        memory_used_mib=int(used) if used is not None and used >= 0 else None,
        temperature_celsius=celsius(found.get("XPUM_STATS_GPU_CORE_TEMPERATURE")),
        power_watts=watts(found.get("XPUM_STATS_POWER")),
        sm_clock_mhz=count(found.get("XPUM_STATS_GPU_FREQUENCY")),
    )
