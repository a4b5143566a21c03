"""Results beside each other: which stand for the same workload, how they changed, and by how much."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import BenchCompleted


@dataclass(frozen=True, slots=True)
class Run:
    """One result and when it was completed (Unix seconds)."""

    at: float
    result: BenchCompleted

    @property
    def name(self) -> str:
        """``<key>@<UTC time to the millisecond>``: points at one run of several."""
        when = datetime.fromtimestamp(self.at, UTC).replace(tzinfo=None)
        return f"{self.result.key}@{when.isoformat(timespec='milliseconds')}"


def runs_of(events: Iterable[Event]) -> tuple[Run, ...]:
    """Every run among the events, once, oldest first. Events of other types are skipped."""
    found = {event.id: Run(event.at, event.data) for event in events if isinstance(event.data, BenchCompleted)}
    return tuple(sorted(found.values(), key=lambda run: (run.at, run.result.key)))


def latest(runs: Sequence[Run]) -> tuple[Run, ...]:
    """The last run of each key, sorted by workload, then fastest first."""
    by_key = {run.result.key: run for run in runs}
    return tuple(sorted(by_key.values(), key=lambda run: (run.result.workload, -run.result.tokens_per_second)))


def history(runs: Sequence[Run], run: Run) -> tuple[Run, ...]:
    """Runs of the same workload on the same device class, whatever image and driver, oldest first."""
    same = (run.result.workload, run.result.device_class)
    return tuple(r for r in runs if (r.result.workload, r.result.device_class) == same)


def find(runs: Sequence[Run], name: str) -> Run:
    """The last run whose key, or key@time, begins with ``name``: ``smol`` or ``smol-0123456789ab@2026-01-31``.

    Raises LookupError with a sentence when there is none or several keys match.
    """
    exact = [run for run in runs if name in {run.result.key, run.name}]
    matching = exact or [run for run in runs if run.name.startswith(name)]
    keys = sorted({run.result.key for run in matching})
    if len(keys) > 1:
        raise LookupError(f"{name!r} stands for {len(keys)} results: {', '.join(keys[:5])}; write more of the key")
    if not matching:
        known = ", ".join(sorted({run.result.key for run in runs})[:10]) or "none at all"
        raise LookupError(f"there is no result {name!r}; known are {known}")
    return matching[-1]


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity of two runs. ``change_percent`` is (new - old) / old; ``better`` None where neither is."""

    name: str
    old: float | None
    new: float | None
    higher_is_better: bool | None

    @property
    def change_percent(self) -> float | None:
        """None unless both are known and the old one is above 0."""
        if self.old is None or self.new is None or self.old <= 0:
            return None
        return (self.new - self.old) / self.old * 100.0

    @property
    def better(self) -> bool | None:
        """Whether the change is one for the better."""
        change = self.change_percent
        if change is None or self.higher_is_better is None or change == 0:
            return None
        return (change > 0) is self.higher_is_better


def compare(old: BenchCompleted, new: BenchCompleted) -> tuple[Row, ...]:
    """Headline, rates, latencies in seconds, then each point of the curve that either has."""
    rows = [
        Row("tokens/s", old.tokens_per_second, new.tokens_per_second, higher_is_better=True),
        Row("decode tokens/s", old.decode_tokens_per_second, new.decode_tokens_per_second, higher_is_better=True),
        Row("spread %", old.spread_percent, new.spread_percent, higher_is_better=False),
    ]
    for label, a, b in (
        ("first token", old.first_token, new.first_token),
        ("inter-token", old.inter_token, new.inter_token),
        ("end to end", old.end_to_end, new.end_to_end),
    ):
        for quantile in ("p50", "p95", "p99"):
            values = (getattr(a, quantile) if a else None, getattr(b, quantile) if b else None)
            rows.append(Row(f"{label} {quantile} s", *values, higher_is_better=False))
    rows.append(Row("joules/token", old.joules_per_token, new.joules_per_token, higher_is_better=False))
    rows.append(
        Row("cost per million", old.cost_per_million_tokens, new.cost_per_million_tokens, higher_is_better=False)
    )
    points = [{(p.prompt_tokens, p.concurrency): p.tokens_per_second for p in r.curve} for r in (old, new)]
    for shape in sorted({*points[0], *points[1]}):
        label = f"tokens/s at {shape[1]} x {shape[0]} prompt tokens"
        rows.append(Row(label, points[0].get(shape), points[1].get(shape), higher_is_better=True))
    return tuple(row for row in rows if row.old is not None or row.new is not None)


_IDENTITY = ("source", "backend", "workload", "image", "image_digest", "driver_major", "device_class", "node")


def identity_changes(old: BenchCompleted, new: BenchCompleted) -> tuple[str, ...]:
    """One sentence per part of identity or settings that differs: why these are no repeats of one measurement."""
    pairs = [(name, getattr(old, name), getattr(new, name)) for name in _IDENTITY]
    pairs += [
        (name, getattr(old.settings, name), getattr(new.settings, name)) for name in old.settings.__struct_fields__
    ]
    return tuple(f"{name.replace('_', ' ')}: {_said(a)} → {_said(b)}" for name, a, b in pairs if a != b)


def _said(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(str(part) for part in value)
    return str(value) if value not in (None, "") else "-"
