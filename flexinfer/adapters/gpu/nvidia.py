"""NVIDIA hardware: NVML, then nvidia-smi here and in the host's roots, then the device tree of a Jetson.

A chroot is tried after any direct attempt without a GPU, not only when the tool is missing: a stale copy in the image
fails where the host's own works.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flexinfer.adapters.gpu.asking import Asking, Root
from flexinfer.adapters.gpu.nvidia_tool import NvidiaTool
from flexinfer.adapters.gpu.nvml import Nvml
from flexinfer.adapters.gpu.sysfs import Kernel
from flexinfer.contracts.events import Vendor
from flexinfer.core.hardware import nvidia, outcome
from flexinfer.core.hardware.findings import Attempt, Findings, Live
from flexinfer.core.hardware.machine import Memory
from flexinfer.core.hardware.nvidia import Jetson, Reading
from flexinfer.core.hardware.pci import PciGpu
from flexinfer.ports import Clock, Tools

PATHS = ("/usr/local/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/run/current-system/sw/bin/nvidia-smi")
HOST_FILES = ("/usr/bin/nvidia-smi", *PATHS, "/run/nvidia/driver/usr/bin/nvidia-smi")
TOOL_PERIOD = 15.0


@dataclass(slots=True)
class NvidiaSource:
    """ports.HardwareSource for NVIDIA."""

    tools: Tools
    kernel: Kernel
    nvml: Nvml
    clock: Clock
    memory: Callable[[], Memory]
    direct_paths: bool = True
    vendor: Vendor = "NVIDIA"
    _way: NvidiaTool | None = None
    _by_library: bool = False
    _found: bool = field(default=False)
    _tegra: bool = field(default=False)

    @property
    def period(self) -> float | None:
        """Libraries at will, the tool at most every 15 seconds."""
        if not self._found:
            return None
        return 0.0 if self._by_library else TOOL_PERIOD

    async def find(self) -> Findings:
        """See ports.HardwareSource."""
        gpus = tuple(gpu for gpu in self.kernel.gpus() if gpu.vendor == "NVIDIA")
        jetson = self.kernel.jetson()
        self._tegra = jetson is not None
        asking = Asking(self.tools, self.clock)
        memory = self.memory()
        self._by_library = False
        readings = await self._library(asking)
        source = "nvml"
        if not _any_usable(readings):
            worth = bool(gpus) or bool(jetson) or self.kernel.blind or self._on_host()
            from_tool, tool_source = await self._tool(asking, worth=worth)
            if from_tool:
                readings, source = from_tool, tool_source
        self._by_library = source == "nvml" and bool(readings)
        found = self._findings(readings, source, asking.attempts, gpus, memory, jetson)
        self._found = any(unit.usable for unit in found.units)
        return found

    def _findings(
        self,
        readings: Sequence[Reading],
        source: str,
        attempts: Sequence[Attempt],
        gpus: Sequence[PciGpu],
        memory: Memory,
        jetson: Jetson | None,
    ) -> Findings:
        if not readings and jetson:
            seen = Attempt("device-tree", "ok", detail=jetson.model)
            return Findings("NVIDIA", (nvidia.jetson_unit(jetson, memory, None),), (*attempts, seen))
        if readings:
            return Findings("NVIDIA", nvidia.units(readings, source, memory, gpus, jetson), tuple(attempts))
        return outcome.unspoken("NVIDIA", gpus, attempts)

    async def _library(self, asking: Asking) -> Sequence[Reading]:
        began = self.clock.monotonic()
        readings, attempt = await self.nvml.read()
        asking.note(replace(attempt, seconds=self.clock.monotonic() - began))
        return readings

    async def _tool(self, asking: Asking, *, worth: bool) -> tuple[Sequence[Reading], str]:
        """The tool that worked last time, or the first root whose nvidia-smi lists a usable device; else the first
        that listed any. ``worth``: whether roots other than ours are tried."""
        fallback: tuple[Sequence[Reading], str] = ((), "")
        last, self._way = self._way, None
        if last is not None:
            readings, _ = await self._describe(asking, last)
            if _any_usable(readings) or asking.spent():
                return readings, last.source
        for root in self._roots() if worth else self._roots()[:1]:
            for program in ("nvidia-smi", *root.paths):
                if last is not None and (root, program) == (last.root, last.program):
                    continue
                tool = NvidiaTool(root, program, self.clock)
                readings, attempt = await self._describe(asking, tool)
                if _any_usable(readings):
                    return readings, tool.source
                if readings and not fallback[0]:
                    fallback = readings, tool.source
                if asking.spent():
                    return fallback
                if attempt.reason == "no-root" or attempt.outcome != "absent":
                    break  # it ran, or nothing can run here: other paths in this root would say the same
        return fallback

    async def _describe(self, asking: Asking, tool: NvidiaTool) -> tuple[Sequence[Reading], Attempt]:
        readings, attempt = await tool.describe(asking)
        asking.note(attempt)
        if _any_usable(readings):
            self._way = tool
        return readings, attempt

    def _roots(self) -> tuple[Root, ...]:
        host = self.kernel.host_root.rstrip("/")
        here = tuple(path for path in PATHS if self.direct_paths and self.kernel.files.read(path, 1) is not None)
        if not host:
            return (Root((), here),)
        return Root((), here), Root(("chroot", host), PATHS), Root(("chroot", f"{host}/run/nvidia/driver"), PATHS[:1])

    def _on_host(self) -> bool:
        host = self.kernel.host_root.rstrip("/")
        return bool(host) and any(self.kernel.files.read(host + path, 1) is not None for path in HOST_FILES)

    async def sample(self) -> Mapping[str, Live] | None:
        """See ports.HardwareSource."""
        readings: Sequence[Reading] = ()
        source = "nvml"
        if self._by_library:
            readings, _ = await self.nvml.read(live_only=True)
        elif self._way is not None:
            readings, source = await self._way.figures(Asking(self.tools, self.clock)), self._way.source
        if not readings and not self._tegra:
            return None
        jetson = self.kernel.jetson() if self._tegra else None
        if not readings and jetson:
            board = nvidia.jetson_unit(jetson, self.memory(), None)
            return {board.uuid: board.live}
        units = nvidia.units(readings, source, self.memory(), (), jetson)
        return {unit.uuid: unit.live for unit in units}


def _any_usable(readings: Sequence[Reading]) -> bool:
    return any(not reading.condition for reading in readings)
