"""From findings of all vendors to one account of the node: which units count, who represents it, how healthy it is.

The rules (numbered in comments): count what a workload can get; nearest GiB of the largest unit; the highest
architecture and the largest memory may come from different units; one vendor speaks for a mixed node; unknown is
absent, never zero.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from flexinfer.contracts.events import Cpu, Device, Health, Vendor
from flexinfer.core.hardware import cuda, gfx
from flexinfer.core.hardware.findings import Fault, Findings, Unit

VENDORS: tuple[Vendor, ...] = ("NVIDIA", "AMD", "INTEL")
SERVING_APU_MIB = 8 * 1024
_OK = Health()


@dataclass(frozen=True, slots=True)
class Inventory:
    """The node as it will be told: ``units`` and ``devices`` run in parallel.

    ``vendor`` is the one that labels and annotations describe (None: no accelerator counts here). ``lead`` gave the
    architecture, ``largest`` the memory. ``problems`` are sentences for people.
    """

    units: tuple[Unit, ...]
    devices: tuple[Device, ...]
    cpu: Cpu
    vendor: Vendor | None
    counted: tuple[Unit, ...]
    lead: Unit | None
    largest: Unit | None
    health: Health
    problems: tuple[str, ...] = ()


def rank(unit: Unit) -> tuple[int, int, int]:
    """Order of architectures within one vendor; (-1, ...) if unknown. Intel's names have none."""
    if unit.arch is None or unit.vendor == "INTEL":
        return -1, 0, 0
    if unit.vendor == "AMD":
        return gfx.order(unit.arch)
    return cuda.order(unit.arch), 0, 0


def int4(unit: Unit) -> bool | None:
    """Whether 4-bit weights run on the unit; None if its architecture is unknown."""
    if unit.vendor == "INTEL":
        return True  # XMX of every discrete Arc, Flex and Max lists INT4; integrated graphics do not count
    if unit.arch is None:
        return None
    return gfx.int4(unit.arch) if unit.vendor == "AMD" else cuda.int4(unit.arch)


def take(findings: Iterable[Findings], cpu: Cpu) -> Inventory:
    """Decide. ``findings`` holds at most one entry per vendor."""
    by_vendor = {found.vendor: found for found in findings}
    units = tuple(unit for vendor in VENDORS if vendor in by_vendor for unit in by_vendor[vendor].units)
    discrete = any(unit.usable for unit in units)
    counts = {unit.uuid: counts_here(unit, discrete_usable=discrete) for unit in units}
    vendor = _spokesman(by_vendor, units, counts)
    counted = tuple(unit for unit in units if unit.vendor == vendor and counts[unit.uuid])
    best = sorted(counted, key=_strength, reverse=True)
    return Inventory(
        units=units,
        devices=tuple(_device(unit, counted=counts[unit.uuid]) for unit in units),
        cpu=cpu,
        vendor=vendor,
        counted=counted,
        lead=best[0] if best else None,
        largest=max(best, key=lambda unit: unit.memory_mib or 0) if best else None,
        health=_node_health(by_vendor.get(vendor) if vendor else None, counted),
        problems=tuple(_problems(by_vendor.values())),
    )


def counts_here(unit: Unit, *, discrete_usable: bool) -> bool:
    """Rules D4 and D6: whole healthy devices and parts count; graphics inside a processor only if they are all there
    is, of a kind that serves, and with enough memory."""
    if unit.fault is not None or unit.role == "parent":
        return False
    if unit.role != "integrated":
        return True
    return (
        not discrete_usable
        and unit.vendor == "AMD"
        and unit.arch in gfx.SERVING
        and (unit.memory_mib or 0) >= SERVING_APU_MIB
    )


def _spokesman(by_vendor: dict[Vendor, Findings], units: Sequence[Unit], counts: dict[str, bool]) -> Vendor | None:
    """Rule D7: the vendor with the larger total memory among those with something to give, NVIDIA on a tie; if nobody
    has, the first whose hardware is there but broken."""
    totals: dict[Vendor, int] = {}
    for unit in units:
        if counts[unit.uuid]:
            totals[unit.vendor] = totals.get(unit.vendor, 0) + (unit.memory_mib or 0)
    if totals:
        return max(sorted(totals, key=VENDORS.index), key=lambda vendor: totals[vendor])
    return next((vendor for vendor in VENDORS if vendor in by_vendor and by_vendor[vendor].present), None)


def _strength(unit: Unit) -> tuple[tuple[int, int, int], int, tuple[int, ...]]:
    # The address is last and reversed, so that the answer does not flap with the order of enumeration.
    return rank(unit), unit.memory_mib or 0, tuple(-ord(char) for char in unit.pci or unit.uuid)


def _device(unit: Unit, *, counted: bool) -> Device:
    return Device(
        index=unit.index,
        uuid=unit.uuid,
        vendor=unit.vendor,
        product=unit.product,
        arch=unit.arch,
        pci=unit.pci,
        memory_mib=unit.memory_mib,
        memory_type=unit.memory_type,
        partition=unit.partition,
        int4=int4(unit),
        driver=unit.driver,
        numa=unit.numa,
        health=_unit_health(unit),
        counted=counted,
        source=unit.source,
    )


def _unit_health(unit: Unit) -> Health:
    if unit.fault:
        return Health(state=unit.fault.state, reasons=tuple(part for part in (_said(unit.fault),) if part))
    if unit.warnings:
        return Health(state="degraded", reasons=unit.warnings)
    return _OK


def _said(fault: Fault) -> str:
    return f"{fault.reason}: {fault.detail}" if fault.detail else fault.reason


def _node_health(found: Findings | None, counted: Sequence[Unit]) -> Health:
    """Health of the vendor that speaks for the node; passthrough devices were given away on purpose."""
    if found is None:
        return _OK
    reasons = [_said(found.fault)] if found.fault else []
    lost = [unit for unit in found.units if unit.fault and unit.fault.state != "passthrough"]
    warned = [unit for unit in found.units if unit.warnings]
    reasons += [f"{unit.pci or unit.uuid}: {_said(unit.fault)}" for unit in lost if unit.fault]
    reasons += [f"{unit.pci or unit.uuid}: {warning}" for unit in warned for warning in unit.warnings]
    state = "ok"
    if found.fault:
        state = found.fault.state
    elif not counted and any(unit.fault for unit in found.units):
        state = _worst({unit.fault.state for unit in found.units if unit.fault})
    elif lost or warned:
        state = "degraded"
    return Health(state=state, reasons=tuple(dict.fromkeys(reasons))[:32])


def _worst(states: Collection[str]) -> str:
    """State of a node with nothing left to give; "degraded" is for nodes that have."""
    if "timeout" in states:
        return "timeout"
    return "driver-error" if states != {"passthrough"} else "passthrough"


def _problems(findings: Iterable[Findings]) -> Iterable[str]:
    for found in findings:
        if found.fault:
            yield f"{found.vendor}: {_said(found.fault)}"
        for unit in found.units:
            where = f"{found.vendor} {unit.pci or unit.uuid}"
            if unit.fault:
                yield f"{where}: {_said(unit.fault)}"
            for warning in unit.warnings:
                yield f"{where}: {warning}"
