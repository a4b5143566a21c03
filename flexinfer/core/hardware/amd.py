"""AMD devices as units: readings of amdsmi, amd-smi, rocm-smi or sysfs joined with rocminfo, KFD and the PCI bus."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from flexinfer.contracts.events import MemoryType, Partition
from flexinfer.core.hardware import gfx
from flexinfer.core.hardware.findings import NO_FIGURES, Fault, Live, Unit
from flexinfer.core.hardware.machine import Memory
from flexinfer.core.hardware.nvidia import absent_unit
from flexinfer.core.hardware.pci import PciGpu, fault_of

SMALLEST_CARD_BYTES = (
    1536 << 20
)  # graphics inside processors carve out 512 MiB or less by default; no card has so little


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One device or partition as one source described it; sizes in bytes, so that differences are exact."""

    index: int
    name: str | None = None
    arch: str | None = None
    pci: str | None = None
    node: int | None = None  # KFD topology node
    unique_id: str | None = None
    vram_bytes: int | None = None
    vram_used_bytes: int | None = None
    gtt_bytes: int | None = None
    gtt_used_bytes: int | None = None
    compute_partition: str | None = None
    memory_partition: str | None = None
    driver: str | None = None
    apu: bool = False
    live: Live = NO_FIGURES


@dataclass(frozen=True, slots=True)
class Agent:
    """A GPU agent of rocminfo, in its order."""

    arch: str | None
    uuid: str | None = None
    pci: str | None = None
    apu: bool = False


@dataclass(frozen=True, slots=True)
class KfdNode:
    """A GPU node of the KFD topology; ``heap_bytes`` is what the device can address as its own."""

    node: int
    arch: str | None
    pci: str | None
    heap_bytes: int | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything known beside the readings themselves. ``cards`` are the readings of sysfs."""

    agents: tuple[Agent, ...] = ()
    kfd: tuple[KfdNode, ...] = ()
    cards: tuple[Reading, ...] = ()
    gpus: tuple[PciGpu, ...] = ()
    memory: Memory = field(default_factory=Memory)


def from_kernel(evidence: Evidence) -> tuple[Reading, ...]:
    """Readings from sysfs and KFD alone: one per KFD node, which tells partitions apart, or one per card."""
    cards = {card.pci: card for card in evidence.cards}
    found: list[Reading] = []
    for node in evidence.kfd:
        card = cards.get(node.pci)
        base = card or Reading(index=0, pci=node.pci)
        vram = base.vram_bytes if base.vram_bytes is not None else node.heap_bytes
        found.append(replace(base, index=len(found), node=node.node, vram_bytes=vram))
    seen = {node.pci for node in evidence.kfd}
    for card in evidence.cards:
        if card.pci not in seen:
            found.append(replace(card, index=len(found)))
    return tuple(found)


def units(readings: Sequence[Reading], source: str, evidence: Evidence) -> tuple[Unit, ...]:
    """Every reading as a unit, then plugged-in devices that no source listed."""
    placed = _place(readings, evidence)
    sharers = Counter(reading.pci for reading in placed if reading.pci)
    parts_seen: Counter[str | None] = Counter()
    found: list[Unit] = []
    for at, reading in enumerate(placed):
        shared = sharers[reading.pci] if reading.pci else 1
        found.append(_unit(reading, source, evidence, _Place(at, len(placed), shared, parts_seen[reading.pci])))
        parts_seen[reading.pci] += 1
    known = {unit.pci for unit in found}
    if found and None in known:
        return tuple(found)
    missing = [gpu for gpu in evidence.gpus if gpu.vendor == "AMD" and gpu.address not in known and not gpu.integrated]
    start = max((unit.index for unit in found), default=-1) + 1
    for offset, gpu in enumerate(missing):
        fault = fault_of(gpu) or Fault("degraded", "not-listed", "no source lists it")
        found.append(absent_unit(gpu, start + offset, fault))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a reading stands: its position of how many, and which part of a shared device it is."""

    at: int
    total: int
    shared: int
    part: int


def _place(readings: Sequence[Reading], evidence: Evidence) -> list[Reading]:
    """Give each reading its address: its own, that of its KFD node, or by order where the counts agree."""
    by_node = {node.node: node.pci for node in evidence.kfd}
    placed = [
        replace(reading, pci=by_node.get(reading.node)) if reading.pci is None and reading.node is not None else reading
        for reading in readings
    ]
    if any(reading.pci for reading in placed):
        return [_physical(reading, evidence.gpus) for reading in placed]
    nodes = [node for node in evidence.kfd if node.pci]
    bus = sorted(gpu.address for gpu in evidence.gpus if gpu.vendor == "AMD" and fault_of(gpu) is None)
    if len(nodes) == len(placed):
        return [replace(r, pci=node.pci, node=node.node) for r, node in zip(placed, nodes, strict=True)]
    if len(bus) == len(placed):
        return [replace(reading, pci=address) for reading, address in zip(placed, bus, strict=True)]
    return placed


def _physical(reading: Reading, gpus: Sequence[PciGpu]) -> Reading:
    """Partitions are told as functions .1 to .7 of a device that has only .0 on the bus."""
    known = {gpu.address for gpu in gpus}
    if reading.pci is None or reading.pci in known:
        return reading
    first = f"{reading.pci[:-1]}0"
    return replace(reading, pci=first) if first in known else reading


def _unit(reading: Reading, source: str, evidence: Evidence, place: _Place) -> Unit:
    node = _node_of(reading, evidence, place)
    agent = _agent_of(reading, evidence, place)
    card = next((card for card in evidence.cards if reading.pci and card.pci == reading.pci), None)
    gpu = next((gpu for gpu in evidence.gpus if reading.pci and gpu.address == reading.pci), None)
    arch = _arch(reading, node, agent, gpu, evidence)
    merged = _merge(reading, card)
    integrated = _integrated(merged, arch, agent)
    profile = _partition(merged, place)
    total, kind = _memory(merged, node, evidence.memory, integrated=integrated, hbm=_has_hbm(merged, arch, agent))
    live = _figures(merged, evidence.memory, integrated=integrated)
    pool = pool_free = None
    if profile is not None:
        pool, pool_free = f"amd-{reading.pci or reading.index}", live.memory_free_mib
        total = _part_mib(node, merged, place.shared)
        live = replace(live, memory_free_mib=_least(pool_free, total), memory_used_mib=None)
    return Unit(
        vendor="AMD",
        index=reading.index,
        uuid=_uuid(merged, agent, place),
        source=source,
        role="integrated" if integrated else "part" if profile else "whole",
        product=merged.name,
        arch=arch,
        pci=reading.pci,
        memory_mib=total,
        memory_type=kind,
        partition=Partition(kind="cpx", profile=profile, parent=reading.pci) if profile else None,
        driver=merged.driver,
        numa=gpu.numa if gpu else None,
        pool=pool,
        pool_free_mib=pool_free,
        live=live,
    )


def _node_of(reading: Reading, evidence: Evidence, place: _Place) -> KfdNode | None:
    by_node = next((node for node in evidence.kfd if reading.node is not None and node.node == reading.node), None)
    if by_node:
        return by_node
    same = [node for node in evidence.kfd if reading.pci and node.pci == reading.pci]
    return same[place.part] if place.part < len(same) else None


def _agent_of(reading: Reading, evidence: Evidence, place: _Place) -> Agent | None:
    same = [agent for agent in evidence.agents if reading.pci and agent.pci == reading.pci]
    if same:
        return same[min(place.part, len(same) - 1)]
    return evidence.agents[place.at] if len(evidence.agents) == place.total else None


def _arch(
    reading: Reading, node: KfdNode | None, agent: Agent | None, gpu: PciGpu | None, evidence: Evidence
) -> str | None:
    """The kernel's word first: environment and library mix-ups cannot change it. The PCI id is the last resort."""
    for found in (node and node.arch, reading.arch, agent and agent.arch):
        if found:
            return found
    all_agents = {each.arch for each in evidence.agents}
    if len(all_agents) == 1 and evidence.agents[0].arch:
        return evidence.agents[0].arch
    return gfx.from_chip(gpu.device_id) if gpu else None


def _merge(reading: Reading, card: Reading | None) -> Reading:
    """Fields the source left out, from sysfs."""
    if card is None:
        return reading
    live = {
        name: getattr(reading.live, name) if getattr(reading.live, name) is not None else getattr(card.live, name)
        for name in Live.__dataclass_fields__
    }
    filled = {
        name: getattr(card, name)
        for name in _FILLED
        if getattr(reading, name) is None and getattr(card, name) is not None
    }
    return replace(reading, live=Live(**live), **filled)


_FILLED = (
    "name", "unique_id", "vram_bytes", "vram_used_bytes", "gtt_bytes", "gtt_used_bytes", "compute_partition",
    "memory_partition", "driver",
)  # fmt: skip


def _integrated(reading: Reading, arch: str | None, agent: Agent | None) -> bool:
    if arch is not None:
        return arch in gfx.INTEGRATED
    return reading.apu or bool(agent and agent.apu) or (reading.vram_bytes or SMALLEST_CARD_BYTES) < SMALLEST_CARD_BYTES


def _has_hbm(reading: Reading, arch: str | None, agent: Agent | None) -> bool:
    """MI300A: processor and accelerator in one package, on HBM."""
    return arch in {"gfx940", "gfx942"} and (
        reading.apu or bool(agent and agent.apu) or "MI300A" in (reading.name or "").upper()
    )


def _partition(reading: Reading, place: _Place) -> str | None:
    """``cpx-nps1`` if the device is divided; SPX is the whole device."""
    compute = (reading.compute_partition or "").lower()
    if compute not in {"cpx", "dpx", "tpx", "qpx"}:
        if place.shared < 2:
            return None
        compute = "cpx"
    memory = (reading.memory_partition or "").lower()
    return f"{compute}-{memory}" if memory.startswith("nps") else compute


def _memory(
    reading: Reading, node: KfdNode | None, memory: Memory, *, integrated: bool, hbm: bool
) -> tuple[int | None, MemoryType | None]:
    """MiB and kind. Rule D2: an APU has the larger of its carve-out and what the kernel lends it, never the sum, and
    never more than the system has."""
    own = reading.vram_bytes
    if own is None and node:
        own = node.heap_bytes
    if not integrated:
        return (own >> 20, "unified" if hbm else "dedicated") if own else (None, None)
    best = max(own or 0, _lent(reading, memory))
    return (best >> 20, "unified") if best else (None, None)


def _lent(reading: Reading, memory: Memory) -> int:
    """Bytes of system memory that graphics in a processor may take."""
    if reading.gtt_bytes is None:
        return 0
    return reading.gtt_bytes if memory.total_mib is None else min(reading.gtt_bytes, memory.total_mib << 20)


def _figures(reading: Reading, memory: Memory, *, integrated: bool) -> Live:
    """Used and free memory of the pool that ``_memory`` chose."""
    lent = integrated and _lent(reading, memory) > (reading.vram_bytes or 0)
    pool, used = reading.vram_bytes, reading.vram_used_bytes
    if lent:
        pool, used = reading.gtt_bytes, reading.gtt_used_bytes
    free = None if lent else reading.live.memory_free_mib
    if free is None and pool and used is not None:
        free = max(0, pool - used) >> 20
    if lent and free is not None and memory.available_mib is not None:
        free = min(free, memory.available_mib)
    used_mib = reading.live.memory_used_mib if used is None else used >> 20
    return replace(reading.live, memory_used_mib=used_mib, memory_free_mib=free)


def _part_mib(node: KfdNode | None, reading: Reading, shared: int) -> int | None:
    if node and node.heap_bytes:
        return node.heap_bytes >> 20
    return (reading.vram_bytes // shared) >> 20 if reading.vram_bytes and shared > 1 else None


def _least(*amounts: int | None) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return min(known) if known else None


def _uuid(reading: Reading, agent: Agent | None, place: _Place) -> str:
    """The chip's unique id where any source has it, else the address, so that it does not depend on the source."""
    unique = reading.unique_id or (agent.uuid if agent else None)
    base = f"GPU-{unique}" if unique else f"amd-{reading.pci or f'card{reading.index}'}"
    return f"{base}-part{place.part}" if place.shared > 1 else base
