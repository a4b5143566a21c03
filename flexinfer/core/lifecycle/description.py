"""One internal description for both kinds; everything after it does not know which kind a user wrote."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from flexinfer.contracts.events import BenchSettings
from flexinfer.contracts.kubernetes import Object
from flexinfer.core.lifecycle.sources import Source

Vendor = Literal["auto", "nvidia", "amd", "intel", "cpu"]


class ModelKey(NamedTuple):
    """Which object: ``ModelDeployment`` or ``Model``, its namespace and name."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Demand:
    """The hardware of one replica. ``count`` None: one accelerator, or none where only CPUs can run it.

    ``vram_estimated``: the user does not say; ``vram_read``: then it comes from the model's file, not from its name.
    ``context`` tokens (None: not set) and ``streams`` are what memory depends on.
    """

    vendor: Vendor = "auto"
    count: int | None = None
    arch: str | None = None
    vram_mb: int | None = None
    vram_estimated: bool = False
    quantization: str | None = None
    vram_read: bool = False
    context: int | None = None
    streams: int = 1


@dataclass(frozen=True, slots=True)
class Scale:
    """``active`` replicas while in use, ``floor`` while idle for ``idle_seconds`` (0: never idle)."""

    active: int = 1
    floor: int = 0
    idle_seconds: float = 300.0
    cold_start_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Measure:
    """Whether and how speed is measured; ``gate_seconds`` None: the manager's setting."""

    enabled: bool = True
    settings: BenchSettings = field(default_factory=BenchSettings)
    gate_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ServiceWish:
    """The Service in front of the replicas; ``port`` None: that of the engine."""

    enabled: bool = True
    type: str = "ClusterIP"
    port: int | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Storage:
    """Where downloaded weights go: ``none`` (with the pod), ``memory``, or ``claim`` (``claim`` names it; ``make``:
    the manager creates it)."""

    kind: Literal["none", "memory", "claim"] = "none"
    claim: str = ""
    make: bool = False
    size: str = "50Gi"
    storage_class: str | None = None


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter: the name clients ask for, where it comes from (``file``: a path in the engine container), and
    for llama.cpp how strongly it counts (None: 1)."""

    name: str
    source: Source
    scale: float | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """Everything a user asked for, checked and with defaults filled in. ``options`` are engine options by name."""

    key: ModelKey
    uid: str
    generation: int
    backend: str
    source: Source
    workload: str
    source_secret: str = ""  # name of the Secret with credentials for the source
    image: str | None = None
    demand: Demand = Demand()
    scale: Scale = Scale()
    measure: Measure = Measure()
    service: ServiceWish = ServiceWish()
    storage: Storage = Storage()
    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Object, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Object, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    adapters: tuple[Adapter, ...] = ()
    port: int | None = None
    aliases: tuple[str, ...] = ()
    priority: int | None = None
    balancing: str = "measured"
    ignored: tuple[tuple[str, str], ...] = ()  # (field, what to do instead)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a spec cannot work: a CamelCase reason, the field, and a sentence with the remedy."""

    reason: str
    field: str
    message: str

    @property
    def sentence(self) -> str:
        """``spec.backend: …``."""
        return f"{self.field}: {self.message}" if self.field else self.message
