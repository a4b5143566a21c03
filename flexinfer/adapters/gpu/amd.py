"""AMD hardware: amdsmi, then rocm-smi with rocminfo or amd-smi here and in the host's root, then sysfs and KFD.

The tools are Python programs that cost half a second of processor each. They are asked when the kernel's own account
of the devices has changed, and every ten minutes; in between, sysfs gives the figures.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flexinfer.adapters.gpu.amdsmi import AmdSmi
from flexinfer.adapters.gpu.asking import Asking, Root, said, unanswered
from flexinfer.adapters.gpu.sysfs import Kernel
from flexinfer.contracts.events import Vendor
from flexinfer.core.hardware import amd, amd_smi, outcome, rocm
from flexinfer.core.hardware.amd import Agent, Evidence, Reading
from flexinfer.core.hardware.findings import Attempt, Findings, Live
from flexinfer.core.hardware.machine import Memory
from flexinfer.core.hardware.pci import PciGpu
from flexinfer.core.hardware.readings import text_of
from flexinfer.ports import Clock, ToolResult, Tools

ROCM_BIN = "/opt/rocm/bin"
TOOL_PERIOD = 15.0
ASK_AGAIN_SECONDS = 600.0

_Fingerprint = tuple[
    tuple[PciGpu, ...], tuple[tuple[int, str | None, str | None], ...], tuple[tuple[str, str | None], ...]
]


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
    _seen: _Fingerprint | None = None
    _asked_at: float = float("-inf")
    _last: Findings = field(default_factory=lambda: Findings("AMD"))
    _way: tuple[Root, str] | None = None

    @property
    def period(self) -> float | None:
        """The library and sysfs at will, tools at most every 15 seconds."""
        if not any(unit.usable or unit.role == "integrated" for unit in self._last.units):
            return None
        return 0.0 if self._source in {"amdsmi", "sysfs"} or self._by_kernel else TOOL_PERIOD

    @property
    def _by_kernel(self) -> bool:
        """Whether sysfs has figures for every device found."""
        busy = {card.pci for card in self._evidence.cards if card.vram_used_bytes is not None}
        return bool(busy) and all(unit.pci in busy for unit in self._last.units if unit.fault is None)

    async def find(self) -> Findings:
        """See ports.HardwareSource."""
        evidence, seen = self._look()
        age = self.clock.monotonic() - self._asked_at
        if self._by_kernel and seen == self._seen and age < ASK_AGAIN_SECONDS and self._source != "amdsmi":
            return self._settle(evidence, self._last.attempts)
        asking = Asking(self.tools, self.clock)
        self._agents, self._way = (), None
        self._readings, self._source = await self._ask_all(asking, evidence)
        self._seen, self._asked_at = seen, self.clock.monotonic()
        return self._settle(evidence, tuple(asking.attempts))

    def _look(self) -> tuple[Evidence, _Fingerprint]:
        """The kernel's account, and the part of it whose change means that tools must be asked again."""
        gpus = tuple(gpu for gpu in self.kernel.gpus() if gpu.vendor == "AMD")
        self._directories = self.kernel.amd_directories(gpus)
        cards = self._cards()
        kfd = self.kernel.kfd_nodes()
        seen = (
            gpus,
            tuple((node.node, node.arch, node.pci) for node in kfd),
            tuple((card.pci or "", card.compute_partition) for card in cards),
        )
        return Evidence((), kfd, cards, gpus, self.memory()), seen

    def _cards(self) -> tuple[Reading, ...]:
        return tuple(self.kernel.amd_card(pci, place) for pci, place in sorted(self._directories.items()))

    def _settle(self, evidence: Evidence, attempts: Sequence[Attempt]) -> Findings:
        self._evidence = replace(evidence, agents=self._agents)
        readings = self._readings
        if self._source == "sysfs":
            readings = amd.from_kernel(self._evidence)
        if readings:
            self._last = Findings("AMD", amd.units(readings, self._source, self._evidence), tuple(attempts))
        else:
            gpus = tuple(gpu for gpu in evidence.gpus if not gpu.integrated)
            self._last = outcome.unspoken("AMD", gpus, attempts)
        return self._last

    async def _ask_all(self, asking: Asking, evidence: Evidence) -> tuple[Sequence[Reading], str]:
        began = self.clock.monotonic()
        readings, attempt = await self.library.read()
        asking.note(replace(attempt, seconds=self.clock.monotonic() - began))
        if readings:
            if any(reading.arch is None for reading in readings) and not evidence.kfd:
                await self._rocminfo(asking, Root((), self._here()), "rocminfo")
            return readings, "amdsmi"
        worth = bool(evidence.gpus) or self.kernel.blind or self._on_host()
        for root in self._roots():
            if root.prefix and not worth:
                break
            readings, source = await self._tools_in(asking, root)
            if readings:
                return readings, source
            if asking.spent() or (asking.attempts and asking.attempts[-1].reason == "no-root"):
                break
        kernel = amd.from_kernel(evidence)
        asking.note(Attempt("sysfs", "ok" if kernel else "nothing", "" if kernel else "no-devices"))
        return kernel, "sysfs" if kernel else ""

    async def _tools_in(self, asking: Asking, root: Root) -> tuple[Sequence[Reading], str]:
        for folder in ("", *root.paths):
            program = f"{folder}/rocm-smi".lstrip("/") if not folder else f"{folder}/rocm-smi"
            source = f"{root.label} {program}".strip()
            readings, attempt = await self._rocm_smi(asking, root, program, source)
            asking.note(attempt)
            if readings:
                await self._rocminfo(asking, root, program.replace("rocm-smi", "rocminfo"))
                self._way = (root, program)
                return readings, source
            if asking.spent() or attempt.reason == "no-root":
                return (), ""
            readings, attempt = await self._amd_smi(asking, root, program.replace("rocm-smi", "amd-smi"))
            asking.note(attempt)
            if readings:
                await self._rocminfo(asking, root, program.replace("rocm-smi", "rocminfo"))
                self._way = (root, program.replace("rocm-smi", "amd-smi"))
                return readings, f"{root.label} amd-smi".strip()
            if asking.spent():
                return (), ""
        return (), ""

    def _roots(self) -> tuple[Root, ...]:
        host = self.kernel.host_root.rstrip("/")
        here = Root((), self._here())
        return (here, Root(("chroot", host), (ROCM_BIN,))) if host else (here,)

    def _here(self) -> tuple[str, ...]:
        return (ROCM_BIN,) if self.direct_paths and self.kernel.files.listdir(ROCM_BIN) else ()

    def _on_host(self) -> bool:
        host = self.kernel.host_root.rstrip("/")
        names = (f"{host}{ROCM_BIN}/rocm-smi", f"{host}/usr/bin/rocm-smi", f"{host}{ROCM_BIN}/amd-smi")
        return bool(host) and any(self.kernel.files.read(name, 1) is not None for name in names)

    async def _rocm_smi(
        self, asking: Asking, root: Root, program: str, source: str
    ) -> tuple[Sequence[Reading], Attempt]:
        began = self.clock.monotonic()
        result = await asking.call(root.argv(program, rocm.SMI_ARGS))
        attempt = unanswered(source, result, root, self.clock.monotonic() - began)
        if attempt:
            return (), attempt
        readings = rocm.parse_smi(text_of(result.stdout))
        seconds = self.clock.monotonic() - began
        if not readings:
            return (), _failed(source, result, seconds)
        identity = await asking.call(root.argv(program, rocm.SMI_IDENTITY_ARGS))
        known, driver = rocm.identities(text_of(identity.stdout))
        named = tuple(_identified(reading, known.get(reading.index), driver) for reading in readings)
        return named, Attempt(source, "ok", seconds=self.clock.monotonic() - began)

    async def _amd_smi(self, asking: Asking, root: Root, program: str) -> tuple[Sequence[Reading], Attempt]:
        began = self.clock.monotonic()
        source = f"{root.label} {program}".strip()
        static = await asking.call(root.argv(program, amd_smi.STATIC_ARGS))
        attempt = unanswered(source, static, root, self.clock.monotonic() - began)
        if attempt:
            return (), attempt
        metric = await asking.call(root.argv(program, amd_smi.METRIC_ARGS))
        readings = amd_smi.parse(text_of(static.stdout), text_of(metric.stdout))
        seconds = self.clock.monotonic() - began
        return readings, Attempt(source, "ok", seconds=seconds) if readings else _failed(source, static, seconds)

    async def _rocminfo(self, asking: Asking, root: Root, program: str) -> None:
        began = self.clock.monotonic()
        source = f"{root.label} {program}".strip()
        result = await asking.call(root.argv(program, ()))
        attempt = unanswered(source, result, root, self.clock.monotonic() - began)
        if attempt is None:
            self._agents = rocm.parse_rocminfo(text_of(result.stdout))
            seconds = self.clock.monotonic() - began
            attempt = Attempt(source, "ok", seconds=seconds) if self._agents else _failed(source, result, seconds)
        asking.note(attempt)

    async def sample(self) -> Mapping[str, Live] | None:
        """See ports.HardwareSource."""
        if self._source == "amdsmi":
            readings, _ = await self.library.read(live_only=True)
            if not readings:
                return None
            self._readings = readings
        evidence = replace(self._evidence, cards=self._cards(), memory=self.memory())
        readings = self._readings
        if self._source == "sysfs":
            readings = amd.from_kernel(evidence)
        elif self._by_kernel and self._source != "amdsmi":
            readings = [_without_figures(reading) for reading in readings]
        elif self._source != "amdsmi":
            readings = await self._again()
        if not readings:
            return None
        return {unit.uuid: unit.live for unit in amd.units(readings, self._source, evidence)}

    async def _again(self) -> Sequence[Reading]:
        """The tool that worked, once more."""
        if self._way is None:
            return ()
        root, program = self._way
        asking = Asking(self.tools, self.clock)
        if program.endswith("amd-smi"):
            readings, _ = await self._amd_smi(asking, root, program)
            return readings
        known = {reading.index: reading for reading in self._readings}
        result = await asking.call(root.argv(program, rocm.SMI_ARGS))
        fresh = rocm.parse_smi(text_of(result.stdout))
        return [
            replace(reading, pci=before.pci, unique_id=before.unique_id, driver=before.driver) if before else reading
            for reading in fresh
            for before in (known.get(reading.index),)
        ]


def _failed(source: str, result: ToolResult, seconds: float) -> Attempt:
    reason, line = rocm.failure_of(said(result), result.code)
    return Attempt(source, "failed", reason, line, seconds)


def _identified(reading: Reading, known: tuple[str | None, str | None] | None, driver: str | None) -> Reading:
    pci, unique = known or (None, None)
    return replace(
        reading, pci=reading.pci or pci, unique_id=reading.unique_id or unique, driver=reading.driver or driver
    )


def _without_figures(reading: Reading) -> Reading:
    """Only what does not move: the figures come from sysfs."""
    return replace(reading, vram_used_bytes=None, gtt_used_bytes=None, live=Live())
