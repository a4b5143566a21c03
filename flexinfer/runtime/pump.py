"""Facts in, decisions out: the loop between reducers and effects.

Facts are folded at once, on the event loop, in the order in which they arrive; a fold only marks keys. Each marked
key is then planned and its effects performed by one worker at a time: sequential per key, parallel across keys, and
however many facts hit a key while it is worked on, it is planned once more. Outcomes of effects come back as facts.
"""

import asyncio
import heapq
import itertools
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from flexinfer.core.effects import Decision, Effect
from flexinfer.ports import Clock
from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

F = TypeVar("F")
K = TypeVar("K", bound=Hashable)

_ROUNDS = metrics.counter(
    "flexinfer_controller_reconciles_total", "Rounds of planning one key and performing its effects.", ("result",)
)
_LAG = metrics.histogram(
    "flexinfer_controller_queue_seconds",
    "Time from the fact that marked a key to the begin of its round.",
    buckets=(0.001, 0.005, 0.02, 0.1, 0.25, 1, 5, 30, 120),
)
_DIRTY = metrics.gauge("flexinfer_controller_queue_depth", "Keys that wait for a round.")

ERROR_SECONDS = 1.0
ERROR_CEILING = 60.0


@dataclass(frozen=True, slots=True)
class Reducers(Generic[F, K]):
    """The pure part. ``evolve(fact, at)`` folds and names the keys it touched; ``plan(key, at)`` decides."""

    evolve: Callable[[F, float], Iterable[K]]
    plan: Callable[[K, float], Decision]


class Pump(Generic[F, K]):
    """One pump per view. ``perform(key, effect)`` returns the outcome as a fact, and whether to go on with the rest
    of the decision: after a refusal the rest would be built on something that did not happen."""

    def __init__(
        self,
        reducers: Reducers[F, K],
        perform: Callable[[K, Effect], Awaitable[tuple[F | None, bool]]],
        clock: Clock,
        *,
        workers: int = 16,
        record: Callable[[float, F], None] | None = None,
    ) -> None:
        self._reducers = reducers
        self._perform = perform
        self._clock = clock
        self._workers = workers
        self._record = record
        self._dirty: OrderedDict[K, float] = OrderedDict()
        self._active: set[K] = set()
        self._errors: dict[K, int] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._order = itertools.count()
        self._wake = asyncio.Event()
        self._tick = asyncio.Event()

    def offer(self, fact: F) -> None:
        """Fold one fact now; its keys are worked on soon. Never blocks."""
        at = self._clock.now()
        if self._record:
            self._record(at, fact)
        self.mark(self._reducers.evolve(fact, at))

    def mark(self, keys: Iterable[K]) -> None:
        """Have these keys planned again."""
        now = self._clock.monotonic()
        for key in keys:
            self._dirty.setdefault(key, now)
        if self._dirty:
            self._wake.set()

    @property
    def idle(self) -> bool:
        """Nothing is queued and nothing is being performed."""
        return not self._dirty and not self._active

    @property
    def next_timer(self) -> float | None:
        """When (Unix seconds) the next key looks again by itself."""
        return min(self._due.values(), default=None)

    async def run(self) -> None:
        """Work until cancelled; effects under way are cancelled with it."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"pump:{number}")
            group.create_task(self._watch_timers(), name="pump:timers")

    async def _work(self) -> None:
        while True:
            key = self._take()
            if key is None:
                self._wake.clear()
                if self._take_possible():
                    continue
                await self._wake.wait()
                continue
            try:
                await self._round(key)
            finally:
                self._active.discard(key)
                if key in self._dirty:
                    self._wake.set()

    def _take_possible(self) -> bool:
        return any(key not in self._active for key in self._dirty)

    def _take(self) -> K | None:
        for key, since in self._dirty.items():
            if key not in self._active:
                del self._dirty[key]
                self._active.add(key)
                _DIRTY.set(len(self._dirty))
                _LAG.observe(max(self._clock.monotonic() - since, 0.0))
                return key
        return None

    async def _round(self, key: K) -> None:
        now = self._clock.now()
        try:
            decision = self._reducers.plan(key, now)
        except Exception:  # our own bug: it must not stop the other keys, and must not spin
            log.exception("planning %s failed", key)
            self._fail(key, now)
            return
        self._schedule(key, decision.wake_at)
        result = "unchanged" if not decision.effects else "done"
        for effect in decision.effects:
            outcome, going = await self._perform(key, effect)
            if outcome is not None:
                self.offer(outcome)
            if not going:
                result = "refused"
                break
        self._errors.pop(key, None)
        _ROUNDS.labels(result=result).inc()

    def _fail(self, key: K, now: float) -> None:
        _ROUNDS.labels(result="error").inc()
        count = self._errors[key] = self._errors.get(key, 0) + 1
        self._schedule(key, now + min(ERROR_SECONDS * 2 ** (count - 1), ERROR_CEILING))

    def _schedule(self, key: K, at: float | None) -> None:
        """Replace the timer of a key; older heap entries are recognised by their time."""
        if at is None:
            self._due.pop(key, None)
            return
        if self._due.get(key) == at:
            return
        self._due[key] = at
        heapq.heappush(self._timers, (at, next(self._order), key))
        if self._timers[0][2] == key:
            self._tick.set()

    def fire(self) -> None:
        """Mark every key whose time has come."""
        now = self._clock.now()
        while self._timers and self._timers[0][0] <= now:
            at, _, key = heapq.heappop(self._timers)
            if self._due.get(key) == at:
                del self._due[key]
                self.mark((key,))

    async def _watch_timers(self) -> None:
        while True:
            self.fire()
            wait = self._timers[0][0] - self._clock.now() if self._timers else None
            self._tick.clear()
            try:
                async with asyncio.timeout(wait if wait is None else max(wait, 0.001)):
                    await self._tick.wait()
            except TimeoutError:
                continue
