"""Parts of a spec that both kinds share."""

from typing import Annotated, Any, Literal

from pydantic import Field

from flexinfer.contracts.crds.fields import Duration, Free, Quantity, Wire, duration, rule, rules

Vendor = Literal["auto", "nvidia", "amd", "intel", "cpu"]

Backend = Annotated[str, Field(min_length=1, max_length=63, examples=["llamacpp"])]


class Gpu(Wire):
    """The accelerators one replica needs."""

    model_config = rules(
        rule(
            "self.vendor != 'cpu' || !has(self.count) || self.count == 0",
            "gpu.count must be omitted or 0 when gpu.vendor is cpu",
        ),
        rule(
            "self.vendor != 'cpu' || !has(self.arch)",
            "gpu.arch must be omitted when gpu.vendor is cpu",
        ),
    )

    vendor: Vendor = "auto"
    """Vendor of the accelerator; auto: the fastest measured in this cluster; cpu: none."""
    count: int | None = Field(None, ge=0, le=64)
    """Accelerators per replica. Unset: 1, or 0 where the model can only run on CPUs."""
    arch: str | None = Field(None, max_length=63)
    """Required architecture, for example sm_89 or gfx90a."""
    vram_estimate_mb: int | None = Field(None, ge=1, alias="vramEstimateMB")
    """Accelerator memory one replica needs, in MB. Unset: estimated from parameters, quantisation and context."""
    quantization: str | None = Field(None, max_length=63)
    """Format of the weights, for example Q4_K_M, awq, gptq, int4, fp8. Unset: read from the model's name."""


class Resources(Wire):
    """Requests and limits of the engine container; accelerators are asked for under gpu."""

    requests: dict[str, Quantity] = Field(default_factory=dict)
    """What the scheduler sets aside."""
    limits: dict[str, Quantity] = Field(default_factory=dict)
    """What the container may use at most."""


class EnvVar(Wire):
    """One environment variable of the engine container."""

    name: str = Field(min_length=1, max_length=253)
    """Name of the variable."""
    value: str | None = None
    """Its value."""
    value_from: Free | None = None
    """Where the value comes from: fieldRef, configMapKeyRef or secretKeyRef."""


class Toleration(Wire):
    """A taint the pods accept, as in a pod spec."""

    key: str | None = None
    """Taint key; unset with operator Exists: all."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """How value is compared."""
    value: str | None = None
    """Taint value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Taint effect; unset: all."""
    toleration_seconds: int | None = None
    """How long a NoExecute taint is tolerated; unset: for ever."""


class Service(Wire):
    """The Service in front of the replicas."""

    enabled: bool = True
    """False: no Service is made; the proxy routes to the pods either way."""
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Service type."""
    port: int | None = Field(None, ge=1, le=65535)
    """Port of the Service; unset: that of the engine."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the Service."""


class Benchmark(Wire):
    """How speed is measured before the model is deployed."""

    enabled: bool = True
    """False: deploy at once with unknown speed."""
    warmup_iterations: int = Field(2, ge=0, le=1000)
    """Requests sent first and not counted."""
    min_duration: Duration = duration("30s")
    """Least time spent measuring."""
    batch_size: int = Field(128, ge=1, le=100_000)
    """Completion tokens per request."""
    iterations: int = Field(5, ge=1, le=10_000)
    """Least number of measured requests."""
    concurrency: list[Annotated[int, Field(ge=1, le=4096)]] = Field([1, 8], min_length=1, max_length=16)
    """Streams at once, one run each; 1 gives the headline figure."""
    gate_timeout: Duration | None = None
    """Longest wait for results before the model is deployed anyway. Unset: the manager's setting (5m)."""


class LiteLlm(Wire):
    """Names under which clients may ask for the model besides its own."""

    enabled: bool = True
    """False: the names below are not served."""
    aliases: list[str] = Field(default_factory=list, max_length=32)
    """Additional model names."""
    served_model_name: str | None = Field(None, max_length=253)
    """One more name; earlier releases showed it to LiteLLM."""


def empty(part: type[Wire]) -> Any:
    """A field holding ``part`` with all defaults, written as ``{}`` in the schema so that the server fills them in."""
    return Field(default_factory=part, json_schema_extra={"default": {}})
