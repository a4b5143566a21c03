"""``status`` of both kinds: observed, never assumed."""

from typing import Literal

from pydantic import Field

from flexinfer.contracts.crds.fields import Wire

PhaseName = Literal["Pending", "Benchmarking", "Deploying", "Running", "Idle", "Failed", "Terminating"]


class StatusCondition(Wire):
    """``metav1.Condition``."""

    type: str = Field(min_length=1, max_length=316)
    """CamelCase name of the condition."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: str = Field(min_length=1, max_length=1024)
    """CamelCase code of the reason."""
    message: str = Field("", max_length=32768)
    """The reason as a sentence."""
    last_transition_time: str = Field(json_schema_extra={"format": "date-time"})
    """When status last changed."""
    observed_generation: int = Field(0, ge=0)
    """metadata.generation this was computed from."""


class StatusEndpoint(Wire):
    """One replica that serves."""

    url: str
    """Base URL without a path."""
    node: str = ""
    """Node it runs on."""
    device_class: str = ""
    """Device class of that node for this model."""
    tokens_per_second: float | None = Field(None, ge=0)
    """Measured speed on that class; unset: not measured."""


class StatusBenchmark(Wire):
    """One measured device class."""

    device_class: str
    """Hardware the figure is valid for."""
    tokens_per_second: float = Field(ge=0)
    """Median completion tokens per second of one stream."""
    observed_at: str = Field("", json_schema_extra={"format": "date-time"})
    """When it was measured."""


class Status(Wire):
    """What the manager last observed."""

    phase: PhaseName | None = None
    """Where the model is in its life."""
    conditions: list[StatusCondition] = Field(
        [], json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    )
    """Available, Progressing, ReplicaFailure, BenchmarkComplete, NodeSelected."""
    replicas: int = Field(0, ge=0)
    """Pods that exist."""
    ready_replicas: int = Field(0, ge=0)
    """Pods that serve."""
    selector: str = ""
    """Label selector of the pods, for the scale subresource."""
    endpoints: list[StatusEndpoint] = Field(default_factory=list)
    """Replicas that serve."""
    benchmarks: list[StatusBenchmark] = Field(default_factory=list)
    """Measured device classes."""
    tokens_per_second: str = ""
    """Measured speed where it runs, else the best measured, with one decimal; for the printer column."""
    observed_generation: int = Field(0, ge=0)
    """metadata.generation the status was computed from."""
