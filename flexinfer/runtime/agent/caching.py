"""The models a node keeps for its pods: told to the bus, and kept within their limits."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from msgspec import UNSET

from flexinfer.contracts.events import CachedModel
from flexinfer.core.lifecycle.fetching.eviction import Room, Shelved, evictions
from flexinfer.ports import Clock
from flexinfer.runtime.agent.board import Board
from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0

_BYTES = metrics.gauge("flexinfer_node_cache_bytes", "Weights in the node's cache.", ("node",))
_FREE = metrics.gauge("flexinfer_node_cache_free_bytes", "Free on the file system of the node's cache.", ("node",))
_EVICTED = metrics.counter("flexinfer_node_cache_evictions_total", "Models taken out of the node's cache.")


class Shelf(Protocol):
    """The cache's directory; blocking, and never raises."""

    def entries(self) -> tuple[Shelved, ...]: ...
    def free(self) -> int: ...
    def remove(self, entry: str, used: float) -> bool: ...
    def tidy(self, now: float) -> int: ...


def _told(one: Shelved) -> CachedModel:
    facts = UNSET if one.gguf is None else one.gguf
    return CachedModel(entry=one.entry, source=one.source, bytes=one.bytes, gguf=facts)


class CacheKeeper:
    """``in_use``: entries that pods of this node use; None while they are not known, and then nothing is evicted.
    ``limit`` and ``floor`` in bytes."""

    def __init__(
        self,
        board: Board,
        shelf: Shelf,
        in_use: Callable[[], frozenset[str] | None],
        clock: Clock,
        limit: int,
        floor: int,
    ) -> None:
        self._board = board
        self._shelf = shelf
        self._in_use = in_use
        self._clock = clock
        self._limit = limit
        self._floor = floor

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Make room if it must be, and tell what is there."""
        shelf = await asyncio.to_thread(self._shelf.entries)
        gone = await self._evict(shelf)
        kept = [one for one in shelf if one.entry not in gone]
        node = self._board.station.node
        _BYTES.labels(node=node).set(sum(one.bytes for one in kept))
        _FREE.labels(node=node).set(await asyncio.to_thread(self._shelf.free))
        self._board.shelve(tuple(map(_told, kept)))

    async def _evict(self, shelf: tuple[Shelved, ...]) -> set[str]:
        in_use = self._in_use()
        if in_use is None:
            return set()
        now = self._clock.now()
        await asyncio.to_thread(self._shelf.tidy, now)
        room = Room(self._limit, await asyncio.to_thread(self._shelf.free), self._floor)
        gone = set()
        for one in evictions(shelf, in_use, room, now):
            # Asked again for each: a pod may have been bound while the one before was taken out.
            if one.entry in (self._in_use() or frozenset()):
                continue
            if await asyncio.to_thread(self._shelf.remove, one.entry, one.used):
                _EVICTED.inc()
                gone.add(one.entry)
                log.info("%s (%s, %.1f GB) is out of the cache", one.entry, one.source, one.bytes / 1e9)
        return gone
