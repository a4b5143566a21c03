"""nvidia-smi's answers: the CSV query, the listing, and what its failures mean.

CSV is the stable interface (XML tags moved, ``pmon`` columns changed). Messages go to stdout or stderr, exit codes
are hints: 14 comes with valid data, and 0 with none.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from flexinfer.core.hardware.findings import Live
from flexinfer.core.hardware.nvidia import MemoryNote, Part, Reading, throttle_reasons
from flexinfer.core.hardware.pci import address_of
from flexinfer.core.hardware.readings import celsius, count, integer, percent, watts, words

FIELDS: tuple[str, ...] = (
    "index", "uuid", "name", "pci.bus_id", "memory.total", "memory.used", "memory.free", "utilization.gpu",
    "temperature.gpu", "power.draw", "compute_cap", "driver_version", "mig.mode.current",
)  # fmt: skip
FURTHER_FIELDS: tuple[str, ...] = (
    "clocks.sm", "clocks_throttle_reasons.active", "clocks_event_reasons.active",
    "ecc.errors.uncorrected.volatile.total",
)  # fmt: skip
LIST_ARGS = ("-L",)

_BAD_FIELD = re.compile(r'Field "([^"]{1,80})" is not a valid field to query')
_LISTED = re.compile(r"^GPU\s+(\d{1,4}):\s*(.*?)\s*\(UUID:\s*([^)\s]{1,80})\s*\)?", re.IGNORECASE)
_LISTED_MIG = re.compile(r"^\s+MIG\s+(\S+)\s+Device\s+(\d{1,4}):\s*\(UUID:\s*([^)\s]{1,120})\s*\)?", re.IGNORECASE)
_LOST = re.compile(r"unable to determine the device handle|gpu is lost|fallen off the bus", re.IGNORECASE)
_RESET = re.compile(r"requires? (?:a )?reset|reset required", re.IGNORECASE)
_INFOROM = re.compile(r"infoROM is corrupted at gpu\s+(\S+)", re.IGNORECASE)

# (what the output says in lower case, exit code, reason): the text decides, the code helps where the text is new.
_FAILURES: tuple[tuple[tuple[str, ...], int, str], ...] = (
    (("version mismatch",), 18, "version-mismatch"),
    (("couldn't communicate with the nvidia driver", "driver is not loaded"), 9, "driver-not-loaded"),
    (("no devices were found", "no devices found"), 6, "no-devices"),
    (("unable to determine the device handle", "gpu is lost", "fallen off the bus"), 15, "gpu-lost"),
    (("failed to initialize nvml: unknown", "gpu access blocked"), 999, "nvml-unknown"),
    (("insufficient permissions", "permission denied"), 4, "no-permission"),
    (("nvml shared library", "couldn't find libnvidia-ml", "libnvidia-ml.so"), 12, "library-not-found"),
    (("function not found",), 13, "function-not-found"),
    (("power cable", "external power"), 8, "power-cable"),
)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a CSV query as field → text, and the lines that are no rows."""

    rows: tuple[dict[str, str], ...]
    other: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """One GPU of ``nvidia-smi -L`` with its MIG instances."""

    index: int
    name: str
    uuid: str
    parts: tuple[Part, ...] = ()


def query_args(fields: Sequence[str] = FIELDS, only: str | None = None) -> tuple[str, ...]:
    """Arguments of a CSV query, for one GPU if ``only`` names it."""
    args = (f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    return args if only is None else ("-i", only, *args)


def bad_fields(text: str) -> frozenset[str]:
    """Fields this version does not know; the query is repeated without them."""
    return frozenset(_BAD_FIELD.findall(text))


def parse_table(text: str, fields: Sequence[str]) -> Table:
    """Text of a CSV query. A line is a row if it has the fields asked for; a comma in a name is put back."""
    rows: list[dict[str, str]] = []
    other: list[str] = []
    spare_at = fields.index("name") if "name" in fields else None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        extra = len(cells) - len(fields)
        if extra > 0 and spare_at is not None:
            cells[spare_at : spare_at + extra + 1] = [", ".join(cells[spare_at : spare_at + extra + 1])]
        row = dict(zip(fields, cells, strict=False))
        if len(cells) == len(fields) and len(fields) > 1 and _is_row(row):
            rows.append(row)
        elif line.strip():
            other.append(line.strip())
    return Table(tuple(rows), tuple(other))


def _is_row(row: dict[str, str]) -> bool:
    if "index" in row:
        return integer(row["index"]) is not None
    return row.get("uuid", "").upper().startswith(("GPU-", "MIG-"))


def parse_listing(text: str) -> tuple[tuple[Listed, ...], tuple[str, ...]]:
    """Text of ``-L``: the GPUs it could open, and the lines that complain about others."""
    found: list[Listed] = []
    complaints: list[str] = []
    for line in text.splitlines():
        listed, part = _LISTED.match(line), _LISTED_MIG.match(line)
        if listed:
            found.append(Listed(int(listed.group(1)), listed.group(2), listed.group(3)))
        elif part and found:
            instance = Part(uuid=part.group(3), profile=part.group(1))
            found[-1] = replace(found[-1], parts=(*found[-1].parts, instance))
        elif line.strip():
            complaints.append(line.strip())
    return tuple(found), tuple(complaints)


def failure_of(text: str, code: int) -> tuple[str, str]:
    """(reason, first line of what it said) of an answer without any GPU."""
    line = next((words(part, 200) for part in text.splitlines() if words(part)), None) or ""
    lowered = text.lower()
    for phrases, _, reason in _FAILURES:
        if any(phrase in lowered for phrase in phrases):
            return reason, line
    for _, known, reason in _FAILURES:
        if code == known:
            return reason, line
    return (f"exit-{code}" if code else "no-output" if not line else "unreadable"), line


def reading_of(row: dict[str, str]) -> Reading:
    """One row as a reading; what is no number is unknown."""
    total = count(row.get("memory.total")) or None
    return Reading(
        index=integer(row.get("index")) or 0,
        uuid=_uuid(row.get("uuid")),
        name=words(row.get("name")),
        pci=address_of(row.get("pci.bus_id")),
        capability=row.get("compute_cap"),
        total_mib=total,
        memory_note=_memory_note(row.get("memory.total", ""), total),
        driver=words(row.get("driver_version")),
        mig=row.get("mig.mode.current", "").strip().lower() == "enabled",
        parts=None,
        condition=_condition(row),
        live=Live(
            util_percent=percent(row.get("utilization.gpu")),
            memory_used_mib=count(row.get("memory.used")),
            memory_free_mib=count(row.get("memory.free")),
            temperature_celsius=celsius(row.get("temperature.gpu")),
            power_watts=watts(row.get("power.draw")),
            sm_clock_mhz=count(row.get("clocks.sm")),
            throttle=throttle_reasons(_mask(row)),
            ecc_uncorrected=count(row.get("ecc.errors.uncorrected.volatile.total")),
        ),
    )


def _mask(row: dict[str, str]) -> int | None:
    """The bit mask of clock reasons, under its name before and since driver 535."""
    names = ("clocks_throttle_reasons.active", "clocks_event_reasons.active")
    return next((mask for name in names if (mask := integer(row.get(name), 16)) is not None), None)


def _uuid(text: str | None) -> str | None:
    """A UUID as the driver writes them; anything else would not be unique."""
    found = words(text)
    return found if found and re.fullmatch(r"(?:GPU|MIG)-[0-9A-Za-z/-]{4,100}", found) else None


def _memory_note(text: str, total: int | None) -> MemoryNote:
    if total is not None:
        return "known"
    lowered = text.lower()
    if "permission" in lowered:
        return "refused"
    # Only these two say that there is nothing to tell; errors say nothing about the memory.
    return "not-supported" if lowered.strip("[] ") in {"n/a", "not supported"} else "error"


def _condition(row: dict[str, str]) -> str:
    text = " ".join(row.values())
    if _RESET.search(text):
        return "reset-required"
    if _LOST.search(text):
        return "lost"
    live = ("memory.total", "memory.used", "utilization.gpu", "temperature.gpu")
    broken = [name for name in live if "unknown error" in row.get(name, "").lower()]
    return "unknown-error" if len(broken) == len(live) else ""


def with_parts(readings: Sequence[Reading], listed: Sequence[Listed]) -> list[Reading]:
    """The readings with their MIG instances; a listing that gave nothing leaves them unknown."""
    if not listed:
        return list(readings)
    parts = {entry.uuid: list(entry.parts) for entry in listed}
    return [replace(reading, parts=parts.get(reading.uuid or "", [])) for reading in readings]


def with_complaints(readings: Sequence[Reading], lines: Sequence[str]) -> list[Reading]:
    """The readings with what the lines between the rows say of them and of devices that are lost, by index."""
    corrupt = {address_of(match.group(1)) for line in lines for match in _INFOROM.finditer(line)} - {None}
    known = {reading.pci for reading in readings}
    found = [
        replace(reading, warnings=("inforom-corrupted",)) if reading.pci in corrupt else reading for reading in readings
    ]
    lost = _lost_readings(lines, {reading.index for reading in readings})
    found += [reading for reading in lost if reading.pci is None or reading.pci not in known]
    return sorted(found, key=lambda reading: reading.index)


def _lost_readings(lines: Sequence[str], taken: Collection[int]) -> list[Reading]:
    """A reading for each complaint about a lost device, under the lowest index nobody else has."""
    found: list[Reading] = []
    free = (index for index in range(len(taken) + len(lines) + 1) if index not in taken)
    seen: set[str | None] = set()
    for line in lines:
        place = address_of(line)
        if not _LOST.search(line) or place in seen:
            continue
        seen.add(place)
        found.append(Reading(index=next(free), pci=place, condition="lost"))
    return found
