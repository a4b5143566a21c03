"""Intel hardware: xpu-smi where it is installed, and the driver's files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flexinfer.adapters.gpu.asking import Asking, Root, said, unanswered
from flexinfer.adapters.gpu.sysfs import Kernel
from flexinfer.contracts.events import Vendor
from flexinfer.core.hardware import intel, outcome
from flexinfer.core.hardware.findings import Attempt, Findings, Live
from flexinfer.core.hardware.pci import PciGpu
from flexinfer.core.hardware.readings import text_of
from flexinfer.ports import Clock, Tools

ASK_AGAIN_SECONDS = 600.0


@dataclass(slots=True)
class IntelSource:
    """ports.HardwareSource for Intel. Discovery is slow and does not move: it is kept until the bus changes."""

    tools: Tools
    kernel: Kernel
    clock: Clock
    vendor: Vendor = "INTEL"
    _readings: Sequence[intel.Reading] = ()
    _attempts: tuple[Attempt, ...] = ()
    _gpus: tuple[PciGpu, ...] | None = None
    _asked_at: float = field(default=float("-inf"))
    _last: Findings = field(default_factory=lambda: Findings("INTEL"))

    @property
    def period(self) -> float | None:
        """sysfs at will."""
        return 0.0 if any(unit.usable for unit in self._last.units) else None

    async def find(self) -> Findings:
        """See ports.HardwareSource."""
        gpus = tuple(gpu for gpu in self.kernel.gpus() if gpu.vendor == "INTEL")
        now = self.clock.monotonic()
        if gpus != self._gpus or now - self._asked_at >= ASK_AGAIN_SECONDS:
            asking = Asking(self.tools, self.clock)
            self._readings = await self._discover(asking, worth=any(not gpu.integrated for gpu in gpus))
            self._attempts = tuple(asking.attempts)
            self._gpus, self._asked_at = gpus, now
        cards = self.kernel.intel_cards()
        units = intel.units(self._readings, cards, gpus)
        attempts = (
            (*self._attempts, Attempt("sysfs", "ok")) if any(u.source == "sysfs" for u in units) else self._attempts
        )
        if units and not any(unit.usable for unit in units):
            self._last = outcome.unspoken("INTEL", tuple(gpu for gpu in gpus if not gpu.integrated), attempts)
        else:
            self._last = Findings("INTEL", units, attempts)
        return self._last

    async def _discover(self, asking: Asking, *, worth: bool) -> Sequence[intel.Reading]:
        host = self.kernel.host_root.rstrip("/")
        roots = (Root(()), Root(("chroot", host))) if worth and host else (Root(()),)
        for root in roots:
            began = self.clock.monotonic()
            source = f"{root.label} xpu-smi".strip()
            result = await asking.call(root.argv("xpu-smi", intel.DISCOVERY_ARGS))
            seconds = self.clock.monotonic() - began
            attempt = unanswered(source, result, root, seconds)
            if attempt is None:
                readings = intel.parse_discovery(text_of(result.stdout))
                if readings:
                    asking.note(Attempt(source, "ok", seconds=seconds))
                    return readings
                reason, line = intel.failure_of(said(result), result.code)
                attempt = Attempt(source, "nothing" if reason == "no-devices" else "failed", reason, line, seconds)
            asking.note(attempt)
            if asking.spent():
                break
        return ()

    async def sample(self) -> Mapping[str, Live] | None:
        """See ports.HardwareSource."""
        units = intel.units(self._readings, self.kernel.intel_cards(), self._gpus or ())
        return {unit.uuid: unit.live for unit in units}
