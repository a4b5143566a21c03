"""The replicas of one model as a proxy sees them."""

from collections.abc import Container
from dataclasses import dataclass, field
from statistics import median

from flexinfer.contracts.events import Endpoint, ModelEndpoint
from flexinfer.core.routing.ejection import Ejection
from flexinfer.core.routing.ring import Ring
from flexinfer.core.routing.speed import FLAT, Curve, most, scaled, seconds_per_token

Key = tuple[str, str]


@dataclass(slots=True)
class Replica:
    """One engine instance. ``speed`` is tokens/s of one request, None unmeasured."""

    pod: str
    url: str
    speed: float | None = None
    device_class: str | None = None
    draining: bool = False
    outstanding: int = 0
    ejection: Ejection = field(default_factory=Ejection)
    curve: Curve = FLAT
    label: str = ""  # its speed, for reasons
    key: Key = ("", "")  # identity: a pod that moved to another address is another replica
    header: bytes = b""  # its name as a header carries it
    _costs: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key = (self.pod, self.url)
        self.header = "".join(c if "!" <= c <= "~" else "?" for c in self.pod).encode()

    def cost(self, elsewhere: float = 0.0) -> float:
        """Seconds per token of one more request at the present load, ``elsewhere`` being that of other proxies."""
        costs = self._costs
        wanted = self.outstanding + int(elsewhere) + 1
        while len(costs) <= wanted:
            costs.append(seconds_per_token(self.curve, max(1, len(costs))))
        return costs[wanted]

    def follow(self, curve: Curve) -> None:
        """Take a curve."""
        if curve != self.curve:
            self.curve = curve
            self._costs.clear()


@dataclass(slots=True)
class Pool:
    """Replicas of one route. Counts and standing of replicas that stay survive an update."""

    strategy: str = "measured"
    members: dict[Key, Replica] = field(default_factory=dict)
    ready: list[Replica] = field(default_factory=list)
    typical: float = 1.0  # median measured tokens/s; 1 if nobody is measured
    turn: int = 0
    others: float = 0.0  # requests other proxies have at this model's replicas
    _ring: Ring | None = None
    _by_pod: dict[str, Replica] = field(default_factory=dict)

    def update(self, spec: ModelEndpoint, curves: dict[str, Curve]) -> None:
        """Take the addresses of an endpoint event; ``curves`` are by device class."""
        self.strategy = spec.balancing
        old, self.members = self.members, {}
        for endpoint in spec.endpoints:
            replica = old.get((endpoint.pod, endpoint.url)) or Replica(endpoint.pod, endpoint.url)
            _refresh(replica, endpoint)
            self.members[replica.key] = replica
        self.ready = [replica for replica in self.members.values() if not replica.draining]
        self._by_pod = {replica.pod: replica for replica in self.ready}
        self._ring = None
        self.measure(curves)

    def measure(self, curves: dict[str, Curve]) -> None:
        """Give each replica its curve: measured on its device class, else the shape measured on another one."""
        speeds = [replica.speed for replica in self.members.values() if replica.speed]
        self.typical = median(speeds) if speeds else 1.0
        classes = [replica.device_class for replica in self.members.values() if replica.device_class]
        shape = next((curves[name] for name in classes if name in curves), FLAT)
        for replica in self.members.values():
            own = curves.get(replica.device_class or "")
            speed = f"{replica.speed:.1f}" if replica.speed else f"unmeasured({self.typical:.1f})"
            replica.label = f"tokens_per_second={speed}"
            replica.follow(scaled(own or shape, replica.speed or self.typical))

    def quickest(self, found: list[Replica]) -> Replica:
        """Where one more request gets its tokens soonest; the first of equals.

        Other proxies say how many requests they have, not where. They choose as we do, so theirs are taken to lie like
        ours, and by speed as long as we have none.
        """
        if len(found) == 1:
            return found[0]
        if not self.others:
            return min(found, key=Replica.cost)
        speeds = sum(replica.speed or self.typical for replica in self.ready)
        per_share = self.others / (self.outstanding + 1)

        def cost(replica: Replica) -> float:
            return replica.cost(per_share * (replica.outstanding + (replica.speed or self.typical) / speeds))

        return min(found, key=cost)

    @property
    def outstanding(self) -> int:
        """Requests at ready replicas."""
        return sum(replica.outstanding for replica in self.ready)

    @property
    def capacity(self) -> float | None:
        """Aggregate tokens/s of the ready replicas at their best; None if none of them is measured."""
        if self.ready and not any(replica.speed for replica in self.ready):
            return None
        return sum(most(replica.curve) for replica in self.ready)

    def available(self, now: float, tried: Container[Key]) -> list[Replica]:
        """Replicas one more request may go to, beginning with another one each time.

        Ejected ones are left out; when nobody else is left they are asked all the same, because a wrong guess about
        all of them must not refuse what they could answer.
        """
        self.turn += 1
        ready = self.ready
        if len(ready) < 2:
            return [] if not ready or ready[0].key in tried else ready
        start = self.turn % len(ready)
        rest = [replica for replica in ready[start:] + ready[:start] if replica.key not in tried]
        return [replica for replica in rest if replica.ejection.admits(now)] or rest

    def has_other(self, now: float, tried: Container[Key]) -> bool:
        """Whether a replica in good standing was not tried yet."""
        return any(replica.key not in tried and replica.ejection.admits(now) for replica in self.ready)

    def preferred(self, key: str) -> list[Replica]:
        """Ready replicas in the order this affinity key prefers them."""
        if self._ring is None:
            self._ring = Ring.of({replica.pod: replica.speed or self.typical for replica in self.ready})
        return [self._by_pod[pod] for pod in self._ring.walk(key)]


def _refresh(replica: Replica, endpoint: Endpoint) -> None:
    replica.speed = endpoint.tokens_per_second or None
    replica.device_class = endpoint.device_class
    replica.draining = endpoint.state == "draining"
