"""What each component may say and hear on the bus: least privilege by subject, derived from the topic table.

The chart renders a server configuration from the same rules, and a test runs a server with it. A component that
publishes something new gets the right by being named as ``producer`` in ``contracts.topics``.
"""

from dataclasses import dataclass

from flexinfer.contracts.events import ModelEndpoint, NodeHardware, NodeTelemetry
from flexinfer.contracts.topics import (
    BUCKETS,
    LOG_STREAM,
    PREFIX,
    TOPIC_OF,
    TOPICS,
    Topic,
    bucket_name,
    key_pattern,
    narrowed,
    sampled_subject,
    token,
)

READERS = frozenset({"manager", "scheduler", "proxy", "global-proxy", "dashboard"})
_REPUBLISHES = {"manager": ("ai.flexinfer.bench.completed.v1",)}  # results are loaded again from their ConfigMap
_PUBLISHES_AS = {"global-proxy": "proxy"}


# Where a server asks whether a client may connect, and below which the answers go.
CALLOUT_SUBJECT = "$SYS.REQ.USER.AUTH"
_CALLOUT_ANSWERS = "$SYS._INBOX.>"


@dataclass(frozen=True, slots=True)
class Permissions:
    """Subjects with wildcards, as nats-server's ``allow`` lists take them."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grant:
    """A client may connect as ``name`` (no secret: servers show it) for at most ``seconds``."""

    name: str
    permissions: Permissions
    seconds: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """A client may not connect. ``reason`` is one word, for counting; ``text`` says it to people, without a secret."""

    reason: str
    text: str


def inbox_prefix(client: str) -> str:
    """Below which answers to a client arrive: of ``<program> <instance>`` each is a token of its own."""
    program, _, instance = client.partition(" ")
    found = f"_INBOX_{_plain(program)}"
    return f"{found}.{instance if instance == '*' else _plain(instance)}" if instance else found


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name)


def permissions(component: str, client: str, entity: str = "*", cluster: str = "default") -> Permissions:
    """Rights of one client.

    ``entity`` narrows what it may speak for: the node of an ``agent``, the key of a ``bench``, the name of a
    ``proxy``; other components speak for all. ``client`` is the name it connects with, ``<program> <instance>``;
    ``<program> *`` serves all instances of a program with one user.
    """
    publish: list[str] = []
    for topic in TOPICS.values():
        if _may_publish(component, topic):
            publish += _writes(topic, entity if entity == "*" else token(entity), cluster)
    subscribe = [f"{inbox_prefix(client)}.>"]
    if component in READERS:
        subscribe.append(f"{PREFIX}.{token(cluster)}.>")
        for stream in (*(f"KV_{bucket_name(bucket)}" for bucket in BUCKETS), LOG_STREAM):
            publish += _consumes(stream, ">")
    if component == "bench":
        for topic, live in _seen_by_bench(entity):
            publish += _consumes(f"KV_{_bucket(topic)}", f"*.$KV.{_bucket(topic)}.{key_pattern(topic)}")
            if live:
                subscribe.append(f"{PREFIX}.{token(cluster)}.{topic.wildcard}")
    publish.append(f"$JS.API.STREAM.INFO.{LOG_STREAM}")
    if component == "manager":
        publish += ["$JS.API.INFO", "$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.INFO.*"]
        publish.append(_CALLOUT_ANSWERS)
        subscribe.append(CALLOUT_SUBJECT)
    return Permissions(tuple(dict.fromkeys(publish)), tuple(subscribe))


def _consumes(stream: str, what: str) -> list[str]:
    """Reading a stream; ``what`` follows the stream in the request for a consumer: its name, and its only filter."""
    return [
        f"$JS.API.CONSUMER.CREATE.{stream}.{what}",
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.>",
        f"$JS.API.CONSUMER.DELETE.{stream}.>",
    ]


def _seen_by_bench(key: str) -> list[tuple[Topic, bool]]:
    """Where its own endpoint is, what any node has, and (live, too) what it draws: the node is found by the endpoint,
    so it cannot be named beforehand."""
    endpoint = TOPIC_OF[ModelEndpoint]
    if key != "*":
        endpoint = narrowed(endpoint, ("*", f"bench-{key}"))  # its hidden alias, in whatever namespace
    return [(endpoint, False), (TOPIC_OF[NodeHardware], False), (TOPIC_OF[NodeTelemetry], True)]


def _bucket(topic: Topic) -> str:
    return bucket_name(topic.bucket) if topic.bucket else ""


def _may_publish(component: str, topic: Topic) -> bool:
    return topic.producer == _PUBLISHES_AS.get(component, component) or topic.name in _REPUBLISHES.get(component, ())


def _writes(topic: Topic, entity: str, cluster: str) -> list[str]:
    subject = f"{PREFIX}.{token(cluster)}.{_narrow(topic, topic.wildcard, entity)}"
    found = [subject]
    if topic.log == "sampled":
        found.append(sampled_subject(subject))
    if topic.bucket is not None:
        found.append(f"$KV.{bucket_name(topic.bucket)}.{_narrow(topic, key_pattern(topic), entity)}")
    return found


def _narrow(topic: Topic, pattern: str, entity: str) -> str:
    """Agents and benches are the first name in a subject, proxies the last."""
    parts = pattern.split(".")
    holes = [index for index, part in enumerate(parts) if part == "*"]
    if topic.producer in ("agent", "bench"):
        parts[holes[0]] = entity
    elif topic.producer == "proxy":
        parts[holes[-1]] = entity
    return ".".join(parts)
