"""Results as tables for people, and as JSON, YAML and CSV for programs."""

import csv
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flexinfer.contracts.events import BenchCompleted, Latencies
from flexinfer.core.benchmark.comparison import Row, Run
from flexinfer.core.benchmark.export import COLUMNS, headline, rows
from flexinfer.runtime.documents import document

_PIPE_WIDTH = 200

Output = Literal["text", "json", "yaml", "csv"]

__all__ = ["Console", "comparison", "history", "result", "results", "write"]


def write(runs: Sequence[Run], output: Output, text: Callable[[Console], None]) -> None:
    """The runs on stdout: one JSON document per line, YAML documents, CSV with a head, or whatever ``text`` prints."""
    match output:
        case "text":
            console = Console()
            # In a pipe there is no width to keep to, and folded keys are of no use.
            text(console if console.is_terminal else Console(width=_PIPE_WIDTH))
        case "json" | "yaml":
            for run in runs:
                told = {**msgspec.to_builtins(run.result), "completedAt": _time(run.at).replace(" ", "T")}
                sys.stdout.write(document(told, output))
        case "csv":
            table = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
            table.writeheader()
            table.writerows(rows(runs))


def results(console: Console, runs: Sequence[Run]) -> None:
    """One line per result."""
    table = _table("Results", "key", "backend", "device class", "node", "tokens/s", "spread", "measured")
    for run in runs:
        found = run.result
        speed = f"{found.tokens_per_second:.1f}" + (" (virtual)" if found.virtual else "")
        table.add_row(
            found.key, found.backend, found.device_class, found.node or "-", speed,
            _number(found.spread_percent, 1, " %"), _time(run.at),
        )  # fmt: skip
    console.print(table if runs else "no results yet")


def result(console: Console, found: BenchCompleted, at: float | None = None) -> None:
    """Everything one result says."""
    console.print(f"[bold]{escape(found.model)}[/bold]  {found.key}", highlight=False)
    where = f"{found.backend} on {found.device_class}" + (f", node {found.node}" if found.node else "")
    console.print(where + (f", {_time(at)}" if at else ""), highlight=False)
    console.print(f"[bold]{headline(found)}[/bold]", highlight=False)
    facts = _table("", "", "")
    for name, value in (
        ("engine's own account", _number(found.engine_tokens_per_second, 2, " tokens/s")),
        ("after the first token", _number(found.decode_tokens_per_second, 2, " tokens/s")),
        ("energy", _number(found.joules_per_token, 3, " J/token")),
        ("cost", _number(found.cost_per_million_tokens, 3, " per million tokens")),
        ("image", escape(found.image) or "-"),
        ("failed requests", str(found.errors)),
    ):
        if value != "-":
            facts.add_row(name, value)
    console.print(facts)
    times = _table("Latency in ms", "", "p50", "p95", "p99")
    times.add_row("first token", *_quantiles(found.first_token))
    times.add_row("between tokens", *_quantiles(found.inter_token))
    times.add_row("whole request", *_quantiles(found.end_to_end))
    console.print(times)
    console.print(_curve(found))
    for note in found.notes:
        console.print(f"note: {escape(note)}", highlight=False)


def history(console: Console, runs: Sequence[Run]) -> None:
    """Runs of one workload on one device class, oldest first."""
    table = _table("History", "measured", "key", "tokens/s", "spread", "image", "driver", "node")
    for run in runs:
        found = run.result
        table.add_row(
            _time(run.at), found.key, f"{found.tokens_per_second:.1f}", _number(found.spread_percent, 1, " %"),
            escape(found.image) or "-", found.driver_major or "-", found.node or "-",
        )  # fmt: skip
    console.print(table)


def comparison(console: Console, runs: tuple[Run, Run], found: Sequence[Row], changes: Sequence[str]) -> None:
    """Two runs beside each other."""
    table = _table("", "", *(f"{escape(run.name)}\n{_time(run.at)}" for run in runs), "change")
    for row in found:
        change = "-" if row.change_percent is None else f"{row.change_percent:+.1f} %"
        colour = {True: "green", False: "red", None: ""}[row.better]
        table.add_row(
            row.name, _number(row.old, 4), _number(row.new, 4), f"[{colour}]{change}[/{colour}]" if colour else change
        )
    console.print(table)
    for change in changes:
        console.print(f"differs in {escape(change)}", highlight=False)


def _curve(found: BenchCompleted) -> Table:
    table = _table("Curve", "at once", "prompt tokens", "tokens/s", "per request", "requests", "errors")
    for point in found.curve:
        table.add_row(
            str(point.concurrency), str(point.prompt_tokens), f"{point.tokens_per_second:.1f}",
            f"{point.per_request_tokens_per_second:.1f}", str(point.requests), str(point.errors),
        )  # fmt: skip
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title or None, title_justify="left", title_style="bold", box=None, padding=(0, 2))
    for column in columns:
        table.add_column(column, overflow="fold", header_style="dim", no_wrap=column in {"key", "tokens/s", "spread"})
    return table


def _quantiles(found: Latencies | None) -> tuple[str, str, str]:
    if found is None:
        return "-", "-", "-"
    return (f"{found.p50 * 1000:.1f}", f"{found.p95 * 1000:.1f}", f"{found.p99 * 1000:.1f}")


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(" ", timespec="seconds").replace("+00:00", "Z")
