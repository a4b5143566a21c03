"""Which replica gets a request, and why.

``measured`` (the default) takes the replica where one more request gets its tokens soonest: least seconds per token at
the present outstanding load, from measured speed. ``least-outstanding`` and ``round-robin`` ignore speed. ``session``
and ``prefix`` keep what belongs together on one replica (consistent hashing with bounded load) and fall back to
``measured`` for requests without a key. Equals take turns.
"""

from collections.abc import Container
from dataclasses import dataclass

from flexinfer.core.routing.replicas import Key, Pool, Replica
from flexinfer.core.routing.ring import room

AFFINITY = frozenset({"session", "prefix"})
STRATEGIES = frozenset({"measured", "least-outstanding", "round-robin", *AFFINITY})


@dataclass(frozen=True, slots=True)
class Choice:
    """Which replica, and the sentence of ``X-FlexInfer-Reason``."""

    replica: Replica
    reason: str


def choose(pool: Pool, now: float, tried: Container[Key] = (), affinity: str = "") -> Choice | None:
    """The replica for one more request, None if all ready ones were tried. ``affinity`` is the request's key."""
    found = pool.available(now, tried)
    if not found:
        return None
    rule = pool.strategy if pool.strategy in STRATEGIES else "measured"
    if rule in AFFINITY:
        kept = _keep_together(pool, found, affinity) if affinity else None
        if kept is not None:
            return Choice(kept, _reason(pool, kept, rule, found))
        rule = f"{rule}:no-key,measured"
        best = pool.quickest(found)
    elif rule == "round-robin":
        best = found[0]
    elif rule == "least-outstanding":
        best = min(found, key=_outstanding)
    else:
        best = pool.quickest(found)
    return Choice(best, _reason(pool, best, rule, found))


def _outstanding(replica: Replica) -> int:
    return replica.outstanding


def _keep_together(pool: Pool, found: list[Replica], affinity: str) -> Replica:
    total = pool.outstanding
    weight = sum(replica.speed or pool.typical for replica in pool.ready)
    allowed = {replica.key for replica in found}
    order = [replica for replica in pool.preferred(affinity) if replica.key in allowed]
    for replica in order:
        if replica.outstanding < room(total, (replica.speed or pool.typical) / weight):
            return replica
    return order[0]


def _reason(pool: Pool, replica: Replica, rule: str, found: list[Replica]) -> str:
    text = f"{rule} {replica.label} outstanding={replica.outstanding} candidates={len(found)}"
    if len(found) == len(pool.ready) and not replica.ejection.until:
        return text
    ejected = sum(each.ejection.ejected for each in pool.ready)
    return f"{text} ejected={ejected}" if ejected else text
