"""The story of one model as it happens: bus events turned into lines a person reads."""

import asyncio
from dataclasses import dataclass, field

from rich.markup import escape
from rich.table import Table

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import (
    BenchCompleted,
    BenchFailed,
    BenchSample,
    BenchStarted,
    Candidate,
    ModelPhase,
    PlacementDecided,
)
from flexinfer.contracts.topics import order_key
from flexinfer.core.fleet.view import OrderBook
from flexinfer.local.progress import Progress
from flexinfer.ports import BusFact, Snapshot

STORY_TYPES = (ModelPhase, BenchStarted, BenchSample, BenchCompleted, BenchFailed, PlacementDecided)


def terms_table(candidates: tuple[Candidate, ...]) -> Table:
    """Candidates as rows, signed terms as columns; the terms of a row add up to its sum."""
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("node")
    names = [term.name for term in candidates[0].terms] if candidates else []
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("sum", justify="right")
    table.add_column("score", justify="right")
    for candidate in candidates:
        cells = [f"{term.contribution:+.1f}" for term in candidate.terms]
        table.add_row(candidate.node, *cells, f"{candidate.sum:.1f}", str(candidate.score))
    return table


@dataclass(slots=True)
class Story:
    """Follows one model; ``phase`` is its last phase and ``changed`` is set with each new one."""

    namespace: str
    model: str
    progress: Progress
    phase: str = ""
    reason: str = ""
    message: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _order: OrderBook = field(default_factory=OrderBook)
    _keys: set[str] = field(default_factory=set)
    _rate: float | None = None

    def sink(self, fact: BusFact) -> None:
        """For ``Bus.follow``."""
        events = fact.events if isinstance(fact, Snapshot) else (fact,)
        for event in events:
            if self._order.accept(order_key(event.data), event):
                self._tell(event)

    def _tell(self, event: Event) -> None:
        match event.data:
            case ModelPhase(namespace=self.namespace, model=self.model) as data:
                self._on_phase(data)
            case BenchStarted(namespace=self.namespace, model=self.model) as data:
                self._keys.add(data.key)
                self.progress.note("benchmark", f"{data.key} on {data.device_class}")
            case BenchSample() as data if data.key in self._keys:
                self._on_sample(data)
            case BenchCompleted(namespace=self.namespace, model=self.model) as data:
                spread = f", spread {data.spread_percent:.1f} %" if data.spread_percent is not None else ""
                self.progress.mark("benchmark", f"{data.tokens_per_second:.1f} tokens/s on {data.device_class}{spread}")
            case BenchFailed(namespace=self.namespace, model=self.model) as data:
                self.progress.note("benchmark", f"failed: {escape(data.message)} {escape(data.remedy)}")
            case PlacementDecided(namespace=self.namespace) as data:
                self._on_placement(data)
            case _:
                return

    def _on_phase(self, data: ModelPhase) -> None:
        if data.gone:
            self.gone.set()
            return
        if data.phase == self.phase and data.reason == self.reason:
            return
        arrow = f"{self.phase} → {data.phase}" if self.phase and self.phase != data.phase else data.phase
        self.progress.note("phase", f"[bold]{arrow}[/bold]  [dim]{escape(data.message)}[/dim]")
        self.phase, self.reason, self.message = data.phase, data.reason, data.message
        self.changed.set()

    def _on_sample(self, data: BenchSample) -> None:
        kind = "warm-up" if data.warmup else f"iteration {data.iteration + 1}"
        first = f", first token {data.first_token_seconds * 1000:.0f} ms" if data.first_token_seconds else ""
        streams = f" ({data.concurrency} streams)" if data.concurrency > 1 else ""
        self.progress.note("", f"{kind:<12} {data.tokens_per_second:6.1f} tokens/s{first}{streams}")

    def _on_placement(self, data: PlacementDecided) -> None:
        if data.outcome in {"rejected", "error"}:
            why = data.message or "; ".join(f"{count}× {reason}" for reason, count in sorted(data.reasons.items()))
            self.progress.note("placement", f"{data.pod}: {data.outcome}: {escape(why)}")
            return
        best = data.candidates[0].node if data.candidates else "?"
        self.progress.note("placement", f"{data.pod} → {best}, {data.considered} node(s) considered")
        if data.candidates:
            self.progress.table(terms_table(data.candidates[:5]))
