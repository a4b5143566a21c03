"""AMD's command-line tools in one root: rocm-smi or amd-smi for the devices, rocminfo for their architectures."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from flexinfer.adapters.gpu.asking import Asking, Root, said, unanswered
from flexinfer.core.hardware import amd_smi, rocm
from flexinfer.core.hardware.amd import Agent, Reading
from flexinfer.core.hardware.findings import Attempt
from flexinfer.core.hardware.readings import text_of
from flexinfer.ports import Clock, ToolResult

Kind = Literal["rocm-smi", "amd-smi"]


@dataclass(slots=True)
class AmdTool:
    """One of the two tools. ``folder`` is empty for the one on PATH. What does not move is kept for ``figures``."""

    root: Root
    folder: str
    kind: Kind
    clock: Clock
    agents: tuple[Agent, ...] = ()
    _known: dict[int, Reading] = field(default_factory=dict)
    _static: str = ""

    @property
    def source(self) -> str:
        """Its name in accounts of what was tried."""
        return f"{self.root.label} {self._path(self.kind)}".strip()

    def _path(self, program: str) -> str:
        return f"{self.folder}/{program}" if self.folder else program

    async def describe(self, asking: Asking) -> tuple[list[Reading], Attempt]:
        """Every device; when there is any, the agents of rocminfo too. Notes what was tried."""
        began = self.clock.monotonic()
        first = rocm.SMI_ARGS if self.kind == "rocm-smi" else amd_smi.STATIC_ARGS
        result = await asking.call(self.root.argv(self._path(self.kind), first))
        attempt = unanswered(self.source, result, self.root, self.clock.monotonic() - began)
        readings: list[Reading] = []
        if attempt is None:
            readings = await self._read(asking, text_of(result.stdout))
            seconds = self.clock.monotonic() - began
            attempt = Attempt(self.source, "ok", seconds=seconds) if readings else _failed(self.source, result, seconds)
        asking.note(attempt)
        if readings:
            self._known = {reading.index: reading for reading in readings}
            self.agents = await ask_rocminfo(asking, self.root, self._path("rocminfo"), self.clock)
        return readings, attempt

    async def _read(self, asking: Asking, text: str) -> list[Reading]:
        if self.kind == "amd-smi":
            self._static = text
            return await self._metrics(asking)
        readings = rocm.parse_smi(text)
        if not readings:
            return []
        identity = await asking.call(self.root.argv(self._path(self.kind), rocm.SMI_IDENTITY_ARGS))
        known, driver = rocm.identities(text_of(identity.stdout))
        return [_identified(reading, known.get(reading.index, (None, None)), driver) for reading in readings]

    async def _metrics(self, asking: Asking) -> list[Reading]:
        result = await asking.call(self.root.argv(self._path(self.kind), amd_smi.METRIC_ARGS))
        return list(amd_smi.parse(self._static, text_of(result.stdout)))

    async def figures(self, asking: Asking) -> list[Reading]:
        """One call: the devices with new figures and what was known of them."""
        if self.kind == "amd-smi":
            return await self._metrics(asking)
        result = await asking.call(self.root.argv(self._path(self.kind), rocm.SMI_ARGS))
        fresh = rocm.parse_smi(text_of(result.stdout))
        return [_identified(reading, *_identity(self._known.get(reading.index))) for reading in fresh]


async def ask_rocminfo(asking: Asking, root: Root, program: str, clock: Clock) -> tuple[Agent, ...]:
    """The GPU agents of rocminfo, which needs read and write access to /dev/kfd; notes what was tried."""
    began = clock.monotonic()
    source = f"{root.label} {program}".strip()
    result = await asking.call(root.argv(program, ()))
    attempt = unanswered(source, result, root, clock.monotonic() - began)
    agents: tuple[Agent, ...] = ()
    if attempt is None:
        agents = rocm.parse_rocminfo(text_of(result.stdout))
        seconds = clock.monotonic() - began
        attempt = Attempt(source, "ok", seconds=seconds) if agents else _failed(source, result, seconds)
    asking.note(attempt)
    return agents


def _failed(source: str, result: ToolResult, seconds: float) -> Attempt:
    reason, line = rocm.failure_of(said(result), result.code)
    return Attempt(source, "failed", reason, line, seconds)


def _identified(reading: Reading, known: Sequence[str | None], driver: str | None) -> Reading:
    pci, unique = known
    return replace(
        reading, pci=reading.pci or pci, unique_id=reading.unique_id or unique, driver=reading.driver or driver
    )


def _identity(before: Reading | None) -> tuple[tuple[str | None, str | None], str | None]:
    return ((before.pci, before.unique_id), before.driver) if before else ((None, None), None)
