"""Which hardware of the fleet can hold a model, grouped into the classes a benchmark is valid for."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median_low

from flexinfer.contracts.events import Device, NodeHardware
from flexinfer.contracts.kubernetes import Object
from flexinfer.contracts.labels import GPU_RESOURCES
from flexinfer.core.fleet.identity import driver_major
from flexinfer.core.hardware.device_class import cpu_class, device_class
from flexinfer.core.lifecycle.description import Demand, Description
from flexinfer.core.lifecycle.engines import CPU, ENGINES
from flexinfer.core.lifecycle.pods import Placement, device_tolerations
from flexinfer.core.lifecycle.view import LifecycleView

MB_PER_MIB = 1.048576
HOSTNAME = "kubernetes.io/hostname"
OUTLOOKS_KEPT = 2000
CANNOT_COMPUTE = "GPU cannot compute the quantisation"
_DEVICES_TOLERATE = tuple(one for vendor in sorted(GPU_RESOURCES) for one in device_tolerations(Placement(vendor, 1)))


@dataclass(frozen=True, slots=True)
class Option:
    """One measurable unit: a device class with one driver major, and the nodes that have it. ``count`` per replica,
    ``hosts`` the nodes' values of kubernetes.io/hostname, ``price`` per hour of one of them (None: not told)."""

    device_class: str
    driver_major: str
    vendor: str
    count: int
    nodes: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    price: float | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """``options`` sorted by class; ``misses``: why nodes were left out, sentence → number of nodes."""

    options: tuple[Option, ...]
    misses: Mapping[str, int]
    nodes: int  # nodes with known hardware


def outlook(view: LifecycleView, wanted: Description) -> Outlook:
    """Every class that can hold one replica. Accelerators come first: CPUs are offered only where asked for, or
    where nothing else fits and the engine can do without.

    Models with equal demands share an answer until the fleet changes, so that a decision costs the same on large
    fleets as on small ones.
    """
    selector = tuple(sorted(wanted.node_selector.items()))
    key = (wanted.demand, wanted.backend, wanted.image is None, selector, str(wanted.tolerations))
    version, known = view.outlooks.get(key, (-1, None))
    if version == view.fleet_version and isinstance(known, Outlook):
        return known
    found = _look(view, wanted)
    if len(view.outlooks) >= OUTLOOKS_KEPT:
        view.outlooks.clear()
    view.outlooks[key] = (view.fleet_version, found)
    return found


def _look(view: LifecycleView, wanted: Description) -> Outlook:
    found: dict[tuple[str, str, str, int], list[str]] = {}
    misses: Counter[str] = Counter()
    known = 0
    form = wanted.demand.quantization or ""

    def obstacle(device: Device) -> str:
        if not view.policy.capable(device, wanted.backend, form):
            return CANNOT_COMPUTE
        # An image of the user's may have been built for anything.
        return "" if wanted.image else ENGINES[wanted.backend].refusal(device)

    cpus: dict[tuple[str, str, str, int], list[str]] = {}
    for name in sorted(view.fleet.nodes):
        hardware = view.hardware(name)
        if hardware is None:
            continue
        known += 1
        reason = _unusable(view, name, wanted)
        if reason:
            misses[reason] += 1
            continue
        units, why = _units(hardware, wanted.demand, obstacle)
        for unit in units:
            found.setdefault(unit, []).append(name)
        if why and not units:
            misses[why] += 1
        if _may_fall_back(wanted) and not _too_small(hardware, wanted.demand) and not _tainted(view, name, wanted, ()):
            cpus.setdefault((cpu_class(hardware.cpu), "", CPU, 0), []).append(name)
    chosen = found or cpus
    options = tuple(
        Option(cls, major, vendor, count, tuple(nodes), tuple(_host(view, name) for name in nodes), _price(view, nodes))
        for (cls, major, vendor, count), nodes in sorted(chosen.items())
    )
    return Outlook(options, dict(misses), known)


def _host(view: LifecycleView, name: str) -> str:
    """The label that node affinity can name; on some clouds it is not the node's name."""
    return str(view.nodes.get(name, {}).get("metadata", {}).get("labels", {}).get(HOSTNAME) or name)


def _price(view: LifecycleView, nodes: list[str]) -> float | None:
    """What people say a node of the class costs; where they differ, the middle one."""
    told = (view.nodes.get(name, {}).get("price") for name in nodes)
    prices = [float(price) for price in told if price is not None]
    return median_low(prices) if prices else None


def _may_fall_back(wanted: Description) -> bool:
    demand = wanted.demand
    if demand.vendor != "auto" or demand.count is not None or demand.arch:
        return False
    return ENGINES[wanted.backend].runs_on_cpu


def _unusable(view: LifecycleView, name: str, wanted: Description) -> str:
    """Why a node takes no pods of this model whatever its hardware; empty if it does."""
    node = view.fleet.nodes[name]
    if node.status is not None and node.status.state != "online":
        return f"node is {node.status.state}"
    kube = view.nodes.get(name)
    if kube is None:
        return "node does not exist" if "nodes" in view.listed else ""
    labels: Mapping[str, str] = kube["metadata"]["labels"]
    if any(labels.get(key) != value for key, value in wanted.node_selector.items()):
        return "nodeSelector does not match"
    if kube["spec"]["unschedulable"]:
        return "node is cordoned"
    extra = () if wanted.demand.count == 0 else _DEVICES_TOLERATE
    return "taint is not tolerated" if _tainted(view, name, wanted, extra) else ""


def _tainted(view: LifecycleView, name: str, wanted: Description, extra: tuple[Object, ...]) -> bool:
    """A taint keeps the model's pods away, with the tolerations its pods get beyond its own."""
    kube = view.nodes.get(name)
    taints = kube["spec"]["taints"] if kube else ()
    hard = [taint for taint in taints if taint.get("effect") in {"NoSchedule", "NoExecute"}]
    return any(not _tolerated(taint, (*wanted.tolerations, *extra)) for taint in hard)


def _tolerated(taint: Object, tolerations: tuple[Object, ...]) -> bool:
    return any(
        (not one.get("effect") or one["effect"] == taint.get("effect"))
        and (not one.get("key") or one["key"] == taint.get("key"))
        and (one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", ""))
        for one in tolerations
    )


def _units(
    hardware: NodeHardware, demand: Demand, obstacle: Callable[[Device], str]
) -> tuple[list[tuple[str, str, str, int]], str]:
    """(class, driver major, vendor, count) this node offers, and why it offers none."""
    if demand.count == 0:
        if _too_small(hardware, demand):
            return [], "memory is too small"
        return [(cpu_class(hardware.cpu), "", CPU, 0)], ""
    count = demand.count or 1
    devices = [device for device in hardware.devices if device.counted]
    if not devices:
        return [], "node has no usable GPU"
    devices = [d for d in devices if demand.vendor in {"auto", d.vendor.lower()}]
    if not devices:
        return [], "GPU vendor does not match"
    archs = {part.strip().lower() for part in (demand.arch or "").split(",") if part.strip()}
    devices = [d for d in devices if not archs or (d.arch or "").lower() in archs]
    if not devices:
        return [], "GPU architecture does not match"
    obstacles = [obstacle(d) for d in devices]
    devices = [d for d, why in zip(devices, obstacles, strict=True) if not why]
    if not devices:
        return [], max(obstacles)
    if len(devices) < count:
        return [], "too few GPUs on one node"
    groups: dict[tuple[str, str, str, int], list[Device]] = {}
    for device in devices:
        unit = (device_class(device, count), driver_major(device), device.vendor, count)
        groups.setdefault(unit, []).append(device)
    large = [unit for unit, group in groups.items() if len(group) >= count and _holds(group, demand, count)]
    return large, "" if large else "GPU memory is too small"


def _holds(group: list[Device], demand: Demand, count: int) -> bool:
    """An engine splits a model evenly, so each device needs its share. Unknown memory is given the benefit of the
    doubt: the benchmark will tell."""
    if demand.vram_mb is None:
        return True
    share = demand.vram_mb / count
    return sum(1 for d in group if d.memory_mib is None or d.memory_mib * MB_PER_MIB >= share) >= count


def _too_small(hardware: NodeHardware, demand: Demand) -> bool:
    memory = hardware.cpu.memory_mib
    return bool(demand.vram_mb and memory and memory * MB_PER_MIB < demand.vram_mb)


def explain(found: Outlook, wanted: Description) -> tuple[str, str]:
    """(reason, sentence) for a model no node can hold, naming the field to change where one is to blame."""
    if not found.nodes:
        return "WaitingForHardware", "no agent has reported hardware yet"
    demand = wanted.demand
    causes = "; ".join(f"{count}× {why}" for why, count in sorted(found.misses.items()))
    largest = _blame(demand, found)
    return "NoMatchingHardware", f"none of {found.nodes} node(s) can hold it: {causes}{largest}"


def _blame(demand: Demand, found: Outlook) -> str:
    told = "read from the model's file" if demand.vram_read else "estimated"
    fields = {
        "GPU memory is too small": f"gpu.vramEstimateMB is {demand.vram_mb}"
        + (f" ({told}; set it if that is wrong)" if demand.vram_estimated else ""),
        "memory is too small": f"the model needs about {demand.vram_mb} MB"
        + (f" ({told}; set gpu.vramEstimateMB if that is wrong)" if demand.vram_estimated else ""),
        "too few GPUs on one node": f"gpu.count is {demand.count or 1}",
        "GPU vendor does not match": f"gpu.vendor is {demand.vendor}",
        "GPU architecture does not match": f"gpu.arch is {demand.arch}",
        CANNOT_COMPUTE: f"gpu.quantization is {demand.quantization}",
        "nodeSelector does not match": "see nodeSelector",
        "taint is not tolerated": "add tolerations",
    }
    named = [fields[why] for why in sorted(found.misses) if why in fields]
    if any(" does not run on " in why for why in found.misses):
        named.append("use another backend, or an image built for it as spec.image")
    return f" ({', '.join(named)})" if named else ""
