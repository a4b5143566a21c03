"""AMD hardware: amdsmi, then rocm-smi with rocminfo or amd-smi here and in the host's root, then sysfs and KFD.

The tools are Python programs that cost half a second of processor each. They are asked when the kernel's own account
of the devices has changed, and every ten minutes; in between sysfs gives the figures, or one call of the tool if
sysfs has none.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flexinfer.adapters.gpu.amd_tools import AmdTool, ask_rocminfo
from flexinfer.adapters.gpu.amdsmi import AmdSmi
from flexinfer.adapters.gpu.asking import Asking, Root
from flexinfer.adapters.gpu.sysfs import Kernel
from flexinfer.contracts.events import Vendor
from flexinfer.core.hardware import amd, outcome
from flexinfer.core.hardware.amd import Agent, Evidence, Reading
from flexinfer.core.hardware.findings import Attempt, Findings, Live
from flexinfer.core.hardware.machine import Memory
from flexinfer.ports import Clock, Tools

ROCM_BIN = "/opt/rocm/bin"
TOOL_PERIOD = 15.0
ASK_AGAIN_SECONDS = 600.0


@dataclass(slots=True)
class AmdSource:
    """ports.HardwareSource for AMD."""

    tools: Tools
    kernel: Kernel
    library: AmdSmi
    clock: Clock
    memory: Callable[[], Memory]
    direct_paths: bool = True
    vendor: Vendor = "AMD"
    _readings: Sequence[Reading] = ()
    _source: str = ""
    _agents: tuple[Agent, ...] = ()
    _directories: dict[str, str] = field(default_factory=dict)
    _evidence: Evidence = field(default_factory=Evidence)
    _seen: object = None
    _asked_at: float = float("-inf")
    _last: Findings = field(default_factory=lambda: Findings("AMD"))
    _way: AmdTool | None = None

    @property
    def period(self) -> float | None:
        """The library and sysfs at will, tools at most every 15 seconds."""
        if not any(unit.usable or unit.role == "integrated" for unit in self._last.units):
            return None
        return TOOL_PERIOD if self._by_tool else 0.0

    @property
    def _by_tool(self) -> bool:
        """Whether only a tool has figures: sysfs lacks them for some device."""
        if self._source in {"", "amdsmi", "sysfs"}:
            return False
        readable = {card.pci for card in self._evidence.cards if card.vram_used_bytes is not None}
        return not all(unit.pci in readable for unit in self._last.units if unit.fault is None)

    async def find(self) -> Findings:
        """See ports.HardwareSource."""
        evidence = self._look()
        seen = _fingerprint(evidence)
        asking = Asking(self.tools, self.clock)
        same = seen == self._seen and self.clock.monotonic() - self._asked_at < ASK_AGAIN_SECONDS
        readings = await self._again(asking) if same and self._way else []
        if readings:
            self._readings = readings
            return self._settle(evidence, self._last.attempts)
        self._agents, self._way = (), None
        self._readings, self._source = await self._ask_all(asking, evidence)
        self._seen, self._asked_at = seen, self.clock.monotonic()
        return self._settle(evidence, tuple(asking.attempts))

    def _look(self) -> Evidence:
        gpus = tuple(gpu for gpu in self.kernel.gpus() if gpu.vendor == "AMD")
        self._directories = self.kernel.amd_directories(gpus)
        return Evidence((), self.kernel.kfd_nodes(), self._cards(), gpus, self.memory())

    def _cards(self) -> tuple[Reading, ...]:
        return tuple(self.kernel.amd_card(pci, place) for pci, place in sorted(self._directories.items()))

    def _settle(self, evidence: Evidence, attempts: Sequence[Attempt]) -> Findings:
        self._evidence = replace(evidence, agents=self._agents)
        readings = amd.from_kernel(self._evidence) if self._source == "sysfs" else self._readings
        if readings:
            self._last = Findings("AMD", amd.units(readings, self._source, self._evidence), tuple(attempts))
        else:
            gpus = tuple(gpu for gpu in evidence.gpus if not gpu.integrated)
            self._last = outcome.unspoken("AMD", gpus, attempts)
        return self._last

    async def _again(self, asking: Asking) -> list[Reading]:
        """The devices of the last full answer: without figures where sysfs has them, else with the tool's new ones."""
        if self._by_tool and self._way:
            return await self._way.figures(asking)
        return [replace(reading, vram_used_bytes=None, gtt_used_bytes=None, live=Live()) for reading in self._readings]

    async def _ask_all(self, asking: Asking, evidence: Evidence) -> tuple[Sequence[Reading], str]:
        began = self.clock.monotonic()
        readings, attempt = await self.library.read()
        asking.note(replace(attempt, seconds=self.clock.monotonic() - began))
        worth = bool(evidence.gpus) or self.kernel.blind or self._on_host()
        if readings:
            await self._name_architectures(asking, readings, evidence, worth=worth)
            return readings, "amdsmi"
        for tool in self._ways(asking, worth=worth):
            found, _ = await tool.describe(asking)
            if found:
                self._way, self._agents = tool, tool.agents
                return found, tool.source
            if asking.spent():
                break
        kernel = amd.from_kernel(evidence)
        asking.note(Attempt("sysfs", "ok" if kernel else "nothing", "" if kernel else "no-devices"))
        return kernel, "sysfs" if kernel else ""

    async def _name_architectures(
        self, asking: Asking, readings: Sequence[Reading], evidence: Evidence, *, worth: bool
    ) -> None:
        """Ask rocminfo where neither the library nor the kernel names one."""
        if all(unit.arch for unit in amd.units(readings, "amdsmi", evidence)):
            return
        for root in self._roots(worth=worth):
            for folder in ("", *root.paths):
                program = f"{folder}/rocminfo" if folder else "rocminfo"
                self._agents = await ask_rocminfo(asking, root, program, self.clock)
                if self._agents or asking.spent():
                    return

    def _roots(self, *, worth: bool) -> tuple[Root, ...]:
        """Ours, and the host's if it is ``worth`` a try."""
        host = self.kernel.host_root.rstrip("/")
        here = Root((), (ROCM_BIN,) if self.direct_paths and self.kernel.files.listdir(ROCM_BIN) else ())
        return (here, Root(("chroot", host), (ROCM_BIN,))) if worth and host else (here,)

    def _ways(self, asking: Asking, *, worth: bool) -> Iterator[AmdTool]:
        """Tools in the order of trying."""
        for root in self._roots(worth=worth):
            for folder in ("", *root.paths):
                yield AmdTool(root, folder, "rocm-smi", self.clock)
                if asking.attempts[-1].reason == "no-root":
                    return
                yield AmdTool(root, folder, "amd-smi", self.clock)

    def _on_host(self) -> bool:
        host = self.kernel.host_root.rstrip("/")
        names = (f"{host}{ROCM_BIN}/rocm-smi", f"{host}/usr/bin/rocm-smi", f"{host}{ROCM_BIN}/amd-smi")
        return bool(host) and any(self.kernel.files.read(name, 1) is not None for name in names)

    async def sample(self) -> Mapping[str, Live] | None:
        """See ports.HardwareSource."""
        evidence = replace(self._evidence, cards=self._cards(), memory=self.memory())
        if self._source == "sysfs":
            readings: Sequence[Reading] = amd.from_kernel(evidence)
        elif self._source == "amdsmi":
            readings, _ = await self.library.read(live_only=True)
        else:
            readings = await self._again(Asking(self.tools, self.clock))
        if not readings:
            return None
        return {unit.uuid: unit.live for unit in amd.units(readings, self._source, evidence)}


def _fingerprint(evidence: Evidence) -> object:
    """The part of the kernel's account whose change means that tools must be asked again."""
    return (
        evidence.gpus,
        tuple((node.node, node.arch, node.pci) for node in evidence.kfd),
        tuple((card.pci, card.compute_partition, card.vram_used_bytes is None) for card in evidence.cards),
    )
