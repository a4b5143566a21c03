"""What other tools read on the Node object: labels, annotations, and when a patch of them is worth it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from flexinfer.contracts.events import CachedModel, Device
from flexinfer.contracts.labels import CACHED_LABEL, ENABLED_LABEL, NODE_ANNOTATIONS, NODE_LABELS, cached_label
from flexinfer.core.hardware.findings import Unit
from flexinfer.core.hardware.inventory import Inventory, int4

MIB_PER_GIB = 1024
UTIL_POINTS = 5.0
FREE_SHARE = 0.02
KV_STEP = 0.05
LONGEST_SECONDS = 300.0


def clean_value(text: str) -> str | None:
    """``text`` as a label value: at most 63 of ``[A-Za-z0-9._-]``, alphanumeric at both ends; None if nothing stays.

    >>> clean_value("NVIDIA GeForce RTX 4090"), clean_value("gfx90a:sramecc+:xnack-"), clean_value("+ +")
    ('NVIDIA-GeForce-RTX-4090', 'gfx90a-sramecc-xnack', None)
    """
    joined = re.sub(r"[^A-Za-z0-9._-]+", "-", text)
    joined = re.sub(r"-{2,}", "-", joined)
    return joined.strip("-._")[:63].strip("-._") or None


def vram_label(unit: Unit) -> str | None:
    """``24Gi``: the nearest GiB; of unified memory the whole GiB below, since the system needs some. Never 0Gi."""
    if not unit.memory_mib:
        return None
    gib = unit.memory_mib // MIB_PER_GIB if unit.memory_type == "unified" else round(unit.memory_mib / MIB_PER_GIB)
    return f"{gib}Gi" if gib else None


def labels_of(inventory: Inventory, prefix: str) -> dict[str, str]:
    """Every label the node should have, prefix included, valid as label values. What is unknown is left out."""
    lead, largest, counted = inventory.lead, inventory.largest, inventory.counted
    wanted: dict[str, str | None] = {
        "gpu.vendor": inventory.vendor,
        "gpu.count": str(len(counted)),
        "gpu.health": inventory.health.state,
        "cpu.avx512": _flag(inventory.cpu.avx512),
    }
    if lead is not None and largest is not None:
        wanted |= {
            "gpu.arch": lead.arch,
            "gpu.int4": _flag(int4(lead)),
            "gpu.product": clean_value(lead.product or ""),
            "gpu.vram": vram_label(largest),
            "gpu.memory-type": largest.memory_type,
            "gpu.mixed": "true" if _mixed(counted) else None,
        }
    return {prefix + name: value for name, value in wanted.items() if value is not None}


def cache_labels(cached: Iterable[CachedModel], prefix: str) -> dict[str, str]:
    """A label for each model in the node's cache, which the affinity of pods can name; prefix included."""
    names = (cached_label(model.entry) for model in cached)
    return {prefix + name: "true" for name in names if name}


def _flag(value: bool | None) -> str | None:  # noqa: FBT001 - a value to print, not a switch
    return None if value is None else str(value).lower()


def _mixed(units: Iterable[Unit]) -> bool:
    return (
        len({(unit.product, unit.arch, unit.memory_mib, unit.partition and unit.partition.profile) for unit in units})
        > 1
    )


@dataclass(frozen=True, slots=True)
class Figures:
    """The node's three moving annotations as numbers; None is unknown, and then the annotation is absent."""

    util_percent: float | None = None
    free_mib: int | None = None
    kv_ratio: float | None = None


def figures_of(units: Iterable[Unit], kv_ratio: float | None) -> Figures:
    """Rule D8: utilisation is the mean over counted units that have a number; free memory the sum of whole MiB, memory
    that several units share counted once."""
    busy: list[float] = []
    free: dict[str, int] = {}
    for unit in units:
        if unit.live.util_percent is not None:
            busy.append(unit.live.util_percent)
        amount = unit.pool_free_mib if unit.pool else unit.live.memory_free_mib
        if amount is not None:
            free[unit.pool or unit.uuid] = amount
    return Figures(sum(busy) / len(busy) if busy else None, sum(free.values()) if free else None, kv_ratio)


def annotations_of(figures: Figures, devices: Iterable[Device], prefix: str) -> dict[str, str]:
    """Every annotation the node should have, prefix included."""
    listed = [_summary(device) for device in devices]
    wanted = {
        "gpu.util": None if figures.util_percent is None else f"{figures.util_percent:.2f}",
        "gpu-free-memory": None if figures.free_mib is None else str(figures.free_mib),
        "kv-cache-usage": None if figures.kv_ratio is None else f"{figures.kv_ratio:.4f}",
        "gpu-devices": msgspec.json.encode(listed).decode() if listed else None,
    }
    return {prefix + name: value for name, value in wanted.items() if value is not None}


def _summary(device: Device) -> dict[str, object]:
    """What does not move, so that the annotation changes only with the hardware."""
    told = msgspec.to_builtins(device)
    told["health"] = device.health.state
    return {name: value for name, value in told.items() if value is not None and name != "source"}


def moved(told: Figures, now: Figures, age: float) -> bool:
    """Whether annotations written ``age`` seconds ago are worth a patch: each one wakes every rejected pod."""
    if age >= LONGEST_SECONDS:
        return told != now
    return (
        _differs(told.util_percent, now.util_percent, UTIL_POINTS)
        or _differs(told.free_mib, now.free_mib, FREE_SHARE * max(told.free_mib or 0, now.free_mib or 0, 1))
        or _differs(told.kv_ratio, now.kv_ratio, KV_STEP)
    )


def _differs(old: float | None, new: float | None, least: float) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(old - new) >= least - 1e-9


def changes(
    current: Mapping[str, str], wanted: Mapping[str, str], names: Iterable[str], prefix: str
) -> dict[str, str | None]:
    """The merge patch of one map: new and changed keys, and None for keys of ours (``names``) that no longer hold.

    Keys outside ``names`` are never removed.
    """
    patch: dict[str, str | None] = {key: value for key, value in wanted.items() if current.get(key) != value}
    for name in names:
        key = prefix + name
        if key in current and key not in wanted:
            patch[key] = None
    return patch


def own_labels(current: Mapping[str, str], prefix: str) -> tuple[str, ...]:
    """Names of labels only agents write, those of the cache that are there included; without prefix."""
    cached = (key.removeprefix(prefix) for key in current if key.startswith(prefix + CACHED_LABEL))
    return (*NODE_LABELS, *cached)


def label_changes(
    current: Mapping[str, str], wanted: Mapping[str, str], cached: Mapping[str, str] | None, prefix: str
) -> dict[str, str | None]:
    """Changes of labels; ``enabled`` is added where it is missing and otherwise left to people. ``cached``: those of
    the cache (None: it was not looked at yet, so they stay as they are)."""
    names = NODE_LABELS if cached is None else own_labels(current, prefix)
    patch = changes(current, {**wanted, **(cached or {})}, names, prefix)
    if prefix + ENABLED_LABEL not in current:
        patch[prefix + ENABLED_LABEL] = "true"
    return patch


def annotation_changes(current: Mapping[str, str], wanted: Mapping[str, str], prefix: str) -> dict[str, str | None]:
    """Changes of annotations."""
    return changes(current, wanted, NODE_ANNOTATIONS, prefix)
