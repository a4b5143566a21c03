"""What the agent knows of its node right now, and who wants to hear when that changes."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from flexinfer.contracts.events import CachedModel, Cpu, EngineTelemetry, NodeHardware, NodeTelemetry, Vendor
from flexinfer.core.hardware.findings import Findings, Unit
from flexinfer.core.hardware.inventory import VENDORS, Inventory, take
from flexinfer.core.hardware.projection import Figures, annotations_of, cache_labels, figures_of, labels_of
from flexinfer.core.hardware.telling import hardware_event, kv_ratio


@dataclass(frozen=True, slots=True)
class Station:
    """Who the agent is: node, label prefix, version, its two periods in seconds; ``virtual`` if declared, not real;
    ``caches`` if it keeps a cache of models."""

    node: str
    prefix: str
    version: str
    interval: float
    telemetry_interval: float
    virtual: bool = False
    caches: bool = False


@dataclass(slots=True)
class Board:
    """One writer per part; readers take what is there. ``hardware`` is None until the first probes have reported."""

    station: Station
    cpu: Cpu
    findings: dict[Vendor, Findings] = field(default_factory=dict)
    inventory: Inventory | None = None
    hardware: NodeHardware | None = None
    labels: dict[str, str] = field(default_factory=dict)
    engines: tuple[EngineTelemetry, ...] | None = None
    telemetry: NodeTelemetry | None = None
    errors: dict[str, str] = field(default_factory=dict)
    cached: tuple[CachedModel, ...] | UnsetType = UNSET
    _listeners: list[asyncio.Event] = field(default_factory=list)

    def listen(self) -> asyncio.Event:
        """An event that is set at each change of ``hardware`` or ``labels``; the listener clears it."""
        event = asyncio.Event()
        self._listeners.append(event)
        return event

    def settle(self, findings: Iterable[Findings]) -> bool:
        """Take in probes; True if the node's hardware or labels changed by them."""
        for found in findings:
            self.findings[found.vendor] = found
        ordered = [self.findings[vendor] for vendor in VENDORS if vendor in self.findings]
        self.inventory = take(ordered, self.cpu)
        self.labels = labels_of(self.inventory, self.station.prefix)
        told = hardware_event(
            self.station.node, self.inventory, self.labels, self.station.version, virtual=self.station.virtual
        )
        return self._tell(replace(told, cached=self.cached))

    def shelve(self, cached: tuple[CachedModel, ...]) -> None:
        """Take in what the node's cache holds; it travels with the hardware."""
        self.cached = cached
        if self.hardware is not None:
            self._tell(replace(self.hardware, cached=cached))

    @property
    def cache_labels(self) -> dict[str, str] | None:
        """Labels that tell what the cache holds, prefix included; None until it was looked at."""
        if isinstance(self.cached, UnsetType):
            return None if self.station.caches else {}
        return cache_labels(self.cached, self.station.prefix)

    def _tell(self, told: NodeHardware) -> bool:
        if told == self.hardware:
            return False
        self.hardware = told
        for event in self._listeners:
            event.set()
        return True

    @property
    def units(self) -> Sequence[Unit]:
        """All units with their newest figures."""
        return [unit for vendor in VENDORS if vendor in self.findings for unit in self.findings[vendor].units]

    @property
    def counted(self) -> frozenset[str]:
        """uuids of the units a workload could be given, of the vendor that speaks for the node."""
        return frozenset(unit.uuid for unit in self.inventory.counted) if self.inventory else frozenset()

    @property
    def figures(self) -> Figures:
        """The moving annotations as numbers: the speaking vendor's counted units only."""
        counted = self.counted
        return figures_of([unit for unit in self.units if unit.uuid in counted], kv_ratio(self.engines))

    def annotations(self, figures: Figures) -> dict[str, str]:
        """The annotations of these figures, prefix included."""
        devices = self.inventory.devices if self.inventory else ()
        return annotations_of(figures, devices, self.station.prefix)
