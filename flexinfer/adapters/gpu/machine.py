"""Processor and memory of this machine, read from /proc."""

from dataclasses import dataclass

from flexinfer.contracts.events import Cpu
from flexinfer.core.hardware.machine import (
    CpuTimes,
    Memory,
    parse_cpuinfo,
    parse_meminfo,
    parse_stat,
    utilisation,
)
from flexinfer.core.hardware.readings import text_of
from flexinfer.ports import HostFiles

STAT_BYTES = 512  # the first line of /proc/stat; the rest grows with processors and interrupts


@dataclass(slots=True)
class Machine:
    """Reads /proc; remembers the ticks of the last reading."""

    files: HostFiles
    _ticks: CpuTimes | None = None

    def memory(self) -> Memory:
        """Total and available memory now."""
        return parse_meminfo(text_of(self.files.read("/proc/meminfo", 4096)))

    def cpu(self) -> Cpu:
        """What does not change while the machine runs."""
        return parse_cpuinfo(text_of(self.files.read("/proc/cpuinfo", 1 << 23)), self.memory())

    def busy(self) -> float | None:
        """Percent of all processors since the last call; None on the first."""
        ticks = parse_stat(text_of(self.files.read("/proc/stat", STAT_BYTES)))
        before, self._ticks = self._ticks, ticks
        return utilisation(before, ticks)
