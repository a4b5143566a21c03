"""Everything a proxy knows of its models: routes, replicas with their load, use here and at other proxies."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import BenchCompleted, ModelEndpoint, ModelHeadroom, ModelLoad
from flexinfer.contracts.topics import DEMAND_TTL_SECONDS, order_key
from flexinfer.core.fleet.view import OrderBook
from flexinfer.core.routing.replicas import Pool
from flexinfer.core.routing.speed import Curve, curve_of
from flexinfer.core.routing.table import Table, key_of
from flexinfer.core.routing.usage import Usage

REPORT_SECONDS = 3600.0  # a model unused for so long is left out of load events


@dataclass(slots=True)
class Directory:
    """Folded from bus facts; one writer on the event loop. ``name`` is this proxy's own name in events."""

    name: str = ""
    table: Table = field(default_factory=Table)
    pools: dict[str, Pool] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)
    others: dict[str, dict[str, tuple[ModelLoad, float]]] = field(default_factory=dict)  # key -> proxy -> (load, heard)
    curves: dict[str, dict[str, Curve]] = field(default_factory=dict)  # key -> device class -> curve
    warm: bool = False  # a complete snapshot was seen
    _order: OrderBook = field(default_factory=OrderBook)

    def fold(self, event: Event, now: float) -> tuple[str, ...]:
        """Take one event; the keys of the routes that changed."""
        match event.data:
            case ModelLoad() as load:
                self._take_load(load, event, now)
                return ()
            case BenchCompleted() as result:
                self._take_result(result)
                return ()
            case _:
                key = self.table.fold(event)
                if key is None:
                    return ()
                self._update(key)
                return (key,)

    def replace(self, events: Iterable[Event], now: float) -> tuple[str, ...]:
        """Take a complete snapshot; the keys of the routes that changed."""
        endpoints = []
        for event in events:
            if isinstance(event.data, ModelEndpoint):
                endpoints.append(event)
            else:
                self.fold(event, now)
        changed = self.table.replace(endpoints, now)
        self.warm = True
        for key in changed:
            self._update(key)
        return changed

    def expire(self, now: float) -> tuple[str, ...]:
        """Time passes: drop unconfirmed routes and proxies that fell silent; the keys of routes that changed."""
        for key in self.others:
            self._share(key, now)
        gone = self.table.expire(now)
        for key in gone:
            self._update(key)
        return gone

    def _update(self, key: str) -> None:
        spec = self.table.routes.get(key)
        if spec is None:
            self.pools.pop(key, None)
            self.others.pop(key, None)
            usage = self.usage.get(key)
            if usage and not usage.outstanding:
                del self.usage[key]
            return
        pool = self.pools.get(key)
        if pool is None:
            pool = self.pools[key] = Pool()
        pool.update(spec, self.curves.get(key, {}))

    def _take_result(self, result: BenchCompleted) -> None:
        shortest = min((point.prompt_tokens for point in result.curve), default=0)
        points = [(p.concurrency, p.tokens_per_second) for p in result.curve if p.prompt_tokens == shortest]
        curve = curve_of(points, result.tokens_per_second)
        key = f"{result.namespace}/{result.model}"
        if curve:
            self.curves.setdefault(key, {})[result.device_class] = curve
            if pool := self.pools.get(key):
                pool.measure(self.curves[key])

    def _take_load(self, load: ModelLoad, event: Event, now: float) -> None:
        if load.proxy != self.name and self._order.accept(order_key(load), event):
            key = f"{load.namespace}/{load.model}"
            self.others.setdefault(key, {})[load.proxy] = (load, now)
            self._share(key, now)

    def _share(self, key: str, now: float) -> None:
        """Let the pool know how busy its replicas are for others."""
        if pool := self.pools.get(key):
            pool.others = float(sum(load.outstanding for load, _ in self._fresh(key, now)))

    def _fresh(self, key: str, now: float) -> list[tuple[ModelLoad, float]]:
        """What other proxies said lately; one that fell silent no longer counts."""
        heard = self.others.get(key, {})
        for proxy in [p for p, (_, at) in heard.items() if now - at > DEMAND_TTL_SECONDS]:
            del heard[proxy]
        return list(heard.values())

    def used(self, key: str) -> Usage:
        """The record of use of a route, made if new."""
        found = self.usage.get(key)
        if found is None:
            found = self.usage[key] = Usage()
        return found

    def elsewhere(self, key: str, now: float) -> float:
        """Tokens/s other proxies relay for a model."""
        return sum(load.tokens_per_second for load, _ in self._fresh(key, now))

    def active(self, now: float) -> Iterator[tuple[ModelEndpoint, Usage]]:
        """Routes worth a load event."""
        for key, usage in self.usage.items():
            spec = self.table.routes.get(key)
            if spec and (usage.outstanding or now - (usage.last_used or 0.0) < REPORT_SECONDS):
                yield spec, usage

    def headroom(self, rates: dict[str, float], now: float) -> tuple[ModelHeadroom, ...]:
        """Tokens/s each listed model could still give: its ready replicas at their best less what all proxies relay.

        Models without a measured replica are left out: nothing is known of them. A model at zero gives nothing now.
        """
        rows = []
        for spec in self.table.listed():
            key = key_of(spec)
            capacity = self.pools[key].capacity
            if capacity is not None:
                free = capacity - rates.get(key, 0.0) - self.elsewhere(key, now)
                rows.append(ModelHeadroom(namespace=spec.namespace, model=spec.model, tokens_per_second=max(0.0, free)))
        return tuple(rows)


def load_of(spec: ModelEndpoint, usage: Usage, proxy: str, rates: tuple[float, float]) -> ModelLoad:
    """The load event of one route; ``rates`` are requests/s and tokens/s."""
    return ModelLoad(
        namespace=spec.namespace, model=spec.model, proxy=proxy, outstanding=usage.outstanding,
        requests_per_second=max(0.0, rates[0]), tokens_per_second=max(0.0, rates[1]),
        last_used=None if usage.last_used is None else datetime.fromtimestamp(usage.last_used, UTC),
    )  # fmt: skip
