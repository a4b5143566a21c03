"""Results as rows of plain values, for CSV and tables; times are seconds, rates tokens/s."""

from collections.abc import Iterable
from datetime import UTC, datetime

from flexinfer.contracts.events import BenchCompleted, Latencies
from flexinfer.core.benchmark.comparison import Run

Value = str | int | float | None

COLUMNS = (
    "completed_at", "key", "model", "workload", "backend", "device_class", "node", "virtual", "image", "driver_major",
    "tokens_per_second", "spread_percent", "iterations", "engine_tokens_per_second", "decode_tokens_per_second",
    "first_token_p50", "first_token_p95", "first_token_p99", "inter_token_p50", "inter_token_p95", "inter_token_p99",
    "end_to_end_p50", "end_to_end_p95", "end_to_end_p99", "joules_per_token", "cost_per_million_tokens", "errors",
    "concurrency", "prompt_tokens", "point_tokens_per_second", "point_request_tokens_per_second", "point_requests",
    "point_errors",
)  # fmt: skip


def rows(runs: Iterable[Run]) -> list[dict[str, Value]]:
    """One row per point of each curve, the result's own columns repeated; a result without a curve has one row."""
    found: list[dict[str, Value]] = []
    for run in runs:
        head = _head(run)
        points = [
            {
                "concurrency": point.concurrency,
                "prompt_tokens": point.prompt_tokens,
                "point_tokens_per_second": point.tokens_per_second,
                "point_request_tokens_per_second": point.per_request_tokens_per_second,
                "point_requests": point.requests,
                "point_errors": point.errors,
            }
            for point in run.result.curve
        ]
        found += [{**head, **point} for point in points or [{}]]
    return found


def _head(run: Run) -> dict[str, Value]:
    result = run.result
    head: dict[str, Value] = {"completed_at": datetime.fromtimestamp(run.at, UTC).isoformat(timespec="seconds")}
    for name in COLUMNS:
        if hasattr(result, name):
            head[name] = getattr(result, name)
    for label in ("first_token", "inter_token", "end_to_end"):
        head |= _quantiles(label, getattr(result, label))
    return head


def _quantiles(label: str, found: Latencies | None) -> dict[str, Value]:
    return {f"{label}_{q}": getattr(found, q) if found else None for q in ("p50", "p95", "p99")}


def headline(result: BenchCompleted) -> str:
    """One sentence for people."""
    spread = "" if result.spread_percent is None else f", spread {result.spread_percent:.1f} %"
    return f"{result.tokens_per_second:.2f} tokens/s, median of {result.iterations} iterations{spread}"
