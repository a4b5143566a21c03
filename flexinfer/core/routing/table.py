"""The routing table: every routable name of the cluster, folded from ``ModelEndpoint`` events.

A name resolves as ``<namespace>/<name>``, as ``<name>`` (namespace ``default`` first, else the only one), then as an
alias by the same rule, then as an adapter, alone or after its namespace. Hidden names answer to their own name only and
are listed nowhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import ModelAdapter, ModelEndpoint
from flexinfer.contracts.topics import order_key
from flexinfer.core.fleet.view import OrderBook
from flexinfer.core.routing.refusal import Refusal

HOME = "default"
DOUBT_SECONDS = 10.0


def key_of(spec: ModelEndpoint) -> str:
    """``<namespace>/<name>``."""
    return f"{spec.namespace}/{spec.model}"


@dataclass(slots=True)
class Table:
    """One writer, the fold; readers share its event loop. ``version`` grows with every change."""

    routes: dict[str, ModelEndpoint] = field(default_factory=dict)
    version: int = 0
    doubtful: dict[str, float] = field(default_factory=dict)  # routes missing from the last snapshot -> since
    _order: OrderBook = field(default_factory=OrderBook)
    _by_name: dict[str, list[str]] = field(default_factory=dict)
    _by_alias: dict[str, list[str]] = field(default_factory=dict)
    _by_adapter: dict[str, list[str]] = field(default_factory=dict)
    _found: dict[str, ModelEndpoint] = field(default_factory=dict)

    def fold(self, event: Event) -> str | None:
        """Take one event; the key that changed, None for repeats and other types."""
        spec = event.data
        if not isinstance(spec, ModelEndpoint):
            return None
        key = key_of(spec)
        if not self._order.accept(order_key(spec), event):
            if self._order.holds(order_key(spec), event):
                self.doubtful.pop(key, None)  # what a wiped bus lost is written again word by word
            return None
        self.doubtful.pop(key, None)
        if spec.gone:
            if self.routes.pop(key, None) is None:
                return None
        else:
            self.routes[key] = spec
        self._reindex()
        return key

    def replace(self, events: Iterable[Event], now: float) -> tuple[str, ...]:
        """Take a complete snapshot; the keys that changed.

        A stored event that is older than one already seen live loses: the store may lag behind the live subject. A
        route the snapshot does not have stays for ``DOUBT_SECONDS``: after a wiped store the manager needs a moment to
        write everything again, and meanwhile the engines still answer.
        """
        fresh: dict[str, ModelEndpoint] = {}
        for event in events:
            spec = event.data
            if not isinstance(spec, ModelEndpoint):
                continue
            key = key_of(spec)
            if self._order.accept(order_key(spec), event):
                if not spec.gone:
                    fresh[key] = spec
            elif key in self.routes:
                fresh[key] = self.routes[key]
        old = self.routes
        missing = old.keys() - fresh.keys()
        self.doubtful = {key: self.doubtful.get(key, now) for key in missing}
        self.routes = {**fresh, **{key: old[key] for key in missing}}
        self._reindex()
        return tuple(key for key in fresh if old.get(key) != fresh[key])

    def expire(self, now: float) -> tuple[str, ...]:
        """Drop routes nobody confirmed in time; their keys."""
        gone = tuple(key for key, since in self.doubtful.items() if now - since >= DOUBT_SECONDS)
        for key in gone:
            del self.doubtful[key]
            spec = self.routes.pop(key, None)
            if spec is not None:
                self._order.forget(order_key(spec))  # the same word, said again, is news then
        if gone:
            self._reindex()
        return gone

    def _reindex(self) -> None:
        self.version += 1
        self._found.clear()
        self._by_name.clear()
        self._by_alias.clear()
        self._by_adapter.clear()
        for key in sorted(self.routes):
            spec = self.routes[key]
            self._by_name.setdefault(spec.model, []).append(key)
            if not spec.hidden:
                for alias in dict.fromkeys(spec.aliases):
                    self._by_alias.setdefault(alias, []).append(key)
                for adapter in spec.adapters or ():
                    self._by_adapter.setdefault(adapter.name, []).append(key)
                    self._by_adapter.setdefault(f"{spec.namespace}/{adapter.name}", []).append(key)

    def resolve(self, name: str) -> ModelEndpoint:
        """The route a client means. Raises Refusal 404 for unknown and ambiguous names."""
        spec = self._found.get(name)
        if spec is None:
            spec = self._found[name] = self._resolve(name)
        return spec

    def _resolve(self, name: str) -> ModelEndpoint:
        if name in self.routes:
            return self.routes[name]
        for kind, index in (("name", self._by_name), ("alias", self._by_alias), ("adapter", self._by_adapter)):
            keys = index.get(name)
            if not keys:
                continue
            home = [key for key in keys if self.routes[key].namespace == HOME]
            if len(keys) > 1 and len(home) != 1:
                raise Refusal(
                    404, "model_not_found",
                    f"the {kind} '{name}' is ambiguous: it stands for {', '.join(keys)}; ask for one of these",
                    param="model",
                )  # fmt: skip
            return self.routes[(home or keys)[0]]
        raise Refusal(404, "model_not_found", f"the model '{name}' does not exist", param="model")

    def adapter(self, spec: ModelEndpoint, name: str) -> ModelAdapter | None:
        """Which adapter of the route a name means that was resolved to it; None for the model itself."""
        if not spec.adapters or name in {spec.model, key_of(spec), *spec.aliases}:
            return None
        short = name.removeprefix(f"{spec.namespace}/")
        return next((adapter for adapter in spec.adapters if adapter.name == short), None)

    def adapter_name(self, spec: ModelEndpoint, adapter: ModelAdapter) -> str | None:
        """The shortest name that means this adapter of this route; None where other models have them all."""
        for name in (adapter.name, f"{spec.namespace}/{adapter.name}"):
            try:
                if self.resolve(name) is spec and self.adapter(spec, name) is adapter:
                    return name
            except Refusal:
                continue
        return None

    def listed(self) -> list[ModelEndpoint]:
        """Routes shown to clients, by key."""
        return [self.routes[key] for key in sorted(self.routes) if not self.routes[key].hidden]

    def public_name(self, spec: ModelEndpoint) -> str:
        """The shortest name that resolves to this route."""
        keys = self._by_name.get(spec.model, [])
        short = len(keys) == 1 or spec.namespace == HOME
        return spec.model if short else key_of(spec)
