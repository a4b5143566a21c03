"""What to say of hardware that is plugged in while no source could speak for it."""

from collections.abc import Sequence

from flexinfer.contracts.events import Vendor
from flexinfer.core.hardware.findings import Attempt, Fault, Findings
from flexinfer.core.hardware.nvidia import absent_unit
from flexinfer.core.hardware.pci import PciGpu, fault_of


def unspoken(vendor: Vendor, gpus: Sequence[PciGpu], attempts: Sequence[Attempt]) -> Findings:
    """Rule D4: the vendor stays, nothing counts. Without a witness on the bus there is no such hardware at all."""
    if not gpus:
        return Findings(vendor, (), tuple(attempts))
    fault = _fault(attempts)
    units = []
    for index, gpu in enumerate(gpus):
        given = fault_of(gpu)
        units.append(absent_unit(gpu, index, given if given and given.state == "passthrough" else fault))
    passthrough = all(unit.fault and unit.fault.state == "passthrough" for unit in units)
    return Findings(vendor, tuple(units), tuple(attempts), None if passthrough else fault)


def _fault(attempts: Sequence[Attempt]) -> Fault:
    """The first real failure; a hang weighs more, because then nothing is known to be broken."""
    hung = next((attempt for attempt in attempts if attempt.outcome == "timeout"), None)
    if hung:
        return Fault("timeout", "timeout", f"{hung.source}: {hung.detail}")
    failed = next((attempt for attempt in attempts if attempt.outcome == "failed"), None)
    if failed:
        return Fault(
            "driver-error", failed.reason, f"{failed.source}: {failed.detail}" if failed.detail else failed.source
        )
    tried = ", ".join(dict.fromkeys(attempt.source for attempt in attempts)) or "nothing"
    return Fault("driver-error", "no-source", f"none of these could be used: {tried}")
