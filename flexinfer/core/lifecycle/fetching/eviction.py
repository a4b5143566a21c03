"""Which models a node's cache gives up: the least used first, never one that a pod uses, no more than it must."""

from collections.abc import Iterable
from dataclasses import dataclass

from flexinfer.contracts.events import GgufFacts

JUST_USED_SECONDS = 900.0
"""A model that somebody asked for so recently may belong to a pod that is not known yet."""


@dataclass(frozen=True, slots=True)
class Shelved:
    """A whole entry of the cache: ``bytes`` on disk, ``used`` when a pod last asked for it (Unix seconds), ``gguf``
    what the header of its file says (None: it has none, or it was not read)."""

    entry: str
    source: str
    bytes: int
    used: float
    gguf: GgufFacts | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """In bytes: what the cache may hold (0: no limit), what is free on its file system, what must be."""

    limit: int
    free: int
    floor: int


def evictions(shelf: Iterable[Shelved], in_use: frozenset[str], room: Room, now: float) -> tuple[Shelved, ...]:
    """What goes, oldest use first, until the limit and the floor hold. It may not be enough: what is used stays."""
    shelf = list(shelf)
    held = sum(one.bytes for one in shelf)
    too_much = max(held - room.limit if room.limit else 0, room.floor - room.free)
    gone: list[Shelved] = []
    for one in sorted(shelf, key=lambda one: (one.used, one.entry)):
        if too_much <= 0:
            break
        if one.entry in in_use or now - one.used < JUST_USED_SECONDS:
            continue
        gone.append(one)
        too_much -= one.bytes
    return tuple(gone)
