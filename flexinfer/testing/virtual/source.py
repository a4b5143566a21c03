"""Declared hardware in the place of drivers and tools, so that the real agent's loops speak for virtual nodes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import EngineTelemetry, Vendor
from flexinfer.core.hardware.findings import Findings, Live, with_live
from flexinfer.core.hardware.inventory import VENDORS
from flexinfer.core.hardware.machine import Memory
from flexinfer.ports import Publisher
from flexinfer.testing.virtual import signals
from flexinfer.testing.virtual.declared import VirtualNode

BUSY_REQUESTS = 4  # an engine that answers so many at once shows as fully loaded


@dataclass(slots=True)
class Scene:
    """One virtual node over time. ``elapsed`` gives seconds since the start; ``used_mib`` what its pods claim."""

    node: VirtualNode
    seed: int
    elapsed: Callable[[], float]
    used_mib: Callable[[], int] = lambda: 0
    engines: Callable[[], tuple[EngineTelemetry, ...] | None] = lambda: None

    def load(self) -> float:
        """0..1, from the requests its engines are answering."""
        running = sum(engine.requests_running or 0 for engine in self.engines() or ())
        return min(running / BUSY_REQUESTS, 1.0)

    def busy(self) -> float:
        """Utilisation of the processors in percent."""
        base = signals.utilisation(self.node, self.elapsed(), self.seed, -1)
        return round(min(base + (0.0 if self.node.gpus else 100 * self.load()), 100.0), 2)

    def memory(self) -> Memory:
        """Main memory; pods of a node without GPUs live in it."""
        total = self.node.cpu.memory
        return Memory(total, max(total - (0 if self.node.gpus else self.used_mib()), 0))

    def silent(self) -> bool:
        """Whether the agent is declared to say nothing now."""
        return "silent" in signals.active(self.node, self.elapsed())


class DeclaredSource:
    """ports.HardwareSource of one vendor's declared devices."""

    period = 0.0

    def __init__(self, scene: Scene, vendor: Vendor) -> None:
        self._scene = scene
        self.vendor: Vendor = vendor

    async def find(self) -> Findings:
        """The devices as declared for this moment, with their figures, as a real probe has them."""
        found = signals.findings(self._scene.node, self._scene.elapsed())
        return with_live(next(each for each in found if each.vendor == self.vendor), await self.sample())

    async def sample(self) -> Mapping[str, Live]:
        """Their figures now."""
        scene = self._scene
        return signals.live(scene.node, scene.elapsed(), scene.seed, scene.used_mib(), scene.load())


def sources_of(scene: Scene) -> tuple[DeclaredSource, ...]:
    """One source per vendor the node declares."""
    vendors = {gpu.vendor for gpu in scene.node.gpus}
    return tuple(DeclaredSource(scene, vendor) for vendor in VENDORS if vendor in vendors)


class Muted:
    """The bus as a node with a ``silent`` fault sees it: what it says is lost while the fault holds."""

    def __init__(self, bus: Publisher, scene: Scene) -> None:
        self._bus = bus
        self._scene = scene

    async def publish(self, event: Event, *, durable: bool = False) -> None:
        """Like ``Bus.publish``."""
        if not self._scene.silent():
            await self._bus.publish(event, durable=durable)
