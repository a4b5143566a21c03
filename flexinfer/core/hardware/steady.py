"""Three probes of patience: a failing probe keeps the last good units, a vanished unit is withdrawn at the third.

A fault that a driver states about one device (lost, reset required, given to a virtual machine) is believed at once;
silence and failing tools are not, because an agent that lost its own access says nothing about the hardware.
"""

from dataclasses import dataclass, field, replace

from flexinfer.core.hardware.findings import NO_FIGURES, Fault, Findings, Unit

KEEP_PROBES = 3


@dataclass(slots=True)
class Steady:
    """Memory of one vendor's probes."""

    _good: Findings | None = None
    _failed: int = 0
    _missing: dict[str, int] = field(default_factory=dict)

    def take(self, found: Findings) -> Findings:
        """What to believe after this probe."""
        if any(unit.usable or unit.role == "integrated" for unit in found.units) or self._good is None:
            self._failed = 0
            return self._remember(self._with_vanished(found))
        if _given_away(found):
            return self._remember(found)
        self._failed += 1
        if self._failed > KEEP_PROBES:
            return self._remember(found)
        return self._kept(self._good, found)

    def _remember(self, found: Findings) -> Findings:
        self._good = found if any(unit.usable or unit.role == "integrated" for unit in found.units) else None
        if self._good is None:
            self._missing.clear()
        return found

    def _kept(self, good: Findings, found: Findings) -> Findings:
        fault = found.fault or Fault("degraded", "vanished", "no device was found")
        said = replace(fault, detail=f"{fault.detail} (probe {self._failed} of {KEEP_PROBES} that failed)".strip())
        units = tuple(replace(unit, live=NO_FIGURES, pool_free_mib=None) for unit in good.units)
        return Findings(found.vendor, units, found.attempts, said)

    def _with_vanished(self, found: Findings) -> Findings:
        """Add units that this probe did not mention at all, until they were missing three times."""
        listed = {unit.uuid for unit in found.units}
        places = {unit.pci for unit in found.units if unit.pci and not _only_unlisted(unit)}
        missing: dict[str, int] = {}
        kept: list[Unit] = []
        for unit in self._good.units if self._good else ():
            if unit.uuid in listed or not unit.usable or unit.pci in places:
                continue
            times = self._missing.get(unit.uuid, 0) + 1
            if times < KEEP_PROBES:
                missing[unit.uuid] = times
                warning = f"not seen by {times} of {KEEP_PROBES} probes"
                kept.append(replace(unit, live=NO_FIGURES, pool_free_mib=None, warnings=(warning,)))
        self._missing = missing
        kept_at = {unit.pci for unit in kept if unit.pci}
        listed_units = [unit for unit in found.units if not (_only_unlisted(unit) and unit.pci in kept_at)]
        return replace(found, units=(*listed_units, *kept)) if kept else found


def _given_away(found: Findings) -> bool:
    return bool(found.units) and all(unit.fault and unit.fault.state == "passthrough" for unit in found.units)


def _only_unlisted(unit: Unit) -> bool:
    """A fault that only says "nobody lists this address" does not contradict an earlier sighting there."""
    return unit.fault is not None and unit.fault.reason == "not-listed"
