"""The fleet view: what is known of each node, folded from events and Node objects.

The view is mutable on purpose: a persistent copy per event would cost more than the decision it serves (design
part 8, replay). It has one writer, the fold; readers run on the same event loop.
"""

from dataclasses import dataclass, field

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import BenchCompleted, NodeHardware, NodeStatus, NodeTelemetry


@dataclass(slots=True)
class Sequenced:
    """Where the newest fact of one order key came from."""

    source: str
    bootid: str
    seq: int
    at: float
    superseded: str = ""  # the boot this one replaced; its late events are repeats


@dataclass(slots=True)
class OrderBook:
    """Drops repeats: within (source, bootid) older or equal sequences lose; a superseded boot never returns."""

    seen: dict[str, Sequenced] = field(default_factory=dict)

    def accept(self, key: str, event: Event) -> bool:
        """True if the event is news for ``key`` (see ``contracts.topics.order_key``)."""
        last = self.seen.get(key)
        if last is not None:
            if last.bootid == event.bootid and last.source == event.source:
                if event.seq <= last.seq:
                    return False
                last.seq, last.at = event.seq, event.at
                return True
            if event.bootid == last.superseded:
                return False
        replaced = last.bootid if last else ""
        self.seen[key] = Sequenced(event.source, event.bootid, event.seq, event.at, replaced)
        return True

    def forget(self, key: str) -> None:
        """The entity is gone."""
        self.seen.pop(key, None)


@dataclass(slots=True)
class NodeView:
    """All that is known of one node. Times are Unix seconds by this process's clock, at receipt."""

    name: str
    hardware: NodeHardware | None = None
    telemetry: NodeTelemetry | None = None
    telemetry_at: float = 0.0
    status: NodeStatus | None = None
    exists: bool = False  # a Node object is there
    unschedulable: bool = False
    cost: float | None = None


@dataclass(slots=True)
class FleetView:
    """Nodes by name and results by benchmark key. ``version`` grows with every accepted fact."""

    nodes: dict[str, NodeView] = field(default_factory=dict)
    results: dict[str, BenchCompleted] = field(default_factory=dict)
    order: OrderBook = field(default_factory=OrderBook)
    version: int = 0

    def node(self, name: str) -> NodeView:
        """The node's record, made if new."""
        found = self.nodes.get(name)
        if found is None:
            found = self.nodes[name] = NodeView(name)
        return found
