"""NVIDIA devices as units, whoever described them: NVML, nvidia-smi or a Jetson's device tree."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from flexinfer.contracts.events import Partition
from flexinfer.core.hardware import cuda
from flexinfer.core.hardware.findings import NO_FIGURES, Fault, Live, Unit
from flexinfer.core.hardware.machine import Memory
from flexinfer.core.hardware.pci import PciGpu, fault_of

MemoryNote = Literal["known", "not-supported", "refused", "error"]

_VGPU = re.compile(r"[A-Za-z0-9]-(?:\d{1,3}-)?\d{1,4}(?:[ABCQ]|CME|QE)$")
_PROFILE = re.compile(r"(\d+)g\.(\d+)gb", re.IGNORECASE)
_THROTTLE = {
    0x4: "sw-power-cap",
    0x8: "hw-slowdown",
    0x10: "sync-boost",
    0x20: "sw-thermal",
    0x40: "hw-thermal",
    0x80: "hw-power-brake",
}
# Errors of the application, not of the device: NVIDIA's device plugin and DRA driver leave them out too.
HARMLESS_XIDS = frozenset({13, 31, 43, 45, 68, 109})


@dataclass(slots=True, kw_only=True)
class Part:
    """One MIG instance; memory is exact from NVML, None otherwise."""

    uuid: str
    profile: str
    total_mib: int | None = None
    live: Live = NO_FIGURES


@dataclass(slots=True, kw_only=True)
class Reading:
    """One device as a source described it. ``capability`` is ``8.9``; ``condition`` is why it cannot be used."""

    index: int
    uuid: str | None = None
    name: str | None = None
    pci: str | None = None
    capability: str | None = None
    total_mib: int | None = None
    memory_note: MemoryNote = "known"
    driver: str | None = None
    mig: bool = False
    parts: list[Part] | None = field(default_factory=list)  # None: the listing failed
    condition: str = ""
    warnings: tuple[str, ...] = ()
    live: Live = NO_FIGURES


@dataclass(frozen=True, slots=True)
class Jetson:
    """A Tegra board by its device tree; ``load`` is its GPU's utilisation in percent."""

    model: str
    arch: str | None
    load: float | None = None


def throttle_reasons(mask: int | None) -> tuple[str, ...] | None:
    """What holds the clocks down, of NVML's bit mask; idling and application clocks are no throttling."""
    return None if mask is None else tuple(name for bit, name in _THROTTLE.items() if mask & bit)


def is_vgpu(name: str | None) -> bool:
    """``H100L-2-24C``, ``GRID T4-16Q``: profiles of NVIDIA vGPU end in framebuffer size and series."""
    return bool(name and (_VGPU.search(name) or name.startswith("GRID ")))


def profile_mib(profile: str) -> int | None:
    """Nominal memory of ``3g.20gb``."""
    match = _PROFILE.search(profile)
    return int(match.group(2)) * 1024 if match and len(match.group(2)) < 5 else None


def units(
    readings: Sequence[Reading], source: str, memory: Memory, gpus: Sequence[PciGpu], jetson: Jetson | None = None
) -> tuple[Unit, ...]:
    """Every reading as a unit, MIG instances after their parent, then plugged-in devices that nobody listed."""
    found: list[Unit] = []
    lost_at = _unlisted([reading.pci for reading in readings], gpus)
    for reading in readings:
        # One broken device without an address and one unlisted address belong together.
        nameless = reading.pci is None and reading.condition and len(lost_at) == 1
        placed = replace(reading, pci=lost_at[0].address) if nameless else reading
        found.extend(_units_of(placed, source, memory, jetson))
    known = [unit.pci for unit in found]
    next_index = max((unit.index for unit in found), default=-1) + 1
    # A device without an address (Jetson, WSL2) could be any of the plugged-in ones.
    if all(known):
        for offset, gpu in enumerate(_unlisted(known, gpus)):
            fault = fault_of(gpu) or Fault("degraded", "not-listed", "the driver does not list it")
            found.append(absent_unit(gpu, next_index + offset, fault))
    numa = {gpu.address: gpu.numa for gpu in gpus}
    return tuple(_placed(unit, numa) for unit in found)


def _placed(unit: Unit, numa: dict[str, int | None]) -> Unit:
    return replace(unit, numa=numa.get(unit.pci or "")) if unit.numa is None else unit


def _unlisted(known: Sequence[str | None], gpus: Sequence[PciGpu]) -> list[PciGpu]:
    return [gpu for gpu in gpus if gpu.vendor == "NVIDIA" and gpu.address not in known]


def absent_unit(gpu: PciGpu, index: int, fault: Fault) -> Unit:
    """A plugged-in device that no source could describe."""
    return Unit(
        vendor=gpu.vendor, index=index, uuid=f"pci-{gpu.address}", source="pci", pci=gpu.address, driver=gpu.driver,
        numa=gpu.numa, fault=fault,
    )  # fmt: skip


def _units_of(reading: Reading, source: str, memory: Memory, jetson: Jetson | None) -> list[Unit]:
    arch = cuda.sm(reading.capability) or (jetson.arch if jetson else None)
    vgpu = is_vgpu(reading.name)
    uuid = reading.uuid or (f"pci-{reading.pci}" if reading.pci else f"nvidia-{reading.index}")
    parent = reading.mig and not vgpu
    total, live, unified = reading.total_mib, reading.live, False
    if not parent and reading.memory_note == "not-supported" and (jetson or cuda.is_unified(arch, reading.name)):
        total, live, unified = memory.total_mib, _shared_memory(live, memory), True
    if jetson and live.util_percent is None:
        live = replace(live, util_percent=jetson.load)
    warnings = reading.warnings
    if parent and reading.parts is None:
        warnings = (*warnings, "mig-listing-failed")
    whole = Unit(
        vendor="NVIDIA",
        index=reading.index,
        uuid=uuid,
        source=source,
        role="parent" if parent else "whole",
        product=reading.name,
        arch=arch,
        pci=reading.pci,
        memory_mib=total,
        memory_type="unified" if unified else "dedicated" if total is not None else None,
        partition=Partition(kind="vgpu", profile=(reading.name or "").split()[-1]) if vgpu else None,
        driver=reading.driver,
        fault=Fault("degraded", reading.condition) if reading.condition else None,
        warnings=warnings,
        live=live,
    )
    if not parent or reading.condition:
        return [whole]
    return [whole, *(_part(whole, part) for part in reading.parts or ())]


def _part(parent: Unit, part: Part) -> Unit:
    return Unit(
        vendor="NVIDIA",
        index=parent.index,
        uuid=part.uuid,
        source=parent.source,
        role="part",
        product=parent.product,
        arch=parent.arch,
        pci=parent.pci,
        memory_mib=part.total_mib if part.total_mib is not None else profile_mib(part.profile),
        memory_type="dedicated",
        partition=Partition(kind="mig", profile=part.profile, parent=parent.uuid),
        driver=parent.driver,
        live=part.live,
    )


def _shared_memory(live: Live, memory: Memory) -> Live:
    """Free unified memory is what the system could still give: an upper bound."""
    total, free = memory.total_mib, memory.available_mib
    used = total - free if total is not None and free is not None and total >= free else None
    return replace(live, memory_free_mib=free, memory_used_mib=used)


def jetson_unit(jetson: Jetson, memory: Memory, driver: str | None) -> Unit:
    """A board whose GPU no tool describes (JetPack 5 and older ship no nvidia-smi for it)."""
    live = _shared_memory(Live(util_percent=jetson.load), memory)
    return Unit(
        vendor="NVIDIA", index=0, uuid="tegra-gpu-0", source="device-tree", product=jetson.model, arch=jetson.arch,
        memory_mib=memory.total_mib, memory_type="unified" if memory.total_mib else None, driver=driver, live=live,
    )  # fmt: skip
