"""Which cluster gets a request: who has the model, who is up, and the strategy among them.

``round-robin``, ``latency`` and ``headroom`` prefer clusters where the model is ready over those where it would have
to be woken; ``weighted`` and ``failover`` are the operator's own order and count both. A cluster that is down is
asked only when nobody else has the model.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from flexinfer.core.routing.health import Health

Strategy = Literal["round-robin", "weighted", "failover", "latency", "headroom"]
State = Literal["ready", "asleep", "unavailable"]

SILENT_SECONDS = 6.0  # three headroom periods without one: the live word of a cluster no longer counts
FORGET_SECONDS = 600.0
_SMOOTHING = 0.3
_LATENCY_HALF_LIFE = 30.0


@dataclass(slots=True)
class Cluster:
    """One cluster. ``urls`` are its proxies; ``models`` maps every name it answers to onto the model's state there.

    ``models`` None: it was not asked yet. ``headroom`` is tokens/s by ``<namespace>/<model>``.
    """

    name: str
    urls: tuple[str, ...]
    weight: float = 1.0
    static: bool = True
    models: dict[str, State] | None = None
    canonical: dict[str, str] = field(default_factory=dict)  # any name -> <namespace>/<model>
    listing: tuple[dict[str, object], ...] = ()
    health: Health = field(default_factory=Health)
    outstanding: int = 0
    latency: float | None = None  # smoothed seconds to the first byte
    latency_at: float = 0.0
    headroom: dict[str, float] = field(default_factory=dict)
    heard_at: float | None = None  # last headroom event, Unix seconds
    proxies: dict[str, tuple[str, float]] = field(default_factory=dict)  # instance -> (url, heard at)
    standing: float = 0.0  # of the smooth weighted turn
    _next_url: int = 0

    def url(self) -> str:
        """The proxy to ask; they take turns."""
        self._next_url = (self._next_url + 1) % len(self.urls)
        return self.urls[self._next_url]

    def timed(self, seconds: float, now: float) -> None:
        """A request's first byte took so long."""
        old = self.latency
        self.latency = seconds if old is None else old + _SMOOTHING * (seconds - old)
        self.latency_at = now

    def expected(self, now: float) -> float:
        """Seconds to a first byte if one more request came; an old estimate fades, so that it is tried again."""
        if self.latency is None:
            return 0.0
        faded = float(0.5 ** (max(0.0, now - self.latency_at) / _LATENCY_HALF_LIFE))
        return self.latency * faded * (self.outstanding + 1)

    def spare(self, model: str, now: float) -> float | None:
        """Tokens/s it says it could still give to a model; None: it does not say."""
        if self.heard_at is None or now - self.heard_at > SILENT_SECONDS:
            return None
        return self.headroom.get(self.canonical.get(model, model))


@dataclass(frozen=True, slots=True)
class Decision:
    """Which cluster and why, for the answer's headers."""

    cluster: Cluster
    reason: str


@dataclass(slots=True)
class Clusters:
    """All clusters of a global proxy, in failover order."""

    strategy: Strategy
    members: dict[str, Cluster] = field(default_factory=dict)
    _turn: int = 0

    def having(self, model: str) -> list[Cluster]:
        """Clusters that answer to this name."""
        return [cluster for cluster in self.members.values() if cluster.models and model in cluster.models]

    def has_other(self, model: str, tried: Container[str]) -> bool:
        """Whether a cluster that is up has the model and was not tried yet."""
        return any(cluster.health.up and cluster.name not in tried for cluster in self.having(model))

    def choose(self, model: str, now: float, tried: Container[str] = ()) -> Decision | None:
        """The cluster for one request, None if no untried one has the model."""
        found = [cluster for cluster in self.having(model) if cluster.name not in tried]
        if not found:
            return None
        up = [cluster for cluster in found if cluster.health.up]
        pool = self._usable(up or found, model)
        ordered = self._order(pool, model, now)
        chosen = next((cluster for cluster in ordered if cluster.health.admits(now)), ordered[0])
        return Decision(chosen, self._reason(chosen, model, now, len(pool), up=bool(up)))

    def _usable(self, found: list[Cluster], model: str) -> list[Cluster]:
        mixed = self.strategy in {"weighted", "failover"}
        tiers: tuple[tuple[State, ...], ...] = (("ready", "asleep"),) if mixed else (("ready",), ("asleep",))
        for states in tiers:
            tier = [cluster for cluster in found if (cluster.models or {}).get(model) in states]
            if tier:
                return self._with_asleep(tier, found, model)
        return found

    def _with_asleep(self, tier: list[Cluster], found: list[Cluster], model: str) -> list[Cluster]:
        """Waking a model elsewhere is right once the clusters that run it say they are full."""
        full = self.strategy == "headroom" and all(
            cluster.headroom.get(cluster.canonical.get(model, model)) == 0.0 for cluster in tier
        )
        if not full:
            return tier
        return tier + [c for c in found if c not in tier and (c.models or {}).get(model) == "asleep"]

    def _order(self, pool: list[Cluster], model: str, now: float) -> list[Cluster]:
        self._turn += 1
        if len(pool) == 1:
            return pool
        match self.strategy:
            case "failover":
                return pool
            case "weighted":
                return _in_turn(pool, {cluster.name: cluster.weight for cluster in pool})
            case "latency":
                turned = _turned(pool, self._turn)
                return sorted(turned, key=lambda cluster: cluster.expected(now))
            case "headroom":
                return _in_turn(pool, _spare_weights(pool, model, now))
            case _:
                return _turned(pool, self._turn)

    def _reason(self, chosen: Cluster, model: str, now: float, candidates: int, *, up: bool) -> str:
        parts = [self.strategy, f"candidates={candidates}"]
        if not up:
            parts.append("last-resort")
        if self.strategy == "latency":
            parts.append(f"expected_seconds={chosen.expected(now):.3f}")
        if self.strategy == "headroom":
            spare = chosen.spare(model, now)
            parts.append("spare=unknown" if spare is None else f"spare_tokens_per_second={spare:.1f}")
        if self.strategy == "weighted":
            parts.append(f"weight={chosen.weight:g}")
        if chosen.health.share(now) < 1.0:
            parts.append(f"share={chosen.health.share(now):.2f}")
        return " ".join(parts)


def _turned(pool: list[Cluster], turn: int) -> list[Cluster]:
    start = turn % len(pool)
    return pool[start:] + pool[:start]


def _in_turn(pool: list[Cluster], weights: Mapping[str, float]) -> list[Cluster]:
    """Smooth weighted round robin: shares as the weights say, spread evenly in time."""
    total = sum(weights.values())
    if total <= 0:
        weights = {cluster.name: 1.0 for cluster in pool}
        total = float(len(pool))
    for cluster in pool:
        cluster.standing += weights[cluster.name] / total
    ordered = sorted(pool, key=lambda cluster: -cluster.standing if weights[cluster.name] > 0 else 1e9)
    ordered[0].standing -= 1.0
    return ordered


def _spare_weights(pool: list[Cluster], model: str, now: float) -> dict[str, float]:
    """Spare tokens/s; clusters that say nothing count as the median of those that do."""
    said = {cluster.name: cluster.spare(model, now) for cluster in pool}
    known = [value for value in said.values() if value is not None]
    typical = median(known) if known else 1.0
    return {name: typical if value is None else value for name, value in said.items()}
