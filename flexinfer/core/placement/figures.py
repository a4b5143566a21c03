"""What one node offers to one demand: the raw, not yet normalised terms, or the reason why it is out."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from flexinfer.core.fleet import freshness
from flexinfer.core.fleet.freshness import Level, load_percent
from flexinfer.core.fleet.identity import driver_major
from flexinfer.core.fleet.units import NOBODY
from flexinfer.core.fleet.view import FleetView, NodeView
from flexinfer.core.hardware.device_class import cpu_class, device_class
from flexinfer.core.placement.checks import DRAINING, NO_FACTS, Reason, available, draining, suitable
from flexinfer.core.placement.demand import Demand
from flexinfer.core.placement.speeds import Speed, Speeds


@dataclass(slots=True)
class Figures:
    """``util`` and ``kv`` on 0..100, ``ratio`` on 0..1, ``cost`` per hour or None, times in Unix seconds."""

    node: str
    device_class: str
    speed: Speed | None
    util: float
    kv: float
    ratio: float
    cost: float | None
    telemetry_at: float | None
    note: str = ""


def speeds_of(view: FleetView, demand: Demand) -> Speeds:
    """Results for the demand's benchmark key, which names a workload or one of its results."""
    workload = demand.workload
    if workload in view.results:
        workload = view.results[workload].workload
    found = view.by_workload.get(workload, {}) if workload else {}
    return Speeds((result, view.result_at[key]) for key, result in found.items())


def judge(
    node: NodeView, demand: Demand, speeds: Speeds, now: float, without: AbstractSet[str] = NOBODY
) -> Figures | Reason:
    """One node for one demand, by every check and every term. A demand without accelerators needs no facts."""
    if demand.ask.devices == 0:
        return _processor(node, speeds, now, without)
    if node.hardware is None:
        return NO_FACTS
    fit = suitable(node.hardware, demand)
    if isinstance(fit, Reason):
        return fit
    if draining(node):
        return DRAINING
    best = available(node, demand, fit, now, without)
    if isinstance(best, Reason):
        return best
    worst = best[-1].device
    name = device_class(worst, demand.ask.devices)
    at = freshness.level(node, now)
    return Figures(
        node.name,
        name,
        speeds.of(name, driver_major(worst)),
        max(unit.util for unit in best),
        kv_percent(node, at),
        min(unit.ratio for unit in best) if at is not Level.LOST else 0.0,
        node.cost,
        node.telemetry_at if node.telemetry else None,
        _note(at),
    )


def kv_percent(node: NodeView, at: Level) -> float:
    """KV-cache use, 0..100. A node without an engine has none in use: a known 0."""
    live = node.telemetry
    if live is None:
        return freshness.UNKNOWN_PERCENT
    if live.kv_cache_ratio is None and not live.engines:
        return load_percent(0.0, at)
    return load_percent(None if live.kv_cache_ratio is None else live.kv_cache_ratio * 100, at)


def _note(at: Level) -> str:
    return {
        Level.FRESH: "",
        Level.AGING: "telemetry is late: load counts as at least half",
        Level.LOST: "no telemetry: load counts as at least half, headroom as none",
    }[at]


def _processor(node: NodeView, speeds: Speeds, now: float, without: AbstractSet[str]) -> Figures | Reason:
    """A demand without accelerators: host load and memory stand in for those of devices."""
    if draining(node):
        return DRAINING
    at = freshness.level(node, now)
    cpu = node.hardware.cpu if node.hardware else None
    name = cpu_class(cpu) if cpu else ""
    live = node.telemetry
    ratio = 0.0
    if at is not Level.LOST and live and live.memory_free_mib is not None and cpu and cpu.memory_mib:
        unseen = (c for c in node.claims.values() if c.vendor == "CPU" and not c.shown and c.uid not in without)
        held = sum(claim.memory_mib for claim in unseen)
        ratio = min(max(live.memory_free_mib - held, 0.0) / cpu.memory_mib, 1.0)
    return Figures(
        node.name,
        name,
        speeds.of(name, "") if name else None,
        load_percent(live.cpu_util_percent if live else None, at),
        kv_percent(node, at),
        ratio,
        node.cost,
        node.telemetry_at if live else None,
        _note(at),
    )
