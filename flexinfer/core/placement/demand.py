"""What a pod demands of a node, read from its annotations and resource requests."""

from dataclasses import dataclass
from typing import Any

from flexinfer.contracts.extender import PodObject
from flexinfer.contracts.labels import (
    POD_ARCH,
    POD_BACKEND,
    POD_BENCHMARK_KEY,
    POD_MODEL,
    POD_QUANTIZATION,
)
from flexinfer.core.fleet.pods import Ask, ask_of

MAX_TEXT = 253


@dataclass(frozen=True, slots=True)
class Demand:
    """Equal demands get equal answers, so a Demand is the key of every cache. ``archs`` empty: any."""

    ask: Ask
    archs: tuple[str, ...] = ()
    quantization: str = ""
    backend: str = ""
    model: str = ""
    workload: str = ""

    @property
    def per_device_mib(self) -> float:
        """Memory needed on each device: an engine splits a model evenly over the devices it gets."""
        return self.ask.memory_mib / max(self.ask.devices, 1)

    def describe(self) -> dict[str, Any]:
        """For explanations: only what was asked."""
        found: dict[str, Any] = {
            "model": self.model,
            "backend": self.backend,
            "benchmarkKey": self.workload,
            "vendor": self.ask.vendor,
            "devices": self.ask.devices,
            "partition": self.ask.partition,
            "memoryMib": round(self.ask.memory_mib),
            "arch": ",".join(self.archs),
            "quantization": self.quantization,
            "notes": list(self.ask.notes),
        }
        return {key: value for key, value in found.items() if value not in ("", 0, [])}


def demand_of(pod: PodObject) -> Demand:
    """The demand of a pod; never raises."""
    annotations = pod.metadata.annotations or {}

    def text(key: str) -> str:
        return annotations.get(key, "").strip()[:MAX_TEXT]

    archs = tuple(part for part in (one.strip().lower() for one in text(POD_ARCH).split(",")) if part)
    return Demand(
        ask_of(pod),
        archs,
        text(POD_QUANTIZATION).lower(),
        text(POD_BACKEND).lower(),
        text(POD_MODEL),
        text(POD_BENCHMARK_KEY),
    )
