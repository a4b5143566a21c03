"""kube-scheduler's extender protocol v1, and the parts of a Pod that placement reads.

The Go types behind it carry no JSON tags, so the wire has their field names as they stand (PascalCase) and every
field is written. Types are named apart from the wire fields: a struct field that shadows its own class loses it.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

MAX_SCORE = 10

Quantity = str | int | float
Score = Annotated[int, Meta(ge=0, le=MAX_SCORE)]


class ResourceLists(Struct, frozen=True):
    """``resources`` of a container."""

    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None


class ContainerSpec(Struct, frozen=True, rename="camel"):
    """One container; ``restart_policy`` ``Always`` makes an init container a sidecar."""

    resources: ResourceLists | None = None
    restart_policy: str | None = None


class PodMeta(Struct, frozen=True, rename="camel"):
    """``metadata`` of a Pod, as far as it is read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None


class PodSpec(Struct, frozen=True, rename="camel"):
    """``spec`` of a Pod, as far as it is read."""

    node_name: str | None = None
    containers: tuple[ContainerSpec, ...] | None = None
    init_containers: tuple[ContainerSpec, ...] | None = None


class PodCondition(Struct, frozen=True, rename="camel"):
    """One entry of ``status.conditions``."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class PodStatus(Struct, frozen=True, rename="camel"):
    """``status`` of a Pod, as far as it is read."""

    phase: str | None = None
    conditions: tuple[PodCondition, ...] | None = None


class PodObject(Struct, frozen=True):
    """A core/v1 Pod; everything else in it is skipped while decoding."""

    metadata: PodMeta = PodMeta()
    spec: PodSpec | None = None
    status: PodStatus | None = None


class NodeMeta(Struct, frozen=True):
    """The name of a Node, everything else skipped."""

    name: str = ""


class NamedNode(Struct, frozen=True):
    """A core/v1 Node of which only the name is decoded."""

    metadata: NodeMeta = NodeMeta()


class RawNodeList(Struct, frozen=True):
    """A NodeList whose items are kept as the bytes received."""

    items: list[msgspec.Raw] | None = None


class Arguments(Struct, frozen=True):
    """ExtenderArgs with nodes and names undecoded, because an answer often needs no more than their bytes."""

    pod: PodObject | None = msgspec.field(name="Pod", default=None)
    nodes: RawNodeList | None = msgspec.field(name="Nodes", default=None)
    node_names: msgspec.Raw = msgspec.field(name="NodeNames", default=msgspec.Raw())


class Victims(Struct, frozen=True):
    """Whole pods that would be evicted from one node."""

    pods: tuple[PodObject | None, ...] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class MetaPod(Struct, frozen=True):
    """A victim by uid."""

    uid: str = msgspec.field(name="UID", default="")


class MetaVictims(Struct, frozen=True):
    """Victims of one node by uid."""

    pods: tuple[MetaPod | None, ...] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptionArguments(Struct, frozen=True):
    """ExtenderPreemptionArgs: whole victims in full-node mode, victims by uid otherwise."""

    pod: PodObject | None = msgspec.field(name="Pod", default=None)
    victims: dict[str, Victims | None] | None = msgspec.field(name="NodeNameToVictims", default=None)
    meta_victims: dict[str, MetaVictims | None] | None = msgspec.field(name="NodeNameToMetaVictims", default=None)


class PreemptionResult(Struct, frozen=True):
    """ExtenderPreemptionResult: nodes where evicting these victims helps; always by uid."""

    meta_victims: dict[str, MetaVictims] = msgspec.field(name="NodeNameToMetaVictims")


class HostPriority(Struct, frozen=True):
    """One element of HostPriorityList. The score must be a JSON integer: a float voids the whole list."""

    host: str = msgspec.field(name="Host")
    score: Score = msgspec.field(name="Score")


class FilterResult(Struct, frozen=True):
    """ExtenderFilterResult. In the form asked for, the other list stays null."""

    nodes: msgspec.Raw = msgspec.field(name="Nodes", default=msgspec.Raw(b"null"))
    node_names: tuple[str, ...] | None = msgspec.field(name="NodeNames", default=None)
    failed: dict[str, str] = msgspec.field(name="FailedNodes", default={})
    unresolvable: dict[str, str] = msgspec.field(name="FailedAndUnresolvableNodes", default={})
    error: str = msgspec.field(name="Error", default="")
