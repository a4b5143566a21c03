"""Consistent hashing with bounded load (Mirrokni, Thorup, Zadimoghaddam, 2016).

A key belongs to the first replica clockwise of its hash. A replica that already has more than ``BOUND`` times its fair
share of the outstanding requests is passed over, so that a popular key spills to its neighbour and nothing else moves.
Shares follow measured speed: a replica twice as fast owns twice the ring and may hold twice the requests.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

BOUND = 1.25
_POINTS = 64  # per replica of average speed


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True)
class Ring:
    """Points of all replicas in order; made anew when the set changes."""

    points: tuple[int, ...]
    owners: tuple[str, ...]

    @classmethod
    def of(cls, weights: Mapping[str, float]) -> "Ring":
        """``weights``: replica name to speed, all above 0."""
        average = sum(weights.values()) / len(weights) if weights else 1.0
        found = sorted(
            (_hash(f"{name}#{i}"), name)
            for name, weight in weights.items()
            for i in range(max(1, round(_POINTS * weight / average)))
        )
        return cls(tuple(point for point, _ in found), tuple(name for _, name in found))

    def walk(self, key: str) -> Iterator[str]:
        """Replicas in the order this key prefers them, each once."""
        if not self.points:
            return
        start = bisect_right(self.points, _hash(key))
        seen: set[str] = set()
        for i in range(len(self.owners)):
            owner = self.owners[(start + i) % len(self.owners)]
            if owner not in seen:
                seen.add(owner)
                yield owner


def room(outstanding: int, share: float) -> int:
    """How many requests a replica with this share (0..1) may hold once one more is added to ``outstanding``."""
    return ceil(BOUND * (outstanding + 1) * share)
