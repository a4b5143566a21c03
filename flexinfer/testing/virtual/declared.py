"""A virtual fleet as declared in YAML, validated so that an impossible one is refused with path and reason."""

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from flexinfer.config.common import Duration

_SIZES = {"Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}
_ARCHES = {"NVIDIA": r"sm_\d{2,3}", "AMD": r"gfx[0-9a-f]{3,5}", "INTEL": r"[a-z0-9-]+"}
MAX_NODES = 1000


class ImpossibleFleet(ValueError):
    """A file that cannot be read or cannot be a fleet: which file, where in it, and why, in one sentence."""


def _mebibytes(value: object) -> object:
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(Mi|Gi|Ti)", value)
    if not found:
        raise ValueError(f"{value!r} is not a memory size; write 12Gi or 8192Mi")
    return round(float(found[1]) * _SIZES[found[2]])


Mebibytes = Annotated[int, BeforeValidator(_mebibytes), Field(gt=0)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=63)]
Percent = Annotated[float, Field(ge=0, le=100)]


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Gpu(_Declared):
    """``count`` equal accelerators."""

    vendor: Literal["NVIDIA", "AMD", "INTEL"]
    product: str = Field(min_length=1, max_length=63)
    arch: str
    memory: Mebibytes
    count: int = Field(default=1, ge=1, le=16)
    memory_type: Literal["dedicated", "unified"] = "dedicated"
    driver: str = "1.0"

    @model_validator(mode="after")
    def _arch_of_vendor(self) -> "Gpu":
        if not re.fullmatch(_ARCHES[self.vendor], self.arch):
            raise ValueError(f"arch {self.arch!r} is none of {self.vendor}; examples: sm_86, gfx1100, xe-hpg")
        return self


class CpuShape(_Declared):
    """Processor and main memory."""

    model: str = "Virtual CPU"
    threads: int = Field(default=8, ge=1, le=1024)
    memory: Mebibytes = 32 * 1024
    avx512: bool = False


class Speed(_Declared):
    """What an engine on this node gives: tokens/s of one stream, and seconds to the first token."""

    tokens_per_second: float = Field(gt=0, le=100_000)
    first_token: Duration = 0.05


class Pattern(_Declared):
    """Utilisation over time: ``base`` plus a sine of ``amplitude`` and ``period``, plus uniform noise."""

    base: Percent = 0.0
    amplitude: Percent = 0.0
    period: Duration = 60.0
    noise: Percent = 0.0
    temperature: float = Field(default=45.0, ge=0, le=120)
    power: float = Field(default=40.0, ge=0, le=2000)

    @model_validator(mode="after")
    def _period_is_no_instant(self) -> "Pattern":
        if self.period <= 0:
            raise ValueError("period must be longer than 0 s")
        return self


class NodeFault(_Declared):
    """Something that goes wrong ``at`` seconds after the start, ``for`` so long (0: for ever).

    ``silent``: the agent says nothing; ``lost-device``: the first device is lost; ``draining``: a shutdown notice;
    ``slow``: engines started meanwhile give a tenth of the declared speed.
    """

    kind: Literal["silent", "lost-device", "draining", "slow"]
    at: Duration
    lasting: Duration = Field(default=0.0, alias="for")


class VirtualNode(_Declared):
    """One declared node, or ``replicas`` of them."""

    name: Name
    replicas: int = Field(default=1, ge=1, le=MAX_NODES)
    gpus: tuple[Gpu, ...] = ()
    cpu: CpuShape = CpuShape()
    speed: Speed
    speeds: dict[str, Speed] = {}
    cost: float | None = Field(default=None, ge=0)
    telemetry: Pattern = Pattern()
    faults: tuple[NodeFault, ...] = ()

    @model_validator(mode="after")
    def _lost_needs_a_device(self) -> "VirtualNode":
        if not self.gpus and any(fault.kind == "lost-device" for fault in self.faults):
            raise ValueError("a lost-device fault needs gpus")
        return self

    def speed_of(self, model: str) -> Speed:
        """The declared speed for a model: the first matching pattern of ``speeds``, else ``speed``."""
        for pattern, speed in self.speeds.items():
            if fnmatchcase(model, pattern):
                return speed
        return self.speed


class VirtualFleet(_Declared):
    """The whole file. ``seed`` makes every noise repeatable."""

    seed: int = 0
    telemetry_interval: Duration = 2.0
    nodes: tuple[VirtualNode, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_unique(self) -> "VirtualFleet":
        names = [name for node in self.nodes for name in names_of(node)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"node name {twice[0]!r} is used twice")
        if len(names) > MAX_NODES:
            raise ValueError(f"{len(names)} nodes are more than {MAX_NODES}")
        if self.telemetry_interval <= 0:
            raise ValueError("telemetry_interval must be longer than 0 s")
        return self

    def expanded(self) -> tuple[VirtualNode, ...]:
        """One entry per node, replicas numbered from 1."""
        return tuple(
            node.model_copy(update={"name": name, "replicas": 1}) for node in self.nodes for name in names_of(node)
        )


def names_of(node: VirtualNode) -> tuple[str, ...]:
    """The node's own name, or ``name-1 … name-n``."""
    if node.replicas == 1:
        return (node.name,)
    return tuple(f"{node.name}-{number}" for number in range(1, node.replicas + 1))


def parse_fleet(document: Any, where: str) -> VirtualFleet:
    """Validate a decoded document. Raises ImpossibleFleet with the path inside the file and the reason."""
    try:
        return VirtualFleet.model_validate(document)
    except ValidationError as err:
        first = err.errors()[0]
        path = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ImpossibleFleet(f"{where}: {path}: {first['msg'].removeprefix('Value error, ')}") from err


def load_fleet(path: Path) -> VirtualFleet:
    """Read and validate a fleet file. Raises ImpossibleFleet."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as err:
        raise ImpossibleFleet(f"{path}: cannot be read: {err}") from err
    except yaml.YAMLError as err:
        raise ImpossibleFleet(f"{path}: is not YAML: {' '.join(str(err).split())}") from err
    return parse_fleet(document, str(path))
