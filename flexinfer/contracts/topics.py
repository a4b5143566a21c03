"""Which event goes where: type, subject, state bucket and key, whether the log keeps it.

This table is the subject contract (``flexinfer.v1.<cluster>.<family>...``). Adapters and generated schemas read
it; nobody builds a subject by hand.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from flexinfer.contracts import events as e

PREFIX = "flexinfer.v1"
DEFAULT_CLUSTER = "default"

Bucket = Literal["nodes", "bench", "models", "demand"]
BUCKETS: tuple[Bucket, ...] = ("nodes", "bench", "models", "demand")
DEMAND_TTL_SECONDS = 10.0
LOG_STREAM = "FLEXINFER_LOG"


def token(name: str) -> str:
    """A Kubernetes name as one subject token. Names never hold ``_``, so ``untoken`` reverses it."""
    return name.replace(".", "_")


def untoken(part: str) -> str:
    """The Kubernetes name a subject token stands for."""
    return part.replace("_", ".")


@dataclass(frozen=True, slots=True)
class Topic:
    """One event type.

    ``tokens`` gives the subject after ``flexinfer.v1.<cluster>.`` as a tuple; ``wildcard`` is the same with ``*``.
    ``key`` gives the state key inside ``bucket`` (None: no state). ``retracts`` tells that the payload removes
    its state key instead of writing it. ``log`` is how the log stream keeps it: every event, a sample, or none.
    """

    name: str
    data: type[e.EventData]
    wildcard: str
    tokens: Callable[[Any], tuple[str, ...]]
    bucket: Bucket | None = None
    key: Callable[[Any], str] | None = None
    retracts: Callable[[Any], bool] = field(default=lambda _data: False)
    log: Literal["all", "sampled", "none"] = "all"
    producer: str = ""
    when: str = ""


def _node(noun: str) -> Callable[[Any], tuple[str, ...]]:
    return lambda d: ("node", token(d.node), noun)


def _bench(verb: str) -> Callable[[Any], tuple[str, ...]]:
    return lambda d: ("bench", token(d.key), verb)


def _model(noun: str) -> Callable[[Any], tuple[str, ...]]:
    return lambda d: ("model", token(d.namespace), token(d.model), noun)


def _per_proxy(noun: str) -> Callable[[Any], tuple[str, ...]]:
    return lambda d: ("model", token(d.namespace), token(d.model), noun, token(d.proxy))


def _node_key(noun: str) -> Callable[[Any], str]:
    return lambda d: f"{token(d.node)}.{noun}"


def _model_key(noun: str) -> Callable[[Any], str]:
    return lambda d: f"{token(d.namespace)}.{token(d.model)}.{noun}"


def _proxy_key(noun: str) -> Callable[[Any], str]:
    return lambda d: f"{token(d.namespace)}.{token(d.model)}.{noun}.{token(d.proxy)}"


def _gone(data: Any) -> bool:
    return bool(data.gone)


_TOPICS = (
    Topic(
        "ai.flexinfer.node.hardware.v1",
        e.NodeHardware,
        "node.*.hardware",
        _node("hardware"),
        "nodes",
        _node_key("hardware"),
        producer="agent",
        when="start, change, every 10 min",
    ),
    Topic(
        "ai.flexinfer.node.telemetry.v1",
        e.NodeTelemetry,
        "node.*.telemetry",
        _node("telemetry"),
        "nodes",
        _node_key("telemetry"),
        log="sampled",
        producer="agent",
        when="every interval, at once on a jump",
    ),
    Topic(
        "ai.flexinfer.node.status.v1",
        e.NodeStatus,
        "node.*.status",
        _node("status"),
        "nodes",
        _node_key("status"),
        producer="agent",
        when="transition",
    ),
    Topic(
        "ai.flexinfer.node.mismatch.v1",
        e.PodMismatch,
        "node.*.mismatch",
        _node("mismatch"),
        producer="agent",
        when="a pod bound here does not fit the hardware",
    ),
    Topic(
        "ai.flexinfer.bench.started.v1",
        e.BenchStarted,
        "bench.*.started",
        _bench("started"),
        producer="bench",
    ),
    Topic("ai.flexinfer.bench.sample.v1", e.BenchSample, "bench.*.sample", _bench("sample"), producer="bench"),
    Topic(
        "ai.flexinfer.bench.completed.v1",
        e.BenchCompleted,
        "bench.*.completed",
        _bench("completed"),
        "bench",
        lambda d: token(d.key),
        producer="bench",
    ),
    Topic("ai.flexinfer.bench.failed.v1", e.BenchFailed, "bench.*.failed", _bench("failed"), producer="bench"),
    Topic(
        "ai.flexinfer.bench.drifted.v1",
        e.BenchDrifted,
        "bench.*.drifted",
        _bench("drifted"),
        producer="manager",
        when="an engine is slower than measured for 5 min, or no longer",
    ),
    Topic(
        "ai.flexinfer.model.phase.v1",
        e.ModelPhase,
        "model.*.*.phase",
        _model("phase"),
        "models",
        _model_key("phase"),
        _gone,
        producer="manager",
        when="transition",
    ),
    Topic(
        "ai.flexinfer.model.endpoint.v1",
        e.ModelEndpoint,
        "model.*.*.endpoint",
        _model("endpoint"),
        "models",
        _model_key("endpoint"),
        _gone,
        producer="manager",
        when="change",
    ),
    Topic(
        "ai.flexinfer.model.demand.v1",
        e.ModelDemand,
        "model.*.*.demand.*",
        _per_proxy("demand"),
        "demand",
        _proxy_key("demand"),
        producer="proxy",
        when="change, at most every 100 ms",
    ),
    Topic(
        "ai.flexinfer.model.load.v1",
        e.ModelLoad,
        "model.*.*.load.*",
        _per_proxy("load"),
        "demand",
        _proxy_key("load"),
        log="sampled",
        producer="proxy",
        when="every 2 s",
    ),
    Topic(
        "ai.flexinfer.placement.decided.v1",
        e.PlacementDecided,
        "placement.*.*.decided",
        lambda d: ("placement", token(d.namespace), token(d.pod), "decided"),
        producer="scheduler",
        when="once per attempt",
    ),
    Topic(
        "ai.flexinfer.cluster.headroom.v1",
        e.ClusterHeadroom,
        "cluster.headroom.*",
        lambda d: ("cluster", "headroom", token(d.proxy)),
        log="sampled",
        producer="proxy",
        when="every 2 s",
    ),
    Topic(
        "ai.flexinfer.request.served.v1",
        e.RequestServed,
        "request.served.*",
        lambda d: ("request", "served", token(d.proxy)),
        log="sampled",
        producer="proxy",
        when="a request ended; a few per second at most",
    ),
)

TOPICS: dict[str, Topic] = {topic.name: topic for topic in _TOPICS}
TOPIC_OF: dict[type, Topic] = {topic.data: topic for topic in _TOPICS}


def subject_of(data: e.EventData, cluster: str = DEFAULT_CLUSTER) -> str:
    """The full subject of a payload."""
    return ".".join((PREFIX, token(cluster), *TOPIC_OF[type(data)].tokens(data)))


def sampled_subject(subject: str) -> str:
    """Where a sampled copy goes so that the log stream keeps it and live readers do not see it twice."""
    _, _, rest = subject.partition(f"{PREFIX}.")
    cluster, _, tail = rest.partition(".")
    return f"{PREFIX}.{cluster}.sampled.{tail}"


def bucket_name(bucket: Bucket) -> str:
    """The JetStream key-value bucket that holds this state."""
    return f"flexinfer_{bucket}"


def key_pattern(topic: Topic) -> str:
    """Which keys of its bucket belong to a topic, with ``*`` for each name; empty without state."""
    if topic.bucket is None:
        return ""
    key = topic.wildcard.partition(".")[2]
    return key.partition(".")[0] if topic.bucket == "bench" else key


def narrowed(topic: Topic, names: Sequence[str]) -> Topic:
    """The part of a topic that is about ``names``: they take the places of its wildcards, from the left.

    Raises ValueError for more names than the subject has.
    """
    parts = topic.wildcard.split(".")
    holes = [index for index, part in enumerate(parts) if part == "*"]
    if len(names) > len(holes):
        raise ValueError(f"{topic.wildcard} has room for {len(holes)} names, not {len(names)}")
    for hole, name in zip(holes, names, strict=False):
        parts[hole] = token(name)
    return replace(topic, wildcard=".".join(parts)) if names else topic


def log_subjects() -> tuple[str, ...]:
    """Subjects of the log stream: whole topics, and the sampled copies of the others."""
    whole = (f"{PREFIX}.*.{topic.wildcard}" for topic in _TOPICS if topic.log == "all")
    return (*whole, f"{PREFIX}.*.sampled.>")


def entity_of(data: e.EventData) -> str:
    """What the event is about (CloudEvents ``subject``): the subject tokens without the verb, readable."""
    match data:
        case e.NodeHardware() | e.NodeTelemetry() | e.NodeStatus() | e.PodMismatch():
            return data.node
        case e.BenchStarted() | e.BenchSample() | e.BenchCompleted() | e.BenchFailed() | e.BenchDrifted():
            return data.key
        case e.ModelPhase() | e.ModelEndpoint() | e.ModelDemand() | e.ModelLoad():
            return f"{data.namespace}/{data.model}"
        case e.PlacementDecided():
            return f"{data.namespace}/{data.pod}"
        case e.ClusterHeadroom() | e.RequestServed():
            return data.proxy


def order_key(data: e.EventData) -> str:
    """Within one (source, bootid), sequence numbers of one order key only grow; older or equal is a repeat."""
    topic = TOPIC_OF[type(data)]
    return ".".join((topic.name, *topic.tokens(data)))
