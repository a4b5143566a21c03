"""Whether a pod that is already bound to a node fits the hardware of that node."""

from collections.abc import Sequence

from flexinfer.contracts.events import Device, NodeHardware
from flexinfer.contracts.extender import PodObject
from flexinfer.contracts.labels import POD_ARCH
from flexinfer.core.fleet.pods import Ask, ask_of


def misfits(pod: PodObject, hardware: NodeHardware) -> tuple[str, ...]:
    """Sentences about what the pod asks for and the node does not have, installed and usable; empty if it fits.

    Pods that ask for no accelerator fit everywhere. What is unknown of a device is not held against it.
    """
    ask = ask_of(pod)
    if not ask.devices:
        return ()
    counted = [device for device in hardware.devices if device.counted]
    if not counted:
        return (f"asks for {_wanted(ask)}, the node has no usable accelerator",)
    fitting = [device for device in counted if ask.vendor in {"", device.vendor}]
    if not fitting:
        return (f"asks for {_wanted(ask)}, the node has {_vendors(counted)}",)
    if ask.partition:
        fitting = [device for device in fitting if device.partition and device.partition.profile == ask.partition]
    found = []
    if len(fitting) < ask.devices:
        found.append(f"asks for {_wanted(ask)}, the node has {len(fitting)}")
    archs = {part.strip().lower() for part in ((pod.metadata.annotations or {}).get(POD_ARCH, "")).split(",")} - {""}
    known = {device.arch.lower() for device in fitting if device.arch}
    if archs and fitting and known and not archs & known:
        found.append(f"asks for architecture {', '.join(sorted(archs))}, the node has {', '.join(sorted(known))}")
    return (*found, *_memory(ask, fitting))


def _memory(ask: Ask, fitting: Sequence[Device]) -> list[str]:
    sizes = [device.memory_mib for device in fitting if device.memory_mib is not None]
    need = ask.memory_mib / ask.devices
    if not sizes or len(sizes) < len(fitting) or need <= max(sizes):
        return []
    return [f"needs {need:.0f} MiB on each device, the largest of the node has {max(sizes)}"]


def _wanted(ask: Ask) -> str:
    kind = f"{ask.vendor} " if ask.vendor else ""
    return f"{ask.devices} {kind}{f'{ask.partition} ' if ask.partition else ''}accelerators"


def _vendors(devices: Sequence[Device]) -> str:
    return " and ".join(sorted({device.vendor for device in devices}))
