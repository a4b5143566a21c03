"""The machine around the accelerators: processor, memory, and how busy they are, from /proc."""

import re
from dataclasses import dataclass

from flexinfer.contracts.events import Cpu
from flexinfer.core.hardware.readings import count, words

_FLAGS = re.compile(r"^(?:flags|Features)[ \t]*:(.*)$", re.MULTILINE)
_PROCESSOR = re.compile(r"^processor[ \t]*:", re.MULTILINE)
_MODEL = re.compile(r"^(?:model name|Model|cpu model)[ \t]*:[ \t]*(.+)$", re.MULTILINE)
_MEMINFO = re.compile(r"^(\w+):\s+([0-9]{1,15}) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Memory:
    """System memory in MiB: all of it, and what can be had without swapping. None is unknown."""

    total_mib: int | None = None
    available_mib: int | None = None


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Ticks since boot of all processors together, from the first line of /proc/stat."""

    busy: int
    total: int


def parse_meminfo(text: str) -> Memory:
    """Text of /proc/meminfo; a kernel without MemAvailable (before 3.14) gives MemFree, a lower bound."""
    found = {name: int(kib) // 1024 for name, kib in _MEMINFO.findall(text)}
    return Memory(found.get("MemTotal"), found.get("MemAvailable", found.get("MemFree")))


def parse_cpuinfo(text: str, memory: Memory) -> Cpu:
    """Text of /proc/cpuinfo. ``avx512`` only if every processor has the token ``avx512f`` (hybrid parts differ)."""
    flags = [line.split() for line in _FLAGS.findall(text)]
    model = _MODEL.search(text)
    return Cpu(
        model=words(model.group(1)) if model else None,
        threads=len(_PROCESSOR.findall(text)) or None,
        memory_mib=memory.total_mib,
        avx512=bool(flags) and all("avx512f" in each for each in flags),
    )


def parse_stat(text: str) -> CpuTimes | None:
    """Text of /proc/stat; time waiting for I/O counts as idle. None if there is no ``cpu`` line."""
    line = text.partition("\n")[0].split()
    if not line or line[0] != "cpu":
        return None
    ticks = [count(field) or 0 for field in line[1:9]]  # guest time is in user time already
    if len(ticks) < 4:
        return None
    total = sum(ticks)
    return CpuTimes(total - ticks[3] - (ticks[4] if len(ticks) > 4 else 0), total)


def utilisation(before: CpuTimes | None, after: CpuTimes | None) -> float | None:
    """Percent busy between two readings, or None without two different ones."""
    if before is None or after is None or after.total <= before.total:
        return None
    return round(min(100.0, max(0.0, 100 * (after.busy - before.busy) / (after.total - before.total))), 2)
