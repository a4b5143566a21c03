"""What a node can still give: its devices with live figures, less what claims take of them."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from flexinfer.contracts.events import Device
from flexinfer.core.fleet import freshness
from flexinfer.core.fleet.freshness import Level
from flexinfer.core.fleet.view import Claim, NodeView

NOBODY: AbstractSet[str] = frozenset()


@dataclass(slots=True)
class Unit:
    """One counted device. ``free_mib`` None: installed memory is not known. ``known`` false: no live free figure,
    so ``free_mib`` is installed less bound and gives no headroom."""

    device: Device
    util: float
    free_mib: float | None
    known: bool
    ratio: float  # free share of installed memory, 0 when not known


def units(node: NodeView, now: float, without: AbstractSet[str] = NOBODY) -> list[Unit]:
    """Devices a new pod could get, most free memory first.

    ``without``: uids of pods taken as absent: the asking pod's own reservation, or victims of a preemption.
    """
    if node.hardware is None:
        return []
    at = freshness.level(node, now)
    found = [_unit(node, device, at) for device in node.hardware.devices if device.counted]
    if not node.claims:
        if len(found) > 1:
            found.sort(key=_most_free)
        return found
    lost = any(not unit.known for unit in found)
    _evicted(found, [c for c in node.claims.values() if c.uid in without and c.bound and c.shown])
    staying = [claim for claim in node.claims.values() if claim.uid not in without]
    return _take(found, staying, lost=lost)


def _unit(node: NodeView, device: Device, at: Level) -> Unit:
    live = node.figures.get(device.uuid)
    total = device.memory_mib
    last: float | None = None
    if live is not None and at is not Level.LOST:
        last = live.memory_free_mib
        if last is None and total is not None and live.memory_used_mib is not None:
            last = max(total - live.memory_used_mib, 0)
    known = last is not None
    free = last if known else None if total is None else float(total)
    return Unit(
        device,
        freshness.load_percent(live.util_percent if live else None, at),
        free,
        known,
        min(last / total, 1.0) if last is not None and total else 0.0,
    )


def _most_free(unit: Unit) -> tuple[float, float, str]:
    return (-(unit.free_mib or 0.0), unit.util, unit.device.uuid)


def _fits(unit: Unit, claim: Claim) -> bool:
    return claim.vendor in {"", unit.device.vendor}


def _set_free(unit: Unit, free: float) -> None:
    total = unit.device.memory_mib
    unit.free_mib = max(free, 0.0)
    if unit.known:
        unit.ratio = min(unit.free_mib / total, 1.0) if total else 0.0


def _evicted(found: list[Unit], gone: list[Claim]) -> None:
    """Give back what pods that would leave are seen to use: the fullest devices are taken as theirs."""
    for claim in gone:
        fullest = sorted((unit for unit in found if _fits(unit, claim)), key=_most_free, reverse=True)
        for unit in fullest[: claim.whole]:
            if unit.device.memory_mib is not None:
                _set_free(unit, float(unit.device.memory_mib))
        if not claim.whole and fullest and fullest[0].free_mib is not None:
            free = fullest[0].free_mib + claim.memory_mib
            _set_free(fullest[0], min(free, fullest[0].device.memory_mib or free))


def _take(found: list[Unit], staying: list[Claim], *, lost: bool) -> list[Unit]:
    """Remove whole devices, then shared memory.

    A pod whose use shows is on the fullest devices; one that does not yet is taken to have got what it was ranked
    by, the emptiest.
    """
    found.sort(key=_most_free)
    for claim in staying:
        if not claim.whole:
            continue
        mine = [position for position, unit in enumerate(found) if _fits(unit, claim)]
        taken = mine[: claim.whole] if lost or not claim.shown else mine[max(len(mine) - claim.whole, 0) :]
        for position in reversed(taken):
            del found[position]
    for claim in staying:
        if claim.whole or not claim.memory_mib or (claim.shown and not lost):
            continue
        emptiest = next((unit for unit in found if _fits(unit, claim) and unit.free_mib is not None), None)
        if emptiest is not None and emptiest.free_mib is not None:
            _set_free(emptiest, emptiest.free_mib - claim.memory_mib)
            found.sort(key=_most_free)
    return found
