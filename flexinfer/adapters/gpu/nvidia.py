"""NVIDIA hardware: NVML, then nvidia-smi here and in the host's roots, then the device tree of a Jetson.

A chroot is tried after any direct attempt without a GPU, not only when the tool is missing: a stale copy in the image
fails where the host's own works.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flexinfer.adapters.gpu.asking import Asking, Root, said, unanswered
from flexinfer.adapters.gpu.nvml import Nvml
from flexinfer.adapters.gpu.sysfs import Kernel
from flexinfer.contracts.events import Vendor
from flexinfer.core.hardware import nvidia, nvidia_smi, outcome
from flexinfer.core.hardware.findings import Attempt, Findings, Live
from flexinfer.core.hardware.machine import Memory
from flexinfer.core.hardware.nvidia import Jetson, Reading
from flexinfer.core.hardware.pci import PciGpu, address_of
from flexinfer.core.hardware.readings import text_of
from flexinfer.ports import Clock, Tools

PATHS = ("/usr/local/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/run/current-system/sw/bin/nvidia-smi")
HOST_FILES = ("/usr/bin/nvidia-smi", *PATHS, "/run/nvidia/driver/usr/bin/nvidia-smi")
TOOL_PERIOD = 15.0
MOST_GPUS = 64
# These say that nothing behind the tool works; listing devices one by one would only say it again.
HOPELESS = frozenset(
    {"driver-not-loaded", "version-mismatch", "library-not-found", "no-devices", "nvml-unknown", "timeout"}
)


@dataclass(slots=True)
class _Way:
    """A command that worked, to be used again for samples."""

    root: Root
    program: str
    fields: tuple[str, ...]


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
    _way: _Way | None = None
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
        self._way, self._by_library = None, False
        readings = await self._library(asking)
        source = "nvml"
        if not _any_usable(readings):
            from_tool, tool_source = await self._tool(asking, gpus, blind=bool(jetson) or self.kernel.blind)
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

    async def _tool(self, asking: Asking, gpus: Sequence[PciGpu], *, blind: bool) -> tuple[Sequence[Reading], str]:
        """The first root whose nvidia-smi lists a usable device; else the first that listed any."""
        fallback: tuple[Sequence[Reading], str] = ((), "")
        worth = bool(gpus) or blind or self._on_host()
        for root in self._roots():
            if root.prefix and not worth:
                break
            for program in ("nvidia-smi", *root.paths):
                source = f"{root.label} {program}".strip()
                readings, attempt = await self._ask(asking, root, program, source)
                asking.note(attempt)
                if _any_usable(readings):
                    return readings, source
                if readings and not fallback[0]:
                    fallback = readings, source
                if asking.spent():
                    return fallback
                if attempt.reason == "no-root" or attempt.outcome != "absent":
                    break
        return fallback

    def _roots(self) -> tuple[Root, ...]:
        host = self.kernel.host_root.rstrip("/")
        here = tuple(path for path in PATHS if self.direct_paths and self.kernel.files.read(path, 1) is not None)
        if not host:
            return (Root((), here),)
        return Root((), here), Root(("chroot", host), PATHS), Root(("chroot", f"{host}/run/nvidia/driver"), PATHS[:1])

    def _on_host(self) -> bool:
        host = self.kernel.host_root.rstrip("/")
        return bool(host) and any(self.kernel.files.read(host + path, 1) is not None for path in HOST_FILES)

    async def _ask(self, asking: Asking, root: Root, program: str, source: str) -> tuple[Sequence[Reading], Attempt]:
        began = self.clock.monotonic()
        fields = nvidia_smi.FIELDS
        result = await asking.call(root.argv(program, nvidia_smi.query_args(fields)))
        refused = nvidia_smi.bad_fields(said(result))
        while refused & set(fields):
            fields = tuple(name for name in fields if name not in refused)
            result = await asking.call(root.argv(program, nvidia_smi.query_args(fields)))
            refused = nvidia_smi.bad_fields(said(result))
        attempt = unanswered(source, result, root, self.clock.monotonic() - began)
        if attempt:
            return (), attempt
        table = nvidia_smi.parse_table(text_of(result.stdout), fields)
        readings = [nvidia_smi.reading_of(row) for row in table.rows]
        reason, line = nvidia_smi.failure_of(said(result), result.code) if not readings else ("", "")
        if readings or reason not in HOPELESS:
            readings = await self._complete(asking, _Way(root, program, fields), readings, [*table.other, said(result)])
        seconds = self.clock.monotonic() - began
        if not readings:
            return (), Attempt(source, "failed", reason, line, seconds)
        self._way = _Way(root, program, fields)
        return readings, Attempt(source, "ok", reason, line, seconds)

    async def _complete(
        self, asking: Asking, way: _Way, readings: list[Reading], said_lines: list[str]
    ) -> list[Reading]:
        """Add what the query alone does not tell: MIG instances, devices it gave up on, warnings, clocks."""
        lines = [line for text in said_lines for line in text.splitlines()]
        if not readings or any(reading.mig for reading in readings):
            result = await asking.call(way.root.argv(way.program, nvidia_smi.LIST_ARGS))
            listed, complaints = nvidia_smi.parse_listing(text_of(result.stdout))
            lines += [*complaints, *text_of(result.stderr).splitlines()]
            if not readings:
                lost = {address_of(line) for line in complaints} - {None}
                readings = await self._one_by_one(asking, way, listed[:MOST_GPUS], lost)
            readings = nvidia_smi.with_parts(readings, listed)
        return await self._extras(asking, way, nvidia_smi.with_complaints(readings, lines))

    async def _one_by_one(
        self, asking: Asking, way: _Way, listed: Sequence[nvidia_smi.Listed], lost: Collection[str | None]
    ) -> list[Reading]:
        """Query each listed device alone: one that is lost makes the common query fail for all.

        A complaint about a device in ``lost`` says nothing about this one, which the listing could open.
        """
        found: list[Reading] = []
        for entry in listed:
            result = await asking.call(way.root.argv(way.program, nvidia_smi.query_args(way.fields, entry.uuid)))
            rows = nvidia_smi.parse_table(text_of(result.stdout), way.fields).rows
            if rows:
                found.append(nvidia_smi.reading_of(rows[0]))
                continue
            reason, line = nvidia_smi.failure_of(said(result), result.code)
            condition = "timeout" if result.timed_out else "" if address_of(line) in lost else reason
            found.append(Reading(index=entry.index, uuid=entry.uuid, name=entry.name, condition=condition))
        return found

    async def _extras(self, asking: Asking, way: _Way, readings: list[Reading]) -> list[Reading]:
        """Clocks, throttling and ECC from a second query, whose failure costs only these."""
        if not _any_usable(readings):
            return readings
        fields = nvidia_smi.EXTRA_FIELDS
        while len(fields) > 1:
            result = await asking.call(way.root.argv(way.program, nvidia_smi.query_args(fields)))
            refused = nvidia_smi.bad_fields(said(result)) & set(fields)
            if not refused:
                found = nvidia_smi.extras(nvidia_smi.parse_table(text_of(result.stdout), fields).rows)
                return [nvidia_smi.with_extras(reading, found) for reading in readings]
            fields = tuple(name for name in fields if name not in refused)
        return readings

    async def sample(self) -> Mapping[str, Live] | None:
        """See ports.HardwareSource."""
        readings: Sequence[Reading] = ()
        source = "nvml"
        if self._by_library:
            readings, _ = await self.nvml.read(live_only=True)
        elif self._way is not None:
            asking = Asking(self.tools, self.clock)
            source = f"{self._way.root.label} {self._way.program}".strip()
            readings, _ = await self._ask(asking, self._way.root, self._way.program, source)
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
