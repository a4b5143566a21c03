"""What a virtual node says at a given moment: pure functions of the declaration, the time and the seed."""

import math
import zlib

from flexinfer.contracts.events import Cpu, NodeState
from flexinfer.core.hardware.findings import Attempt, Fault, Findings, Live, Unit
from flexinfer.core.hardware.inventory import VENDORS
from flexinfer.testing.fake_engine import Speeds
from flexinfer.testing.virtual.declared import Gpu, NodeFault, Speed, VirtualNode

SLOW_FACTOR = 0.1
SOURCE = "declared"
PROMPT_TOKENS = 64  # the declared time to the first token is for a prompt of this length


def active(node: VirtualNode, elapsed: float) -> frozenset[str]:
    """Kinds of the faults that hold ``elapsed`` seconds after the start."""

    def holds(fault: NodeFault) -> bool:
        return fault.at <= elapsed and (fault.lasting == 0 or elapsed < fault.at + fault.lasting)

    return frozenset(fault.kind for fault in node.faults if holds(fault))


def edges(node: VirtualNode) -> tuple[float, ...]:
    """Seconds after the start at which something declared begins or ends, in order."""
    ends = {fault.at + fault.lasting for fault in node.faults if fault.lasting}
    return tuple(sorted({fault.at for fault in node.faults} | ends))


def cpu(node: VirtualNode) -> Cpu:
    """The declared processor."""
    shape = node.cpu
    return Cpu(model=shape.model, threads=shape.threads, memory_mib=shape.memory, avx512=shape.avx512)


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


def findings(node: VirtualNode, elapsed: float) -> tuple[Findings, ...]:
    """What the probe of each declared vendor would tell at this moment."""
    found = units(node, elapsed)
    return tuple(
        Findings(vendor, tuple(unit for unit in found if unit.vendor == vendor), (Attempt(SOURCE, "ok"),))
        for vendor in VENDORS
        if any(unit.vendor == vendor for unit in found)
    )


def utilisation(node: VirtualNode, elapsed: float, seed: int, index: int) -> float:
    """Percent, from the declared pattern; the same arguments always give the same figure."""
    pattern = node.telemetry
    drawn = zlib.crc32(f"{seed}/{node.name}/{index}/{elapsed:.3f}".encode()) / 2**31 - 1  # -1..1, repeatable
    noise = drawn * pattern.noise
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


def engine_speeds(node: VirtualNode, model: str, elapsed: float) -> Speeds:
    """The same as the fake engine counts it."""
    found = speed(node, model, elapsed)
    prompt = PROMPT_TOKENS / found.first_token if found.first_token > 0 else 1e9
    return Speeds(found.tokens_per_second, prompt)
