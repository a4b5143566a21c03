"""The filter: a chain of named checks, each narrowing a node's devices or giving the reason why it is out.

Reasons are constant sentences, because kube-scheduler counts equal texts. A reason that no eviction cures is
``final`` and keeps preemption from trying.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from flexinfer.contracts.events import Device, NodeHardware
from flexinfer.core.fleet.units import NOBODY, Unit, units
from flexinfer.core.fleet.view import NodeView
from flexinfer.core.placement.demand import Demand
from flexinfer.core.placement.quantization import meets, need_of


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a node is out: a code for metrics, a sentence for people, and whether evicting pods cannot help."""

    code: str
    text: str
    final: bool = True


NO_FACTS = Reason("NoFacts", "flexinfer: no hardware facts from this node")
NO_VENDOR = Reason("WrongVendor", "flexinfer: no accelerator of the demanded vendor")
NO_PARTITION = Reason("NoPartition", "flexinfer: no device partition of the demanded profile")
NO_ARCH = Reason("WrongArchitecture", "flexinfer: no accelerator of the demanded architecture")
NO_FORMAT = Reason("QuantizationUnsupported", "flexinfer: no accelerator that supports the quantization")
NO_SIZE = Reason("VramUnknown", "flexinfer: installed VRAM is not known")
TOO_SMALL = Reason("VramTooSmall", "flexinfer: installed VRAM is too small")
TOO_FEW = Reason("TooFewDevices", "flexinfer: not enough accelerators installed")
DRAINING = Reason("Draining", "flexinfer: node is draining", final=False)
NO_DEVICE = Reason("NoFreeDevice", "flexinfer: no free accelerator", final=False)
NO_VRAM = Reason("NoFreeVram", "flexinfer: not enough free VRAM", final=False)

REASONS = (
    NO_FACTS, NO_VENDOR, NO_PARTITION, NO_ARCH, NO_FORMAT, NO_SIZE, TOO_SMALL, TOO_FEW, DRAINING, NO_DEVICE, NO_VRAM,
)  # fmt: skip


def suitable(hardware: NodeHardware, demand: Demand) -> frozenset[str] | Reason:
    """The devices that could ever serve the demand, by uuid, or why there are too few of them."""
    ask = demand.ask
    need = need_of(demand.backend, demand.quantization)
    per_device = demand.per_device_mib
    found = [device for device in hardware.devices if device.counted]
    chain: tuple[tuple[Reason, Callable[[Device], bool]], ...] = (
        (NO_VENDOR, lambda device: ask.vendor in {"", device.vendor}),
        (NO_PARTITION, lambda device: not ask.partition or _profile(device) == ask.partition),
        (NO_ARCH, lambda device: not demand.archs or (device.arch or "").lower() in demand.archs),
        (NO_FORMAT, lambda device: meets(device, need)),
        (NO_SIZE, lambda device: not per_device or device.memory_mib is not None),
        (TOO_SMALL, lambda device: not per_device or (device.memory_mib or 0) >= per_device),
    )
    for reason, keeps in chain:
        found = [device for device in found if keeps(device)]
        if not found:
            return reason
    if len(found) < ask.devices:
        return TOO_FEW
    return frozenset(device.uuid for device in found)


def _profile(device: Device) -> str:
    return (device.partition.profile or "") if device.partition else ""


def draining(node: NodeView) -> bool:
    """Its agent announced that it is being emptied."""
    return node.status is not None and node.status.state == "draining"


def available(
    node: NodeView,
    demand: Demand,
    fit: frozenset[str],
    now: float,
    without: AbstractSet[str] = NOBODY,
) -> list[Unit] | Reason:
    """The ``devices`` best units for the demand now, the worst of them last, or what is missing."""
    count = demand.ask.devices
    free = [unit for unit in units(node, now, without) if unit.device.uuid in fit]
    if len(free) < count:
        return NO_DEVICE
    per_device = demand.per_device_mib
    if per_device:
        free = [unit for unit in free if unit.free_mib is not None and unit.free_mib >= per_device]
        if len(free) < count:
            return NO_VRAM
    free.sort(key=lambda unit: (-unit.ratio, unit.util, unit.device.uuid))
    return free[:count]
