"""What a pod demands of a node, read from its annotations and resource requests."""

from dataclasses import dataclass
from typing import Any

from flexinfer.contracts.extender import PodObject
from flexinfer.contracts.labels import (
    POD_ARCH,
    POD_BACKEND,
    POD_BENCHMARK_KEY,
    POD_CACHE_ENTRY,
    POD_MODEL,
    POD_QUANTIZATION,
)
from flexinfer.core.fleet.pods import Ask, ask_of
from flexinfer.core.placement.quantization import Need, need_of

MAX_TEXT = 253
MAX_LIST = 4096
NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Kind:
    """The part of a demand that says which devices are looked at, whatever the model's size and name.

    ``devices`` 0 is a demand on the processor. ``vendor`` and ``partition`` empty, ``archs`` empty: any.
    """

    vendor: str
    devices: int
    partition: str = ""
    archs: tuple[str, ...] = ()
    need: Need = "nothing"


@dataclass(frozen=True, slots=True)
class Demand:
    """Equal demands get equal answers. ``workload`` is the benchmark key of the pod, ``entries`` name its weights as
    nodes' caches do."""

    ask: Ask
    kind: Kind
    quantization: str = ""
    backend: str = ""
    model: str = ""
    workload: str = ""
    entries: frozenset[str] = frozenset()

    @property
    def per_device_mib(self) -> float:
        """Memory needed on each device: an engine splits a model evenly over the devices it gets."""
        return self.ask.memory_mib / self.kind.devices if self.kind.devices else 0.0

    def describe(self) -> dict[str, Any]:
        """For explanations: only what was asked."""
        notes = list(self.ask.notes)
        if self.kind.need == "unknown":
            notes.append(f"quantization {self.quantization!r} is not in the table: every device passes")
        found: dict[str, Any] = {
            "model": self.model,
            "backend": self.backend,
            "benchmarkKey": self.workload,
            "cacheEntries": ",".join(sorted(self.entries)),
            "vendor": self.ask.vendor,
            "devices": self.ask.devices,
            "partition": self.ask.partition,
            "memoryMib": round(self.ask.memory_mib),
            "arch": ",".join(self.kind.archs),
            "quantization": self.quantization,
            "notes": notes,
        }
        return {key: value for key, value in found.items() if value not in ("", 0, [])}


def demand_of(pod: PodObject) -> Demand:
    """The demand of a pod; never raises."""
    annotations = pod.metadata.annotations or {}

    def text(key: str) -> str:
        return annotations.get(key, "").strip()[:MAX_TEXT]

    ask = ask_of(pod)
    backend, form = text(POD_BACKEND).lower(), text(POD_QUANTIZATION).lower()
    named = text(POD_ARCH).lower()
    archs = tuple(sorted({part for part in map(str.strip, named.split(",")) if part})) if named else ()
    kind = Kind(ask.vendor, ask.devices, ask.partition, archs, need_of(backend, form)) if ask.devices else PROCESSOR
    written = annotations.get(POD_CACHE_ENTRY, "")[:MAX_LIST]
    entries = frozenset(filter(None, map(str.strip, written.split(",")))) if written else NOTHING
    return Demand(ask, kind, form, backend, text(POD_MODEL), text(POD_BENCHMARK_KEY), entries)


PROCESSOR = Kind("CPU", 0)
