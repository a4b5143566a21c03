"""Fleets, pods and results for placement tests; NOW is the only time there is."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import (
    BenchCompleted,
    CachedModel,
    Cpu,
    Device,
    DeviceTelemetry,
    NodeHardware,
    NodeStatus,
    NodeTelemetry,
    PlacementDecided,
)
from flexinfer.contracts.extender import PodObject
from flexinfer.contracts.kubernetes import KubeDelta
from flexinfer.core.fleet.fold import fold
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.hardware.device_class import device_class
from flexinfer.core.placement.boards import Verdicts
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.roster import Asked
from flexinfer.core.placement.scoring import Weights

NOW = 1_800_000_000.0
CARDS: dict[str, dict[str, Any]] = {
    "4090": {"product": "NVIDIA GeForce RTX 4090", "arch": "sm_89", "memory_mib": 24564, "vendor": "NVIDIA"},
    "3090": {"product": "NVIDIA GeForce RTX 3090", "arch": "sm_86", "memory_mib": 24576, "vendor": "NVIDIA"},
    "4080": {"product": "NVIDIA GeForce RTX 4080", "arch": "sm_89", "memory_mib": 16376, "vendor": "NVIDIA"},
    "7900": {"product": "AMD Radeon RX 7900 XTX", "arch": "gfx1100", "memory_mib": 24560, "vendor": "AMD"},
    "p40": {"product": "NVIDIA Tesla P40", "arch": "sm_61", "memory_mib": 24576, "vendor": "NVIDIA"},
}


def card(kind: str, index: int = 0, node: str = "n", **changes: Any) -> Device:
    """One device; all but P40 have int4."""
    return Device(**({"index": index, "uuid": f"{node}-{index}", "int4": kind != "p40"} | CARDS[kind] | changes))


class Fleet:
    """Builds a view event by event, as agents and benches would."""

    def __init__(self) -> None:
        self.view = FleetView()
        self.now = NOW
        self._mints: dict[str, EventMint] = {}

    def _mint(self, source: str) -> EventMint:
        return self._mints.setdefault(source, EventMint.start("agent", source, "boot-1", lambda: self.now))

    def tell(self, source: str, data: Any, at: float | None = None) -> None:
        """Fold one event of ``source``."""
        fold(self.view, self._mint(source).mint(data, at), self.now)

    def node(self, name: str, *kinds: str, cpu: Cpu | None = None, cost: float | None = None, **live: Any) -> None:
        """A node with these cards and, unless ``live`` has ``silent``, telemetry with them idle. ``held``: entries of
        its shared cache; without, it shares none."""
        devices = tuple(card(kind, index, name) for index, kind in enumerate(kinds))
        held = live.pop("held", None)
        cached = UNSET if held is None else tuple(CachedModel(entry=entry, source="hf://m", bytes=1) for entry in held)
        cpu = cpu or Cpu(model="AMD EPYC", threads=16)
        self.tell(name, NodeHardware(node=name, devices=devices, cpu=cpu, cached=cached))
        self.view.node(name).cost = cost
        if not live.pop("silent", False):
            self.live(name, **live)

    def live(self, name: str, util: float = 0.0, free: float = 1.0, at: float | None = None, **more: Any) -> None:
        """Telemetry with the same figures on every device; ``free`` as a share."""
        hardware = self.view.nodes[name].hardware
        assert hardware is not None
        devices = tuple(
            DeviceTelemetry(
                index=d.index, uuid=d.uuid, util_percent=util, memory_free_mib=int((d.memory_mib or 0) * free)
            )
            for d in hardware.devices
        )
        self.tell(name, NodeTelemetry(node=name, interval_seconds=2.0, devices=devices, **more), at)

    def bind(self, name: str, pod: PodObject) -> None:
        """The Pod watch shows the pod on a node."""
        body = msgspec.to_builtins(pod)
        body["spec"]["nodeName"] = name
        fold(self.view, KubeDelta(plural="pods", action="MODIFIED", object=body), self.now)

    def status(self, name: str, state: Any) -> None:
        """Agent status."""
        self.tell(name, NodeStatus(node=name, state=state))

    def result(self, workload: str, kind: str, speed: float, count: int = 1, driver: str = "") -> None:
        """A result measured on this card."""
        name = device_class(card(kind), count)
        key = f"{workload}-{kind}-{count}-{driver or 'x'}"
        self.tell(
            key,
            BenchCompleted(
                key=key, namespace="default", model="m", workload=workload, source="hf://m", backend="vllm",
                device_class=name, tokens_per_second=speed, iterations=5, duration_seconds=30.0, driver_major=driver,
            ),
        )  # fmt: skip


class Asking:
    """A desk asked with plain names, as of the fleet's present."""

    def __init__(self, fleet: Fleet, weights: Weights | None = None) -> None:
        self.fleet = fleet
        self.desk = Desk(fleet.view, weights or Weights())
        self._last: PlacementDecided | None = None

    def filter(self, pod: PodObject, names: Sequence[str]) -> Verdicts:
        return self.desk.filter(pod, Asked(names), self.fleet.now)

    def prioritize(self, pod: PodObject, names: Sequence[str]) -> list[tuple[str, int]]:
        found = self.desk.prioritize(pod, Asked(names), self.fleet.now)
        return list(zip(found.asked.names, found.ranking.translated(range(10, -1, -1)), strict=True))

    def decided(self) -> PlacementDecided:
        """The newest decision."""
        while (found := self.desk.take()) is not None:
            self._last = found
        assert self._last is not None
        return self._last


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture(scope="session")
def make_fleet() -> type[Fleet]:
    """For property tests, which need a new fleet for each example."""
    return Fleet


@pytest.fixture
def asking() -> type[Asking]:
    return Asking


@pytest.fixture(scope="session")
def pod() -> Callable[..., PodObject]:
    def make(name: str = "p", gpus: int | str = 1, resource: str = "nvidia.com/gpu", **annotations: str) -> PodObject:
        keys = {
            "key": "flexinfer.ai/benchmark-key", "vram": "flexinfer.ai/gpu.vram-estimate-mb",
            "arch": "flexinfer.ai/gpu.arch", "vendor": "flexinfer.ai/gpu.vendor",
            "quantization": "flexinfer.ai/quantization", "backend": "flexinfer.ai/backend",
            "entries": "flexinfer.ai/cache-entry",
        }  # fmt: skip
        resources = {"limits": {resource: gpus}} if gpus else {}
        return msgspec.convert(
            {
                "metadata": {
                    "name": name, "namespace": "default", "uid": f"uid-{name}",
                    "annotations": {keys[key]: value for key, value in annotations.items()},
                },
                "spec": {"containers": [{"name": "c", "resources": resources}]},
            },
            PodObject,
        )  # fmt: skip

    return make
