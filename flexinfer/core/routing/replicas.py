"""The replicas of one model as a proxy sees them, and the choice among them.

``measured`` (the default) takes the least ``(outstanding + 1) / tokens per second``: the replica that would finish
one more request first, if each serves its requests at its measured speed. Unmeasured replicas count as the median
of the measured ones. Equals take turns.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from statistics import median

from flexinfer.contracts.events import Endpoint, ModelEndpoint


@dataclass(slots=True)
class Replica:
    """One engine instance. ``speed`` is tokens/s, None unmeasured."""

    pod: str
    url: str
    speed: float | None = None
    device_class: str | None = None
    draining: bool = False
    outstanding: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """Identity: a pod that moved to another address is another replica."""
        return self.pod, self.url


@dataclass(frozen=True, slots=True)
class Choice:
    """Which replica, and the sentence of ``X-FlexInfer-Reason``."""

    replica: Replica
    reason: str


@dataclass(slots=True)
class Pool:
    """Replicas of one route. Counts of replicas that stay survive an update."""

    members: dict[tuple[str, str], Replica] = field(default_factory=dict)
    ready: list[Replica] = field(default_factory=list)
    typical: float = 1.0  # median measured tokens/s; 1 if nobody is measured
    _turn: int = 0

    def update(self, spec: ModelEndpoint) -> None:
        """Take the addresses of an endpoint event."""
        old, self.members = self.members, {}
        for endpoint in spec.endpoints:
            replica = old.get((endpoint.pod, endpoint.url)) or Replica(endpoint.pod, endpoint.url)
            _refresh(replica, endpoint)
            self.members[replica.key] = replica
        self.ready = [replica for replica in self.members.values() if not replica.draining]
        speeds = [replica.speed for replica in self.members.values() if replica.speed]
        self.typical = median(speeds) if speeds else 1.0

    def choose(self, tried: Container[tuple[str, str]] = ()) -> Choice | None:
        """The replica for one more request, None if all ready ones were tried."""
        best: Replica | None = None
        least = 0.0
        for replica in self._in_turn():
            if replica.key in tried:
                continue
            cost = (replica.outstanding + 1) / (replica.speed or self.typical)
            if best is None or cost < least:
                best, least = replica, cost
        return None if best is None else Choice(best, self._reason(best))

    def has_other(self, tried: Container[tuple[str, str]]) -> bool:
        """Whether a ready replica was not tried yet."""
        return any(replica.key not in tried for replica in self.ready)

    def _in_turn(self) -> Iterator[Replica]:
        count = len(self.ready)
        self._turn += 1
        return (self.ready[(self._turn + i) % count] for i in range(count))

    def _reason(self, replica: Replica) -> str:
        speed = f"{replica.speed:.1f}" if replica.speed else f"unmeasured({self.typical:.1f})"
        return f"measured tokens_per_second={speed} outstanding={replica.outstanding} candidates={len(self.ready)}"


def _refresh(replica: Replica, endpoint: Endpoint) -> None:
    replica.speed = endpoint.tokens_per_second or None
    replica.device_class = endpoint.device_class
    replica.draining = endpoint.state == "draining"
