"""NVML's answers and error names as readings."""

import re
from dataclasses import dataclass, replace
from typing import Any

from flexinfer.core.hardware.findings import Live
from flexinfer.core.hardware.nvidia import HARMLESS_XIDS, MemoryNote, Part, Reading
from flexinfer.core.hardware.readings import MIB, celsius, count, mib_of_bytes, percent, text_of, watts, words

_REASONS = {
    "DriverNotLoaded": "driver-not-loaded",
    "LibRmVersionMismatch": "version-mismatch",
    "GpuIsLost": "gpu-lost",
    "Unknown": "nvml-unknown",
    "NoPermission": "no-permission",
    "LibraryNotFound": "library-not-found",
    "OperatingSystem": "operating-system",
    "FunctionNotFound": "function-not-found",
}
_PROFILE = re.compile(r"MIG\s+(\S+)\s*$")


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call returned, or the short name of its error."""

    value: Any = None
    error: str = ""


def error_name(class_name: str) -> str:
    """``GpuIsLost`` of ``NVMLError_GpuIsLost``; ``Error`` of an unknown code."""
    return class_name.removeprefix("NVMLError_").removeprefix("NVML") or "Error"


def reason(error: str) -> str:
    """Short code of an error name."""
    return _REASONS.get(error) or re.sub(r"(?<=[a-z])(?=[A-Z])", "-", error).lower()


def condition(error: str) -> str:
    """Why one device whose handle could not be had cannot be used."""
    return {"GpuIsLost": "lost", "ResetRequired": "reset-required"}.get(error) or reason(error)


def text(value: Any) -> str | None:
    """A string of the binding; old ones return bytes."""
    return words(text_of(value)) if isinstance(value, bytes | str) else None


def whole(value: Any) -> int | None:
    """A non-negative integer, or None."""
    return count(value)


def capability(value: Any) -> str | None:
    """``(8, 9)`` as ``8.9``."""
    if isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(item, int) for item in value):
        return f"{value[0]}.{value[1]}"
    return None


def live(  # noqa: PLR0913 - the figures of one device
    *,
    util: Any = None,
    memory: Any = None,
    temperature: Any = None,
    milliwatts: Any = None,
    clock: Any = None,
    throttle: tuple[str, ...] | None = None,
    ecc: int | None = None,
    xid: int | None = None,
) -> Live:
    """Raw values as figures; ``memory`` has ``used`` and ``free`` in bytes."""
    power = count(milliwatts)
    return Live(
        util_percent=percent(util),
        memory_used_mib=mib_of_bytes(getattr(memory, "used", None)),
        memory_free_mib=mib_of_bytes(getattr(memory, "free", None)),
        temperature_celsius=celsius(temperature),
        power_watts=watts(power / 1000 if power is not None else None),
        sm_clock_mhz=count(clock),
        throttle=throttle,
        ecc_uncorrected=ecc,
        xid_last=xid,
    )


def _note(memory: Answer) -> MemoryNote:
    if memory.error == "NotSupported":
        return "not-supported"
    if memory.error == "NoPermission":
        return "refused"
    return "error" if memory.error else "known"


def complete(facts: Reading, memory: Answer, figures: Live, parts: list[Part] | None) -> Reading:
    """Facts and figures of one device together."""
    total = count(getattr(memory.value, "total", None))
    broken = memory.error in {"GpuIsLost", "ResetRequired"}
    warnings = (f"xid-{figures.xid_last}",) if figures.xid_last and figures.xid_last not in HARMLESS_XIDS else ()
    return replace(
        facts,
        total_mib=total // MIB if total else None,
        memory_note=_note(memory) if total is None else "known",
        parts=parts,
        condition=condition(memory.error) if broken else facts.condition,
        warnings=warnings,
        live=figures,
    )


def part(uuid: str, name: str, memory: Any) -> Part:
    """One MIG instance; its profile stands at the end of its name."""
    match = _PROFILE.search(name)
    total = count(getattr(memory, "total", None))
    figures = Live(
        memory_used_mib=mib_of_bytes(getattr(memory, "used", None)),
        memory_free_mib=mib_of_bytes(getattr(memory, "free", None)),
    )
    return Part(
        uuid=uuid, profile=match.group(1) if match else "", total_mib=total // MIB if total else None, live=figures
    )
