"""Everything a proxy knows of its models: routes, replicas with their load, use."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import ModelEndpoint, ModelHeadroom, ModelLoad
from flexinfer.core.routing.replicas import Pool
from flexinfer.core.routing.table import Table
from flexinfer.core.routing.usage import Usage

REPORT_SECONDS = 3600.0  # a model unused for so long is left out of load events


@dataclass(slots=True)
class Directory:
    """Folded from bus facts; one writer on the event loop."""

    table: Table = field(default_factory=Table)
    pools: dict[str, Pool] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)
    warm: bool = False  # a complete snapshot was seen

    def fold(self, event: Event) -> tuple[str, ...]:
        """Take one event; the keys of the routes that changed."""
        key = self.table.fold(event)
        if key is None:
            return ()
        self._update(key)
        return (key,)

    def replace(self, events: Iterable[Event]) -> tuple[str, ...]:
        """Take a complete snapshot; the keys of the routes that changed."""
        changed = self.table.replace(events)
        self.warm = True
        for key in changed:
            self._update(key)
        return changed

    def _update(self, key: str) -> None:
        spec = self.table.routes.get(key)
        if spec is None:
            self.pools.pop(key, None)
            usage = self.usage.get(key)
            if usage and not usage.outstanding:
                del self.usage[key]
            return
        pool = self.pools.get(key)
        if pool is None:
            pool = self.pools[key] = Pool()
        pool.update(spec)

    def used(self, key: str) -> Usage:
        """The record of use of a route, made if new."""
        found = self.usage.get(key)
        if found is None:
            found = self.usage[key] = Usage()
        return found

    def urls(self) -> set[str]:
        """Every address that is routed to."""
        return {replica.url for pool in self.pools.values() for replica in pool.members.values()}

    def active(self, now: float) -> Iterator[tuple[ModelEndpoint, Usage]]:
        """Routes worth a load event."""
        for key, usage in self.usage.items():
            spec = self.table.routes.get(key)
            if spec and (usage.outstanding or now - (usage.last_used or 0.0) < REPORT_SECONDS):
                yield spec, usage

    def headroom(self, rates: dict[str, float]) -> tuple[ModelHeadroom, ...]:
        """Tokens/s each listed model could still give: measured speed of its ready replicas less what it gives now.

        Models without a measured replica are left out: nothing is known of them. A model at zero gives nothing now.
        """
        rows = []
        for spec in self.table.listed():
            key = f"{spec.namespace}/{spec.model}"
            pool = self.pools[key]
            if pool.ready and not any(replica.speed for replica in pool.ready):
                continue
            capacity = sum(replica.speed or pool.typical for replica in pool.ready)
            rows.append(
                ModelHeadroom(
                    namespace=spec.namespace, model=spec.model,
                    tokens_per_second=max(0.0, capacity - rates.get(key, 0.0)),
                )
            )  # fmt: skip
        return tuple(rows)


def load_of(spec: ModelEndpoint, usage: Usage, proxy: str, rates: tuple[float, float]) -> ModelLoad:
    """The load event of one route; ``rates`` are requests/s and tokens/s."""
    return ModelLoad(
        namespace=spec.namespace, model=spec.model, proxy=proxy, outstanding=usage.outstanding,
        requests_per_second=max(0.0, rates[0]), tokens_per_second=max(0.0, rates[1]),
        last_used=None if usage.last_used is None else datetime.fromtimestamp(usage.last_used, UTC),
    )  # fmt: skip
