"""The filter: a chain of named checks, each narrowing a node's devices or giving the reason why it is out.

Reasons are constant sentences, because kube-scheduler counts equal texts. A reason that no eviction cures is
``final`` and keeps preemption from trying.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flexinfer.contracts.events import Device, NodeHardware
from flexinfer.core.placement.demand import Kind
from flexinfer.core.placement.quantization import meets


@dataclass(frozen=True, slots=True, eq=False)
class Reason:
    """Why a node is out: a code for metrics, a sentence for people, and whether evicting pods cannot help.

    There is one object for each reason, compared by identity.
    """

    code: str
    text: str
    final: bool = True


NO_FACTS = Reason("NoFacts", "flexinfer: no hardware facts from this node")
NO_VENDOR = Reason("WrongVendor", "flexinfer: no accelerator of the demanded vendor")
NO_PARTITION = Reason("NoPartition", "flexinfer: no device partition of the demanded profile")
NO_ARCH = Reason("WrongArchitecture", "flexinfer: no accelerator of the demanded architecture")
NO_FORMAT = Reason("QuantizationUnsupported", "flexinfer: no accelerator that supports the quantization")
TOO_FEW = Reason("TooFewDevices", "flexinfer: not enough accelerators installed")
NO_SIZE = Reason("VramUnknown", "flexinfer: installed VRAM is not known")
TOO_SMALL = Reason("VramTooSmall", "flexinfer: installed VRAM is too small")
DRAINING = Reason("Draining", "flexinfer: node is draining", final=False)
NO_DEVICE = Reason("NoFreeDevice", "flexinfer: no free accelerator", final=False)
NO_VRAM = Reason("NoFreeVram", "flexinfer: not enough free VRAM", final=False)

REASONS = (
    NO_FACTS, NO_VENDOR, NO_PARTITION, NO_ARCH, NO_FORMAT, TOO_FEW, NO_SIZE, TOO_SMALL, DRAINING, NO_DEVICE, NO_VRAM,
)  # fmt: skip

_Keeps = Callable[[Device, Kind], bool]

# In this order; the first that leaves nothing names the reason.
_CHAIN: tuple[tuple[Reason, _Keeps], ...] = (
    (NO_VENDOR, lambda device, kind: kind.vendor in {"", device.vendor}),
    (NO_PARTITION, lambda device, kind: not kind.partition or _profile(device) == kind.partition),
    (NO_ARCH, lambda device, kind: not kind.archs or (device.arch or "").lower() in kind.archs),
    (NO_FORMAT, lambda device, kind: meets(device, kind.need)),
)


def _profile(device: Device) -> str:
    return (device.partition.profile or "") if device.partition else ""


def suitable(hardware: NodeHardware | None, kind: Kind) -> Sequence[Device] | Reason:
    """The devices that could serve the kind of demand, or why there are too few of them."""
    if hardware is None:
        return NO_FACTS
    found = [device for device in hardware.devices if device.counted]
    for reason, keeps in _CHAIN:
        found = [device for device in found if keeps(device, kind)]
        if not found:
            return reason
    return TOO_FEW if len(found) < kind.devices else found
