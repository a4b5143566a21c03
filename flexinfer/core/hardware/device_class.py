"""Device class: the hardware a result is valid for.

A class names vendor, product, architecture, GiB, partition and the *demanded* count; for CPU-only demands the
processor model and its threads. Two nodes of one class are expected to run an engine equally fast.
"""

import re
from functools import lru_cache

from flexinfer.contracts.events import Cpu, Device, NodeHardware

MIB_PER_GIB = 1024


@lru_cache(maxsize=1024)  # a fleet has thousands of devices of a few products
def slug(text: str, limit: int = 40) -> str:
    """Lower-case ``[a-z0-9-]``, no doubled or outer dashes, at most ``limit`` characters."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:limit].strip("-")


def cpu_class(cpu: Cpu) -> str:
    """Class of a demand without GPUs, for example ``cpu-amd-epyc-7b13-2t``."""
    model = re.sub(r"\((r|tm)\)|@.*$", "", cpu.model or "unknown", flags=re.IGNORECASE)
    return f"cpu-{slug(model, 32) or 'unknown'}-{cpu.threads or 0}t"


def device_class(device: Device, count: int) -> str:
    """Class of ``count`` units like this one, for example ``nvidia-geforce-rtx-4090-sm-89-24g-x1``."""
    vendor = device.vendor.lower()
    product = slug((device.product or "unknown").lower().removeprefix(vendor).strip(), 32) or "unknown"
    gib = round(device.memory_mib / MIB_PER_GIB) if device.memory_mib else 0
    parts = [vendor, product, slug(device.arch or "unknown"), f"{gib}g"]
    if device.partition:
        parts.append(slug(f"{device.partition.kind}-{device.partition.profile or 'any'}"))
    parts.append(f"x{count}")
    return "-".join(parts)


def classes_of(hardware: NodeHardware, count: int) -> tuple[str, ...]:
    """Classes this node offers to a demand of ``count`` accelerators, sorted; ``count`` 0 means CPU.

    A GPU class is offered when at least ``count`` counted units of the same class exist.
    """
    if count == 0:
        return (cpu_class(hardware.cpu),)
    found: dict[str, int] = {}
    for device in hardware.devices:
        if device.counted:
            name = device_class(device, count)
            found[name] = found.get(name, 0) + 1
    return tuple(sorted(name for name, units in found.items() if units >= count))
