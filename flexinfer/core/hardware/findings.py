"""What one probe of one vendor's hardware found, before any decision: units, and what was tried to find them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from flexinfer.contracts.events import MemoryType, Partition, Vendor

Role = Literal["whole", "part", "parent", "integrated"]
Outcome = Literal["ok", "nothing", "failed", "timeout", "absent", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Figures of one unit at one moment; None is "not available", zero is a measurement."""

    util_percent: float | None = None
    memory_used_mib: int | None = None
    memory_free_mib: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    sm_clock_mhz: int | None = None
    throttle: tuple[str, ...] | None = None
    ecc_uncorrected: int | None = None
    xid_last: int | None = None


NO_FIGURES = Live()


@dataclass(frozen=True, slots=True)
class Fault:
    """Why no workload can have a unit. ``state`` is a health state, ``reason`` a short code, ``detail`` a sentence."""

    state: Literal["degraded", "driver-error", "timeout", "passthrough"]
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One accelerator, or one partition of one.

    ``role``: a whole device, a schedulable part, the parent of parts, or graphics inside a processor. ``pool`` names
    memory that several units share and ``pool_free_mib`` what is free in it. ``warnings`` are faults that leave the
    unit usable.
    """

    vendor: Vendor
    index: int
    uuid: str
    source: str
    role: Role = "whole"
    product: str | None = None
    arch: str | None = None
    pci: str | None = None
    memory_mib: int | None = None
    memory_type: MemoryType | None = None
    partition: Partition | None = None
    driver: str | None = None
    numa: int | None = None
    fault: Fault | None = None
    warnings: tuple[str, ...] = ()
    pool: str | None = None
    pool_free_mib: int | None = None
    live: Live = NO_FIGURES

    @property
    def usable(self) -> bool:
        """Whether it could be given to a workload, integrated graphics aside."""
        return self.fault is None and self.role in {"whole", "part"}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One source asked once. ``reason`` is a short code for metrics, ``detail`` one line for people."""

    source: str
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Findings:
    """One vendor's probe. ``fault`` is set when hardware is there and no source could speak for it."""

    vendor: Vendor
    units: tuple[Unit, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    fault: Fault | None = None

    @property
    def present(self) -> bool:
        """Whether there is hardware that counts as this vendor's, working or not."""
        return self.fault is not None or any(unit.role != "integrated" for unit in self.units)


def tidied(findings: Findings) -> Findings:
    """The same without repeats: one unit per uuid (the first), and no memory of size zero, which is unknown."""
    units: dict[str, Unit] = {}
    for unit in findings.units:
        units.setdefault(unit.uuid, unit if unit.memory_mib != 0 else replace(unit, memory_mib=None, memory_type=None))
    return replace(findings, units=tuple(units.values()))


def with_live(findings: Findings, live: Mapping[str, Live]) -> Findings:
    """The same units with newer figures; a unit without any loses its old ones."""
    return replace(
        findings, units=tuple(replace(unit, live=live.get(unit.uuid, NO_FIGURES)) for unit in findings.units)
    )
