"""Simulated hours of an agent's ticks, with real child processes and files, watching memory and file descriptors.

    python tests/contract/agent/soak.py --hours 1

Each simulated second has the samples, telemetry, projection and notices of the default intervals; each 15 seconds
nvidia-smi is run, each 30 a whole probe of NVIDIA, AMD and Intel on a machine of fake tools and files.
"""

import argparse
import asyncio
import gc
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flexinfer.adapters.gpu.amd import AmdSource
from flexinfer.adapters.gpu.amdsmi import AmdSmi
from flexinfer.adapters.gpu.files import RootedFiles
from flexinfer.adapters.gpu.intel import IntelSource
from flexinfer.adapters.gpu.machine import Machine
from flexinfer.adapters.gpu.nvidia import NvidiaSource
from flexinfer.adapters.gpu.nvml import Nvml
from flexinfer.adapters.gpu.sysfs import Kernel
from flexinfer.adapters.gpu.tools import SubprocessTools
from flexinfer.contracts.envelope import Event, EventMint, encode_event
from flexinfer.core.hardware import notices
from flexinfer.core.hardware.engine_pods import EnginePod
from flexinfer.core.hardware.findings import with_live
from flexinfer.ports import Relisted
from flexinfer.runtime.agent.board import Board, Station
from flexinfer.runtime.agent.engines import EngineWatch
from flexinfer.runtime.agent.noticing import Noticer
from flexinfer.runtime.agent.probing import Prober
from flexinfer.runtime.agent.projecting import Projector
from flexinfer.runtime.agent.telling import Teller
from flexinfer.runtime.tasks import Supervisor

SAMPLE, TELEMETRY, TOOL, PROBE = 0.5, 2.0, 15.0, 30.0

SMI = """#!/bin/sh
case "$*" in
  *clocks.sm*) echo "GPU-0000000$1, 2520, 0x4, 0";;
  *) printf '0, GPU-00000001, NVIDIA GeForce RTX 4090, 00000000:17:00.0, 24564, %s, 20000, ' $$
     echo '37, 52, 118.44, 8.9, 575.57.08, [N/A]';;
esac
"""
FILES = {
    "/sys/bus/pci/devices/0000:17:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:17:00.0/device": "0x2684\n",
    "/sys/bus/pci/devices/0000:17:00.0/class": "0x030000\n",
    "/sys/bus/pci/devices/0000:03:00.0/vendor": "0x1002\n",
    "/sys/bus/pci/devices/0000:03:00.0/device": "0x744c\n",
    "/sys/bus/pci/devices/0000:03:00.0/class": "0x030000\n",
    "/sys/class/drm/card0/device/vendor": "0x1002\n",
    "/sys/class/drm/card0/device/uevent": "PCI_SLOT_NAME=0000:03:00.0\n",
    "/sys/class/drm/card0/device/mem_info_vram_total": "25753026560\n",
    "/sys/class/drm/card0/device/mem_info_vram_used": "1073741824\n",
    "/sys/class/drm/card0/device/gpu_busy_percent": "42\n",
    "/proc/stat": "cpu  100 0 50 800 50 0 0 0 0 0\n",
    "/proc/meminfo": "MemTotal: 64000000 kB\nMemAvailable: 32000000 kB\n",
    "/proc/cpuinfo": "processor\t: 0\nflags\t\t: avx2\n",
}


@dataclass(slots=True)
class Reading:
    """State of the process at one simulated moment."""

    second: int
    resident_kib: int
    objects: int
    descriptors: int


class Hands:
    """A clock moved by the soak."""

    at = 0.0

    def now(self) -> float:
        return 1.7e9 + self.at

    def monotonic(self) -> float:
        return self.at


class Wire:
    """A bus that encodes and forgets."""

    connected = True
    events = 0

    async def publish(self, event: Event, *, durable: bool = False) -> None:
        encode_event(event)
        self.events += 1


class Api:
    """A Node that takes patches."""

    patches = 0

    def __init__(self) -> None:
        self.node: dict[str, Any] = {"metadata": {"name": "n1", "labels": {}, "annotations": {}}}

    async def patch(self, _resource: Any, _name: str, body: Any, **_: Any) -> dict[str, Any]:
        self.patches += 1
        meta = {"name": "n1"}
        for part in ("labels", "annotations"):
            merged = {**self.node["metadata"][part], **body["metadata"].get(part, {})}
            meta[part] = {key: value for key, value in merged.items() if value is not None}
        self.node = {"metadata": meta}
        return self.node


def machine_in(folder: Path) -> tuple[Path, Path]:
    """Fake tools and files; returns (bin directory, root directory)."""
    tools, root = folder / "bin", folder / "root"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(SMI)
    (tools / "nvidia-smi").chmod(0o755)
    for path, text in FILES.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    driver = root / "sys/bus/pci/devices/0000:03:00.0/driver"
    driver.symlink_to("../../../../bus/pci/drivers/amdgpu")
    return tools, root


class Soak:
    """One agent on one made-up machine, ticked by hand."""

    def __init__(self, folder: Path) -> None:
        bin_dir, root = machine_in(folder)
        self.clock, self.wire, self.api, self.root = Hands(), Wire(), Api(), root
        files = RootedFiles(root)
        self.machine = Machine(files)
        tools = SubprocessTools({"PATH": f"{bin_dir}:/usr/bin:/bin"})
        kernel = Kernel(files, "/host")
        self.sources = (
            NvidiaSource(tools, kernel, Nvml(load=_absent), self.clock, self.machine.memory, direct_paths=False),
            AmdSource(tools, kernel, AmdSmi(load=_absent), self.clock, self.machine.memory, direct_paths=False),
            IntelSource(tools, kernel, self.clock),
        )
        self.board = Board(Station("n1", "flexinfer.ai/", "0", PROBE, TELEMETRY), self.machine.cpu())
        self.prober = Prober(self.board, self.sources, self.clock)
        mint = EventMint.start("agent", "n1", "boot", self.clock.now)
        self.teller = Teller(self.board, mint, self.wire, self.clock)
        self.projector = Projector(self.board, self.api, self.clock)
        pod = EnginePod("u", "ns", "p", "http://127.0.0.1:1", "vllm", "m")
        self.engines = EngineWatch(self.board, self._page, self.clock, lambda: {"u": pod})
        self.noticer = Noticer(self.teller, [self._look])

    async def _page(self, _url: str) -> bytes:
        used = self.clock.at % 100 / 100
        return f"vllm:kv_cache_usage_perc {used}\nvllm:generation_tokens_total {self.clock.at * 50}\n".encode()

    async def _look(self) -> Any:
        return notices.from_file(RootedFiles(self.root).read("/run/flexinfer/drain"))

    async def run(self, seconds: int, every: int) -> list[Reading]:
        """Tick for so many simulated seconds; a reading each ``every``."""
        tasks = Supervisor("soak")
        self.projector.take(Relisted(plural="nodes", objects=(self.api.node,)))
        readings = []
        for second in range(seconds):
            await self._second(second, tasks)
            if second % every == every - 1:
                readings.append(_reading(second + 1))
        await tasks.close()
        return readings

    async def _second(self, second: int, tasks: Supervisor) -> None:
        if second % PROBE == 0:
            await self.prober.once(tasks)
        for source in self.sources:
            fast = source.period == 0.0
            for _ in range(round(1 / SAMPLE) if fast else int(source.period is not None and second % TOOL == 7)):
                live = await source.sample()
                if live is not None:
                    self.board.findings[source.vendor] = with_live(self.board.findings[source.vendor], live)
        if second % TELEMETRY == 0:
            await self.engines.step()
        for _ in range(round(1 / SAMPLE)):
            await self.teller.offer(self.teller.reading(self.machine.busy(), self.machine.memory()))
            self.clock.at += SAMPLE
        await self.projector.step()
        await self.noticer.step()


def _absent() -> Any:
    raise ModuleNotFoundError("no binding here")


def _reading(second: int) -> Reading:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return Reading(second, pages * os.sysconf("SC_PAGE_SIZE") // 1024, len(gc.get_objects()), descriptors)


def main() -> int:
    """Print the readings; 1 if memory or descriptors grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    seconds = round(parser.parse_args().hours * 3600)
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder))
        readings = asyncio.run(soak.run(seconds, max(1, seconds // 12)))
    for reading in readings:
        sys.stdout.write(
            f"{reading.second:>6} s  {reading.resident_kib:>7} KiB  {reading.objects:>7} objects  "
            f"{reading.descriptors:>3} descriptors\n"
        )
    sys.stdout.write(f"{soak.wire.events} events, {soak.api.patches} patches of the Node\n")
    first, last = readings[1], readings[-1]
    grown = last.resident_kib - first.resident_kib > 2048 or last.descriptors > first.descriptors
    return int(grown or last.objects > first.objects + 500)


if __name__ == "__main__":
    sys.exit(main())
