"""What a proxy tells the bus: demand of models at zero, load, headroom; and what it hears from it."""

import asyncio
import logging
from collections.abc import Callable

from flexinfer.adapters.web.proxy.listener import Tasks
from flexinfer.adapters.web.proxy.waiting import WaitingRoom
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import BenchCompleted, ClusterHeadroom, EventData, ModelDemand, ModelEndpoint, ModelLoad
from flexinfer.core.routing.directory import Directory, load_of
from flexinfer.ports import Bus, BusFact, Clock, Snapshot, Subscription

log = logging.getLogger(__name__)

REPORT_PERIOD = 2.0


class Signals:
    """Publishing never waits for a bus that is away (ports.Bus), so requests never do."""

    def __init__(
        self,
        bus: Bus,
        mint: EventMint,
        clock: Clock,
        directory: Directory,
        url: Callable[[], str],
        record: Callable[[float, BusFact], None] | None = None,
    ) -> None:
        """``record`` journals each fact with the clock reading it was folded at."""
        self._record = record
        self._tasks: Tasks | None = None
        self._bus = bus
        self._mint = mint
        self._clock = clock
        self._directory = directory
        self._url = url
        self._demand_changed = asyncio.Event()
        self._subscription: Subscription | None = None

    @property
    def proxy(self) -> str:
        """The name of this replica in events."""
        return self._mint.instance

    @property
    def synced(self) -> bool:
        """The table follows the bus right now."""
        return self._subscription is not None and self._subscription.synced

    def changed(self, _key: str) -> None:
        """The demand of a model changed."""
        self._demand_changed.set()

    def start(self, tasks: Tasks, room: WaitingRoom, moved: Callable[[tuple[str, ...]], None]) -> None:
        """Follow endpoints; ``moved`` gets the keys of routes that changed. Report until the tasks are closed."""

        directory, clock = self._directory, self._clock
        directory.name = self.proxy
        self._tasks = tasks

        def fold(fact: BusFact) -> None:
            now = clock.now()
            if self._record:
                self._record(now, fact)
            moved(directory.replace(fact.events, now) if isinstance(fact, Snapshot) else directory.fold(fact, now))

        async def follow() -> None:
            self._subscription = await self._bus.follow((ModelEndpoint, ModelLoad, BenchCompleted), fold)

        tasks.once("follow endpoints", follow())
        tasks.forever("demand events", lambda: self._tell_demand(room))
        tasks.forever("load events", lambda: self._report(moved))

    def publish_soon(self, data: EventData) -> None:
        """Publish without waiting."""
        if self._tasks:
            self._tasks.once("access event", self._publish(data))

    async def _publish(self, data: EventData) -> None:
        await self._bus.publish(self._mint.mint(data))

    async def _tell_demand(self, room: WaitingRoom) -> None:
        while True:
            self._demand_changed.clear()
            now = self._clock.now()
            pause: float | None = None
            for key, demand in tuple(room.demands.items()):
                due = demand.due(now)
                if due == 0.0:
                    await self.publish_demand(key, room)
                    due = demand.due(now)
                if due is not None:
                    pause = due if pause is None else min(pause, due)
                else:
                    room.forget(key)
            try:
                async with asyncio.timeout(pause):
                    await self._demand_changed.wait()
                    if pause:
                        await asyncio.sleep(0)
            except TimeoutError:
                continue

    async def publish_demand(self, key: str, room: WaitingRoom) -> None:
        """One demand event, with the present count."""
        namespace, _, model = key.partition("/")
        waiting, oldest = room.demands[key].tell(self._clock.now())
        await self._publish(
            ModelDemand(namespace=namespace, model=model, proxy=self.proxy, waiting=waiting, oldest_age_seconds=oldest)
        )

    async def _report(self, moved: Callable[[tuple[str, ...]], None]) -> None:
        while True:
            moved(self._directory.expire(self._clock.now()))
            await self.report()
            await asyncio.sleep(REPORT_PERIOD)

    async def report(self) -> None:
        """Load of every model in use, and the headroom of this cluster."""
        now = self._clock.now()
        tokens: dict[str, float] = {}
        for spec, usage in tuple(self._directory.active(now)):
            rates = usage.rates(now)
            tokens[f"{spec.namespace}/{spec.model}"] = rates[1]
            await self._publish(load_of(spec, usage, self.proxy, rates))
        if self._directory.warm:
            models = self._directory.headroom(tokens, now)
            await self._publish(ClusterHeadroom(proxy=self.proxy, url=self._url(), models=models))
