"""Tables of what the bus holds, for ``flexinfer status`` and ``flexinfer top``."""

from msgspec import UnsetType
from rich.markup import escape
from rich.table import Table

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import (
    BenchCompleted,
    CachedModel,
    EventData,
    ModelEndpoint,
    ModelLoad,
    ModelPhase,
    NodeHardware,
    NodeStatus,
    NodeTelemetry,
)

SHOWN: tuple[type[EventData], ...] = (
    NodeHardware, NodeTelemetry, NodeStatus, ModelPhase, ModelEndpoint, ModelLoad, BenchCompleted,
)  # fmt: skip


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2), header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _number(value: float | None, digits: int = 0, unit: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def tables(events: tuple[Event, ...], now: float) -> tuple[Table, ...]:
    """The screen: nodes, models, results."""
    return _nodes(events, now), _models(events), _results(events)


def _nodes(events: tuple[Event, ...], now: float) -> Table:
    hardware = {e.data.node: e.data for e in events if isinstance(e.data, NodeHardware)}
    telemetry = {e.data.node: e for e in events if isinstance(e.data, NodeTelemetry)}
    status = {e.data.node: e.data.state for e in events if isinstance(e.data, NodeStatus)}
    table = _table("Nodes", "node", "state", "free / all", "load", "temp", "age")
    for name, found in sorted(hardware.items()):
        event = telemetry.get(name)
        live = event.data if event and isinstance(event.data, NodeTelemetry) else None
        label = f"[bold]{name}[/bold]" + (" (virtual)" if found.virtual else "")
        table.add_row(
            label, status.get(name, "?"), _of(live.memory_free_mib if live else None, found.cpu.memory_mib),
            _number(live.cpu_util_percent if live else None, 0, " %"), "-",
            _number(now - event.at, 0, " s") if event else "never",
        )  # fmt: skip
        by_uuid = {d.uuid: d for d in live.devices} if live else {}
        table.add_row(f"  {escape(found.cpu.model or 'CPU')}, {found.cpu.threads} threads")
        for device in found.devices:
            figures = by_uuid.get(device.uuid)
            table.add_row(
                escape(f"  {device.product or device.vendor} {device.arch or ''}"), device.health.state,
                _of(figures.memory_free_mib if figures else None, device.memory_mib),
                _number(figures.util_percent if figures else None, 0, " %"),
                _number(figures.temperature_celsius if figures else None, 0, " °C"),
            )  # fmt: skip
        if not isinstance(found.cached, UnsetType):
            held = sum(model.bytes for model in found.cached) / 1e9
            table.add_row(f"  cache: {len(found.cached)} model(s), {held:.1f} GB")
            for model in found.cached:
                table.add_row(escape(f"    {model.source}"), _facts(model), f"{model.bytes / 1e9:.1f} GB")
    return table


def _facts(model: CachedModel) -> str:
    found = model.gguf
    if isinstance(found, UnsetType):
        return ""
    return f"{found.parameters / 1e9:.2g}B {found.quantization or found.architecture}"


def _of(free: int | None, whole: int | None) -> str:
    def gib(mib: int | None) -> str:
        return "?" if mib is None else f"{mib / 1024:.1f}"

    return f"{gib(free)} / {gib(whole)} GiB"


def _models(events: tuple[Event, ...]) -> Table:
    endpoints = {(e.data.namespace, e.data.model): e.data for e in events if isinstance(e.data, ModelEndpoint)}
    outstanding: dict[tuple[str, str], int] = {}
    for event in events:
        if isinstance(event.data, ModelLoad):
            key = (event.data.namespace, event.data.model)
            outstanding[key] = outstanding.get(key, 0) + event.data.outstanding
    table = _table("Models", "model", "phase", "ready", "busy", "serves at")
    for event in events:
        if isinstance(event.data, ModelPhase):
            data = event.data
            key = (data.namespace, data.model)
            served = endpoints.get(key)
            where = "\n".join(f"{e.node or e.pod} {e.url}" for e in served.endpoints) if served else ""
            table.add_row(
                f"{data.namespace}/{data.model}", data.phase, f"{data.ready_replicas}/{data.replicas}",
                str(outstanding.get(key, 0)), where or data.message,
            )  # fmt: skip
    return table


def _results(events: tuple[Event, ...]) -> Table:
    table = _table("Measured", "workload on device class", "tokens/s", "spread", "first token")
    for event in events:
        if isinstance(event.data, BenchCompleted):
            data = event.data
            first = data.first_token.p50 * 1000 if data.first_token else None
            table.add_row(
                f"{data.workload}\n  {data.device_class}{' (virtual)' if data.virtual else ''}",
                _number(data.tokens_per_second, 1), _number(data.spread_percent, 1, " %"), _number(first, 0, " ms"),
            )  # fmt: skip
    return table
