"""The fleet view: what is known of each node, folded from events and Node objects.

The view is mutable on purpose: a persistent copy per event would cost more than the decision it serves (design
part 8, replay). It has one writer, the fold; readers run on the same event loop.
"""

import heapq
from collections import deque
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from math import inf

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import BenchCompleted, DeviceTelemetry, NodeHardware, NodeStatus, NodeTelemetry
from flexinfer.contracts.labels import DEFAULT_PREFIX

CHANGES_KEPT = 20_000


@dataclass(slots=True)
class Feed:
    """Names that changed, newest last, for readers that keep something derived. ``count`` numbers the newest."""

    count: int = 0
    names: deque[str] = field(default_factory=lambda: deque(maxlen=CHANGES_KEPT))

    def add(self, name: str) -> None:
        """One more change."""
        self.count += 1
        self.names.append(name)

    def since(self, seen: int) -> list[str] | None:
        """What changed after number ``seen``, newest first, repeats kept; None if that is no longer known."""
        missed = self.count - seen
        return None if missed > len(self.names) else list(islice(reversed(self.names), missed))


SKEW_SECONDS = 60.0  # clocks of two machines that are further apart are a fault of their own


@dataclass(slots=True)
class Sequenced:
    """Where the newest fact of one order key came from."""

    source: str
    bootid: str
    seq: int
    at: float
    superseded: str = ""  # the boot this one replaced, and how far it had come
    superseded_seq: int = 0
    doubted: str = ""  # a boot that spoke once with a time before ours
    doubted_seq: int = 0


@dataclass(slots=True)
class OrderBook:
    """Drops repeats: within (source, bootid) older or equal sequences lose, between boots the later one wins.

    Which of two boots is later, their own clocks tell: a snapshot may hold the last word of a boot whose successor
    was heard live already. A clock may have been set back, though, and the dead say nothing new: a boot that goes on
    talking while the other is silent is believed the second time, and none is ever shut out for good.
    """

    seen: dict[str, Sequenced] = field(default_factory=dict)

    def accept(self, key: str, event: Event) -> bool:
        """True if the event is news for ``key`` (see ``contracts.topics.order_key``)."""
        last = self.seen.get(key)
        if last is None:
            self.seen[key] = Sequenced(event.source, event.bootid, event.seq, event.at)
            return True
        if last.bootid == event.bootid and last.source == event.source:
            if event.seq <= last.seq:
                return False
            last.seq, last.at, last.doubted = event.seq, event.at, ""
            return True
        if event.bootid == last.superseded and event.seq <= last.superseded_seq:
            return False
        if self._late(last, event) and not self._again(last, event):
            return False
        self.seen[key] = Sequenced(event.source, event.bootid, event.seq, event.at, last.bootid, last.seq)
        return True

    def _late(self, last: Sequenced, event: Event) -> bool:
        """Whether it was said before what is known. One source has one clock; two are compared with care."""
        if event.bootid == last.superseded:
            return event.at <= last.at
        return event.at < last.at - (0.0 if event.source == last.source else SKEW_SECONDS)

    def _again(self, last: Sequenced, event: Event) -> bool:
        """Whether this boot has said something else already since the one we believe last spoke."""
        if last.doubted == event.bootid:
            return event.seq > last.doubted_seq
        last.doubted, last.doubted_seq = event.bootid, event.seq
        return False

    def holds(self, key: str, event: Event) -> bool:
        """Whether this is the very word that counts for ``key``."""
        last = self.seen.get(key)
        return last is not None and (last.source, last.bootid, last.seq) == (event.source, event.bootid, event.seq)

    def forget(self, key: str) -> None:
        """The entity is gone."""
        self.seen.pop(key, None)


@dataclass(slots=True)
class Claim:
    """What one pod takes, or is about to take, of one node.

    ``whole`` devices are taken while the pod lives. ``memory_mib`` (0: not told) is held until telemetry shows the
    use. ``at``: when it was bound, or when an unbound reservation lapses. ``baseline_mib``: free memory of the node
    when it was bound.
    """

    uid: str
    vendor: str  # NVIDIA, AMD, INTEL, CPU, or empty for any accelerator
    whole: int
    memory_mib: float
    at: float
    bound: bool
    shown: bool = False
    baseline_mib: float | None = None
    namespace: str = ""
    name: str = ""


@dataclass(slots=True)
class NodeView:
    """All that is known of one node. Times are Unix seconds by this process's clock, at receipt."""

    name: str
    hardware: NodeHardware | None = None
    telemetry: NodeTelemetry | None = None
    telemetry_at: float = 0.0
    status: NodeStatus | None = None
    status_at: float = 0.0
    exists: bool = False  # a Node object is there
    unschedulable: bool = False
    cost: float | None = None
    figures: dict[str, DeviceTelemetry] = field(default_factory=dict)  # of ``telemetry``, by uuid
    claims: dict[str, Claim] = field(default_factory=dict)  # by pod uid
    assumed: bool = False  # hardware and telemetry are read from labels and annotations
    alarm: float = inf  # when time alone may change what this node offers
    seen_at: float = 0.0  # when anything last came in about it


@dataclass(slots=True)
class FleetView:
    """Nodes by name and results by benchmark key. ``version`` grows with every accepted fact.

    ``changes`` names the nodes touched. ``digest`` is the same for the same set of facts, in whatever order they came.
    """

    nodes: dict[str, NodeView] = field(default_factory=dict)
    results: dict[str, BenchCompleted] = field(default_factory=dict)
    order: OrderBook = field(default_factory=OrderBook)
    version: int = 0
    prefix: str = DEFAULT_PREFIX
    degraded: bool = False
    digest: int = 0
    result_at: dict[str, float] = field(default_factory=dict)
    by_workload: dict[str, dict[str, BenchCompleted]] = field(default_factory=dict)
    results_version: int = 0
    claimed_on: dict[str, str] = field(default_factory=dict)  # pod uid -> node
    changes: Feed = field(default_factory=Feed)
    alarms: list[tuple[float, str]] = field(default_factory=list)

    def node(self, name: str) -> NodeView:
        """The node's record, made if new."""
        found = self.nodes.get(name)
        if found is None:
            found = self.nodes[name] = NodeView(name)
        return found

    def mix(self, *parts: object) -> None:
        """Put a fact into ``digest``, or take it out again: the same call does both."""
        text = "\0".join(map(str, parts)).encode()
        self.digest ^= int.from_bytes(blake2b(text, digest_size=8).digest(), "big")

    def touch(self, name: str) -> None:
        """What this node offers may have changed."""
        self.version += 1
        self.changes.add(name)

    def arm(self, node: NodeView, at: float) -> None:
        """Look at this node again at ``at`` or earlier (see ``fold.tick``)."""
        if at < node.alarm:
            node.alarm = at
            heapq.heappush(self.alarms, (at, node.name))
