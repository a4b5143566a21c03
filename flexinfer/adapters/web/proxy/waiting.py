"""Requests that wait for a model at zero."""

import asyncio
from collections import deque
from collections.abc import Callable

from flexinfer.contracts.events import ModelEndpoint
from flexinfer.core.routing import activation
from flexinfer.core.routing.activation import Demand
from flexinfer.core.routing.refusal import Refusal
from flexinfer.core.routing.table import key_of
from flexinfer.ports import Clock


class WaitingRoom:
    """One bounded queue per model; ``changed`` is called with the key whenever its demand changes."""

    def __init__(self, clock: Clock, limit: int, longest: float, changed: Callable[[str], None]) -> None:
        self._clock = clock
        self._limit = limit
        self._longest = longest
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        self._watchers: dict[str, set[asyncio.Future[None]]] = {}
        self.demands: dict[str, Demand] = {}

    async def wait(self, spec: ModelEndpoint, since: float, *, background: bool) -> None:
        """Return when the model's route changed. ``since`` is Unix seconds when the request came.

        Raises Refusal 503 when waiting is pointless, 504 when it took too long.
        """
        key = key_of(spec)
        queue = self._queues.setdefault(key, deque())
        activation.admit(spec, len(queue), self._limit, background=background)
        left = since + activation.patience(spec, self._longest) - self._clock.now()
        turn: asyncio.Future[None] = self._loop.create_future()
        demand = self.demands.setdefault(key, Demand())
        queue.append(turn)
        demand.since.append(since)
        self._changed(key)
        try:
            async with asyncio.timeout(left):
                await turn
        except TimeoutError as err:
            raise Refusal(
                504, "cold_start_timeout", f"the model '{key}' did not start in time",
                retry_after=activation.RETRY_LATER,
            ) from err  # fmt: skip
        finally:
            if turn in queue:
                queue.remove(turn)
            demand.since.remove(since)
            self._changed(key)

    async def moved_within(self, key: str, seconds: float) -> bool:
        """Wait for a change of the route without asking for a start; tells whether one came."""
        turn: asyncio.Future[None] = self._loop.create_future()
        watchers = self._watchers.setdefault(key, set())
        watchers.add(turn)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except TimeoutError:
            return False
        else:
            return True
        finally:
            watchers.discard(turn)
            if not watchers:
                self._watchers.pop(key, None)

    def wake(self, key: str) -> None:
        """The route changed: everybody looks again, at once and in parallel."""
        for watcher in self._watchers.pop(key, ()):
            if not watcher.done():
                watcher.set_result(None)
        queue = self._queues.get(key)
        while queue:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)

    def forget(self, key: str) -> None:
        """The route is gone."""
        if not self._queues.get(key):
            self._queues.pop(key, None)
            demand = self.demands.get(key)
            if demand and not demand.since and not demand.told:
                del self.demands[key]

    @property
    def waiting(self) -> int:
        """Requests waiting for any model."""
        return sum(len(queue) for queue in self._queues.values())
