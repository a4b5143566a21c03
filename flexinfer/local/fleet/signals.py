"""What a virtual node says at a given moment: pure functions of the declaration, the time and the seed."""

import math
import random

from flexinfer.contracts.events import NodeState
from flexinfer.core.hardware.findings import Fault, Live, Unit
from flexinfer.local.fleet.declared import Gpu, NodeFault, Speed, VirtualNode

SLOW_FACTOR = 0.1
SOURCE = "declared"


def active(node: VirtualNode, elapsed: float) -> frozenset[str]:
    """Kinds of the faults that hold ``elapsed`` seconds after the start."""

    def holds(fault: NodeFault) -> bool:
        return fault.at <= elapsed and (fault.lasting == 0 or elapsed < fault.at + fault.lasting)

    return frozenset(fault.kind for fault in node.faults if holds(fault))


def uuid_of(node: VirtualNode, index: int) -> str:
    """Identity of a declared device."""
    return f"virtual-{node.name}-{index}"


def declared_devices(node: VirtualNode) -> tuple[Gpu, ...]:
    """One entry per device, in index order."""
    return tuple(gpu for gpu in node.gpus for _ in range(gpu.count))


def units(node: VirtualNode, elapsed: float) -> tuple[Unit, ...]:
    """The devices as a probe of this moment would find them."""
    lost = "lost-device" in active(node, elapsed)
    fault = Fault("driver-error", "lost", "declared fault: the device is lost")
    return tuple(
        Unit(
            vendor=gpu.vendor, index=index, uuid=uuid_of(node, index), source=SOURCE, product=gpu.product,
            arch=gpu.arch, memory_mib=gpu.memory, memory_type=gpu.memory_type, driver=gpu.driver,
            fault=fault if lost and index == 0 else None,
        )
        for index, gpu in enumerate(declared_devices(node))
    )  # fmt: skip


def utilisation(node: VirtualNode, elapsed: float, seed: int, index: int) -> float:
    """Percent, from the declared pattern; the same arguments always give the same figure."""
    pattern = node.telemetry
    noise = random.Random(f"{seed}/{node.name}/{index}/{elapsed:.3f}").uniform(-1, 1) * pattern.noise  # noqa: S311 - repeatable noise
    wave = pattern.amplitude * math.sin(2 * math.pi * elapsed / pattern.period)
    return round(min(max(pattern.base + wave + noise, 0.0), 100.0), 2)


def live(node: VirtualNode, elapsed: float, seed: int, used_mib: int, load: float) -> dict[str, Live]:
    """Figures by uuid at this moment.

    ``used_mib`` is what the pods bound here claim, filled device by device; ``load`` (0..1) is the share of the
    engines here that are answering, added to the declared pattern. A lost device has no figures.
    """
    lost = "lost-device" in active(node, elapsed)
    figures: dict[str, Live] = {}
    left = used_mib
    for index, gpu in enumerate(declared_devices(node)):
        if lost and index == 0:
            continue
        used = min(left, gpu.memory)
        left -= used
        util = round(min(utilisation(node, elapsed, seed, index) + 100 * load, 100.0), 2)
        figures[uuid_of(node, index)] = Live(
            util_percent=util, memory_used_mib=used, memory_free_mib=gpu.memory - used,
            temperature_celsius=node.telemetry.temperature + util / 4, power_watts=node.telemetry.power + util,
        )  # fmt: skip
    return figures


def state(node: VirtualNode, elapsed: float) -> NodeState:
    """``draining`` while a shutdown notice is declared, else ``online``."""
    return "draining" if "draining" in active(node, elapsed) else "online"


def speed(node: VirtualNode, model: str, elapsed: float) -> Speed:
    """What an engine started now gives."""
    declared = node.speed_of(model)
    if "slow" not in active(node, elapsed):
        return declared
    return Speed(tokens_per_second=declared.tokens_per_second * SLOW_FACTOR, first_token=declared.first_token)
