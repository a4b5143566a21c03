"""Event payloads, version 1: the facts that travel on the bus.

These msgspec structs are the single source of the wire format: they decode and validate on the hot edge, and
``schemas/`` is generated from them. Names on the wire are camelCase. Readers ignore unknown fields; ``None``
means "not known", never zero. Units are part of each name.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from flexinfer.contracts.drifted import BenchDrifted as BenchDrifted  # noqa: PLC0414 - re-exported
from flexinfer.contracts.event_parts import CachedModel as CachedModel  # noqa: PLC0414 - re-exported
from flexinfer.contracts.event_parts import GgufFacts as GgufFacts  # noqa: PLC0414 - re-exported
from flexinfer.contracts.event_parts import ModelAdapter as ModelAdapter  # noqa: PLC0414 - re-exported
from flexinfer.contracts.event_parts import ModelHeadroom as ModelHeadroom  # noqa: PLC0414 - re-exported
from flexinfer.contracts.event_parts import ShadowRanking as ShadowRanking  # noqa: PLC0414 - re-exported
from flexinfer.contracts.payload import Amount, Count, Name, Payload, Ratio
from flexinfer.contracts.payload import Percent as Percent  # noqa: PLC0414 - re-exported
from flexinfer.contracts.served import RequestServed as RequestServed  # noqa: PLC0414 - re-exported

Vendor = Literal["NVIDIA", "AMD", "INTEL"]
MemoryType = Literal["dedicated", "unified"]
NodeState = Literal["online", "draining", "offline"]
Phase = Literal["Pending", "Benchmarking", "Deploying", "Running", "Idle", "Failed", "Terminating"]


class Health(Payload, frozen=True, kw_only=True):
    """``state`` is ``ok``, ``degraded``, ``driver-error``, ``timeout`` or ``passthrough``; reasons say why."""

    state: str = "ok"
    reasons: tuple[str, ...] = ()


class Partition(Payload, frozen=True, kw_only=True):
    """A slice of a device: ``kind`` is ``mig``, ``cpx`` or ``vgpu``."""

    kind: str
    profile: str | None = None
    parent: str | None = None


class Device(Payload, frozen=True, kw_only=True):
    """One schedulable accelerator unit as its agent found it."""

    index: Count
    uuid: Name
    vendor: Vendor
    product: str | None = None
    arch: str | None = None
    pci: str | None = None
    memory_mib: Count | None = None
    memory_type: MemoryType | None = None
    partition: Partition | None = None
    int4: bool | None = None
    driver: str | None = None
    numa: int | None = None
    health: Health = Health()
    counted: bool = True  # whether a workload can be given this unit (rule D4: lost, vfio and MIG parents cannot)
    source: str | None = None


class Cpu(Payload, frozen=True, kw_only=True):
    """The node's processor and memory; ``avx512`` means avx512f on every core."""

    model: str | None = None
    threads: Count | None = None
    memory_mib: Count | None = None
    avx512: bool = False


class NodeHardware(Payload, frozen=True, kw_only=True):
    """Type ``ai.flexinfer.node.hardware.v1``. Replaces all that was known of the node's hardware."""

    node: Name
    devices: tuple[Device, ...] = ()
    cpu: Cpu = Cpu()
    labels: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it; as projected, prefix included
    virtual: bool = False  # declared, not detected
    agent_version: str = ""
    health: Health = Health()
    cached: tuple[CachedModel, ...] | UnsetType = UNSET  # weights that are here; unset: this node shares no cache


class DeviceTelemetry(Payload, frozen=True, kw_only=True):
    """Live figures of one device, matched to hardware by ``uuid``."""

    index: Count
    uuid: Name
    util_percent: Percent | None = None
    memory_used_mib: Count | None = None
    memory_free_mib: Count | None = None
    temperature_celsius: float | None = None
    power_watts: Amount | None = None
    sm_clock_mhz: Count | None = None
    throttle: tuple[str, ...] | None = None
    ecc_uncorrected: Count | None = None
    xid_last: int | None = None


class EngineTelemetry(Payload, frozen=True, kw_only=True):
    """Live figures of one engine pod on the node, read from its own metrics."""

    namespace: Name
    pod: Name
    model: str | None = None
    backend: str | None = None
    requests_running: Count | None = None
    requests_waiting: Count | None = None
    kv_cache_ratio: Ratio | None = None
    tokens_per_second: Amount | None = None


class NodeTelemetry(Payload, frozen=True, kw_only=True):
    """Type ``ai.flexinfer.node.telemetry.v1``. ``interval_seconds`` is the period it promises to keep."""

    node: Name
    interval_seconds: Annotated[float, Meta(gt=0)]
    devices: tuple[DeviceTelemetry, ...] = ()
    cpu_util_percent: Percent | None = None
    memory_free_mib: Count | None = None
    kv_cache_ratio: Ratio | None = None
    engines: tuple[EngineTelemetry, ...] = ()
    errors: tuple[str, ...] = ()


class NodeStatus(Payload, frozen=True, kw_only=True):
    """Type ``ai.flexinfer.node.status.v1``."""

    node: Name
    state: NodeState
    reason: str = ""


class PodMismatch(Payload, frozen=True, kw_only=True):
    """Type ``ai.flexinfer.node.mismatch.v1``: a pod bound here asks for other hardware; ``reasons`` are sentences."""

    node: Name
    namespace: Name
    pod: Name
    pod_uid: str = ""
    reasons: tuple[str, ...] = ()


class BenchSettings(Payload, frozen=True, kw_only=True):
    """What one benchmark run does; defaults are those of ``spec.benchmark``."""

    warmup_iterations: Count = 2
    iterations: Annotated[int, Meta(ge=1)] = 5
    min_duration_seconds: Amount = 30.0
    batch_size: Annotated[int, Meta(ge=1)] = 128  # completion tokens per request
    concurrency: tuple[Annotated[int, Meta(ge=1)], ...] = (1, 8)
    prompt_tokens: tuple[Annotated[int, Meta(ge=1)], ...] = (64,)


class BenchStarted(Payload, frozen=True, kw_only=True):
    """Type ``ai.flexinfer.bench.started.v1``."""

    key: Name
    namespace: Name
    model: Name
    device_class: Name
    settings: BenchSettings
    node: str | None = None


class BenchSample(Payload, frozen=True, kw_only=True):
    """Type ``ai.flexinfer.bench.sample.v1``: one request finished (or one warm-up)."""

    key: Name
    iteration: Count
    warmup: bool
    concurrency: Annotated[int, Meta(ge=1)]
    completion_tokens: Count
    duration_seconds: Amount
    tokens_per_second: Amount
    first_token_seconds: Amount | None = None
    engine_tokens_per_second: Amount | None = None  # the engine's own account of the same request
    planned_iterations: Count | None = None
    prompt_tokens: Count | None = None  # length the stage asks for


class CurvePoint(Payload, frozen=True, kw_only=True):
    """Aggregate throughput measured at one concurrency and prompt length."""

    concurrency: Annotated[int, Meta(ge=1)]
    prompt_tokens: Count
    tokens_per_second: Amount  # completion tokens of all streams / wall time
    per_request_tokens_per_second: Amount
    requests: Count
    errors: Count = 0


class Latencies(Payload, frozen=True, kw_only=True):
    """Quantiles in seconds."""

    p50: Amount
    p95: Amount
    p99: Amount


class BenchCompleted(Payload, frozen=True, kw_only=True):
    """Type ``ai.flexinfer.bench.completed.v1``: a whole result. State key: the benchmark key.

    ``tokens_per_second`` is the headline: the median over iterations of completion tokens / request duration at
    concurrency 1.
    """

    key: Name
    namespace: Name
    model: Name
    workload: Name  # what was served, whatever the hardware: core.fleet.identity
    source: str
    backend: str
    device_class: Name
    tokens_per_second: Annotated[float, Meta(gt=0)]
    iterations: Count
    duration_seconds: Amount
    node: str | None = None
    virtual: bool = False
    spread_percent: Amount | None = None  # (max - min) / median over the measured iterations
    engine_tokens_per_second: Amount | None = None
    decode_tokens_per_second: Amount | None = None
    first_token: Latencies | None = None
    inter_token: Latencies | None = None
    end_to_end: Latencies | None = None
    curve: tuple[CurvePoint, ...] = ()
    errors: Count = 0
    joules_per_token: Amount | None = None
    cost_per_million_tokens: Amount | None = None
    image: str = ""
    image_digest: str | None = None
    driver_major: str = ""
    settings: BenchSettings = BenchSettings()
    notes: tuple[str, ...] = ()


class BenchFailed(Payload, frozen=True, kw_only=True):
    """Type ``ai.flexinfer.bench.failed.v1``. ``reason`` is a CamelCase code; ``remedy`` says what to do."""

    key: Name
    namespace: Name
    model: Name
    reason: Name
    message: str
    remedy: str = ""
    device_class: str | None = None
    node: str | None = None


class Condition(Payload, frozen=True, kw_only=True):
    """``metav1.Condition`` without the fields only the API server needs."""

    type: Name
    status: Literal["True", "False", "Unknown"]
    reason: Name
    message: str = ""


class ModelPhase(Payload, frozen=True, kw_only=True):
    """Type ``ai.flexinfer.model.phase.v1``. ``gone`` retracts the state key: the object no longer exists."""

    namespace: Name
    model: Name
    kind: str
    phase: Phase
    reason: str
    message: str
    previous: Phase | None = None
    conditions: tuple[Condition, ...] = ()
    replicas: Count = 0
    ready_replicas: Count = 0
    gone: bool = False


class Endpoint(Payload, frozen=True, kw_only=True):
    """One engine instance that answers; ``url`` has scheme, host and port and no path."""

    url: Name
    pod: Name
    state: Literal["ready", "draining"] = "ready"
    node: str | None = None
    device_class: str | None = None
    tokens_per_second: Amount | None = None


class ModelEndpoint(Payload, frozen=True, kw_only=True):
    """Type ``ai.flexinfer.model.endpoint.v1``: every address of one routable name.

    A hidden alias (``bench-<key>``) is left out of ``/v1/models`` and never joins another pool. An empty list
    with ``gone`` false is a model at zero; ``gone`` retracts the state key.
    """

    namespace: Name
    model: Name
    backend: str
    served_model: str = ""  # the name the engine expects in the body; empty: as the client sent it
    aliases: tuple[str, ...] = ()
    adapters: tuple[ModelAdapter, ...] | UnsetType = UNSET
    endpoints: tuple[Endpoint, ...] = ()
    hidden: bool = False
    wakeable: bool = False  # a request may scale it up from zero
    balancing: str = "measured"
    cold_start_timeout_seconds: Amount = 300.0
    failure: str = ""  # why a cold start cannot succeed now; empty: it can
    gone: bool = False


class ModelDemand(Payload, frozen=True, kw_only=True):
    """Type ``ai.flexinfer.model.demand.v1``: requests waiting at one proxy for a model with no endpoint."""

    namespace: Name
    model: Name
    proxy: Name
    waiting: Count
    oldest_age_seconds: Amount = 0.0


class ModelLoad(Payload, frozen=True, kw_only=True):
    """Type ``ai.flexinfer.model.load.v1``: what one proxy is doing for one model."""

    namespace: Name
    model: Name
    proxy: Name
    outstanding: Count
    requests_per_second: Amount = 0.0
    tokens_per_second: Amount = 0.0
    last_used: Annotated[datetime, Meta(tz=True)] | None = None


class Term(Payload, frozen=True, kw_only=True):
    """One signed part of a placement sum: ``contribution = weight * value`` with the sign applied."""

    name: Name
    value: float
    weight: float
    contribution: float
    age_seconds: float | None = None
    note: str = ""


class Candidate(Payload, frozen=True, kw_only=True):
    """One node that passed the filters, as it was ranked."""

    node: Name
    score: Annotated[int, Meta(ge=0, le=10)]
    sum: float
    terms: tuple[Term, ...] = ()


class PlacementDecided(Payload, frozen=True, kw_only=True):
    """Type ``ai.flexinfer.placement.decided.v1``: one attempt of one pod (at most the 20 best candidates)."""

    namespace: Name
    pod: Name
    pod_uid: str
    outcome: Literal["ranked", "single", "rejected", "error"]
    demand: dict[str, Any]
    candidates: tuple[Candidate, ...] = ()
    considered: Count = 0
    reasons: dict[str, int] = {}  # noqa: RUF012 - msgspec copies it; sentence -> number of nodes
    model: str = ""
    best_sum: float | None = None
    worst_sum: float | None = None
    view_digest: str = ""
    degraded: bool = False
    message: str = ""
    shadow: ShadowRanking | UnsetType = UNSET  # left out when no other weights were given


class ClusterHeadroom(Payload, frozen=True, kw_only=True):
    """Type ``ai.flexinfer.cluster.headroom.v1``."""

    proxy: Name
    url: Name
    models: tuple[ModelHeadroom, ...] = ()


EventData = (
    NodeHardware
    | NodeTelemetry
    | NodeStatus
    | PodMismatch
    | BenchStarted
    | BenchSample
    | BenchCompleted
    | BenchFailed
    | BenchDrifted
    | ModelPhase
    | ModelEndpoint
    | ModelDemand
    | ModelLoad
    | PlacementDecided
    | ClusterHeadroom
    | RequestServed
)
