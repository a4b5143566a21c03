"""What one node offers to one kind of demand: how much memory would fit, and the raw terms of the ranking.

An offer does not depend on the model's size or name, so it is made once per node and kind, when a fact of that node
changes, and not once per request.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import inf

from msgspec import UNSET, UnsetType

from flexinfer.contracts.events import CachedModel, NodeHardware
from flexinfer.core.fleet import freshness
from flexinfer.core.fleet.freshness import Level, load_percent
from flexinfer.core.fleet.identity import driver_major
from flexinfer.core.fleet.units import NOBODY, units
from flexinfer.core.fleet.view import FleetView, NodeView
from flexinfer.core.hardware.device_class import cpu_class, device_class
from flexinfer.core.placement.checks import (
    DRAINING,
    NO_DEVICE,
    NO_SIZE,
    NO_VRAM,
    TOO_SMALL,
    Reason,
    suitable,
)
from flexinfer.core.placement.demand import Demand, Kind

OUT = -1.0

NOTES = {
    Level.FRESH: "",
    Level.AGING: "telemetry is late: load counts as at least half",
    Level.LOST: "no telemetry: load counts as at least half, headroom as none",
}


@dataclass(slots=True)
class Offer:
    """``capacity``: MiB that fit on each of the demanded devices now, OUT when ``reason`` keeps the node out.

    ``installed``: the same when empty, OUT when not known. ``util`` and ``kv`` on 0..100, ``ratio`` on 0..1, ``cost``
    per hour or None, ``telemetry_at`` in Unix seconds or None. ``cached``: weights the node holds, unset when it shares
    no cache.
    """

    node: str
    capacity: float
    installed: float = OUT
    reason: Reason | None = None
    util: float = 0.0
    kv: float = 0.0
    ratio: float = 0.0
    cost: float | None = None
    device_class: str = ""
    driver_major: str = ""
    telemetry_at: float | None = None
    note: str = ""
    cached: tuple[CachedModel, ...] | UnsetType = UNSET


def refusal(offer: Offer, per_device_mib: float) -> Reason | None:
    """Why the node is out for a demand of this much memory on each device; None if it passes."""
    if offer.reason is not None:
        return offer.reason
    if offer.capacity >= per_device_mib:
        return None
    if offer.installed < 0:
        return NO_SIZE
    return TOO_SMALL if offer.installed < per_device_mib else NO_VRAM


@dataclass(frozen=True, slots=True)
class Fit:
    """What hardware alone says to a kind of demand: its suitable devices with their class and driver, by uuid, and
    the memory each of the demanded number would have when empty."""

    devices: Mapping[str, tuple[str, str]]
    installed: float


def fit_of(hardware: NodeHardware | None, kind: Kind) -> Fit | Reason:
    """Changes only with the hardware."""
    found = suitable(hardware, kind)
    if isinstance(found, Reason):
        return found
    sizes = sorted((OUT if device.memory_mib is None else float(device.memory_mib) for device in found), reverse=True)
    named = {device.uuid: (device_class(device, kind.devices), driver_major(device)) for device in found}
    return Fit(named, sizes[kind.devices - 1])


def offer_of(
    node: NodeView, kind: Kind, now: float, without: AbstractSet[str] = NOBODY, fit: Fit | Reason | None = None
) -> Offer:
    """By every check and every term. ``without``: pods taken as absent, by uid. ``fit``: of the node's hardware, if
    that is at hand."""
    if kind.devices == 0:
        return _processor(node, now, without)
    fit = fit_of(node.hardware, kind) if fit is None else fit
    if isinstance(fit, Reason):
        return Offer(node.name, OUT, reason=fit)
    if node.status is not None and node.status.state == "draining":
        return Offer(node.name, OUT, fit.installed, DRAINING)
    count = kind.devices
    free = [unit for unit in units(node, now, without) if unit.device.uuid in fit.devices]
    if len(free) < count:
        return Offer(node.name, OUT, fit.installed, NO_DEVICE)
    best = free[:count]  # most free memory first: of the demanded number of best devices the worst one counts
    worst = best[-1]
    at = freshness.level(node, now)
    name, driver = fit.devices[worst.device.uuid]
    return Offer(
        node.name,
        0.0 if worst.free_mib is None else worst.free_mib,
        fit.installed,
        None,
        worst.util if count == 1 else max(unit.util for unit in best),
        kv_percent(node, at),
        worst.ratio if count == 1 else min(unit.ratio for unit in best),
        node.cost,
        name,
        driver,
        node.telemetry_at if node.telemetry else None,
        NOTES[at],
        node.hardware.cached if node.hardware else UNSET,
    )


def kv_percent(node: NodeView, at: Level) -> float:
    """KV-cache use, 0..100. A node without an engine has none in use: a known 0."""
    live = node.telemetry
    if live is None:
        return freshness.UNKNOWN_PERCENT
    if live.kv_cache_ratio is None and not live.engines:
        return load_percent(0.0, at)
    return load_percent(None if live.kv_cache_ratio is None else live.kv_cache_ratio * 100, at)


def _processor(node: NodeView, now: float, without: AbstractSet[str]) -> Offer:
    """A demand without accelerators passes every node; host load and memory stand in for those of devices."""
    if node.status is not None and node.status.state == "draining":
        return Offer(node.name, OUT, inf, DRAINING)
    at = freshness.level(node, now)
    cpu = node.hardware.cpu if node.hardware else None
    live = node.telemetry
    ratio = 0.0
    if at is not Level.LOST and live and live.memory_free_mib is not None and cpu and cpu.memory_mib:
        unseen = (c for c in node.claims.values() if c.vendor == "CPU" and not c.shown and c.uid not in without)
        held = sum(claim.memory_mib for claim in unseen)
        ratio = min(max(live.memory_free_mib - held, 0.0) / cpu.memory_mib, 1.0)
    return Offer(
        node.name,
        inf,
        inf,
        None,
        load_percent(live.cpu_util_percent if live else None, at),
        kv_percent(node, at),
        ratio,
        node.cost,
        cpu_class(cpu) if cpu else "",
        "",
        node.telemetry_at if live else None,
        NOTES[at],
        node.hardware.cached if node.hardware else UNSET,
    )


def verdict(
    view: FleetView, name: str, demand: Demand, now: float, without: AbstractSet[str] = NOBODY
) -> Reason | None:
    """Why one node is out, None if it passes; a node nobody reported passes only demands without accelerators."""
    node = view.nodes.get(name) or NodeView(name)
    return refusal(offer_of(node, demand.kind, now, without), demand.per_device_mib)
