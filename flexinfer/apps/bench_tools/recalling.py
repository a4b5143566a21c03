"""``flexinfer bench list|show|compare``: results from the bus or from a file of events."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.apps.bench_tools import tables
from flexinfer.config.bench_tools import (
    BenchCompareSettings,
    BenchListSettings,
    BenchShowSettings,
    ResultsSettings,
)
from flexinfer.contracts.envelope import Event, MalformedEvent, decode_event
from flexinfer.contracts.events import BenchCompleted
from flexinfer.core.benchmark import comparison, plot
from flexinfer.core.benchmark.comparison import Run
from flexinfer.ports import BusFact, BusRefused, BusUnavailable, Snapshot
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.documents import document
from flexinfer.runtime.journal import BadLine, Fact
from flexinfer.runtime.parts import following, read_parts
from flexinfer.runtime.process import fail

_CONNECT_SECONDS = 5.0


async def run(settings: ResultsSettings) -> int:
    """Print; exit code 1 if there is nothing to read from or no such result."""
    try:
        runs = comparison.runs_of(_taped(settings.tape) if settings.tape else await _from_bus(settings))
        match settings:
            case BenchListSettings():
                return _list(settings, runs)
            case BenchShowSettings():
                return _show(settings, runs)
            case BenchCompareSettings():
                return _compare(settings, runs)
            case _:
                raise TypeError(f"{type(settings).__name__} names no action")
    except (BusUnavailable, BusRefused, LookupError) as err:
        return fail(f"flexinfer bench: {err.args[0] if err.args else err}")
    except OSError as err:
        return fail(f"flexinfer bench: {err.filename}: {err.strerror}")


async def _from_bus(settings: ResultsSettings) -> list[Event]:
    """What the log still keeps, and the newest result of each key, which outlives the log."""
    bus = await NatsBus.of(settings, "bench-tools", SystemClock())
    events: list[Event] = []

    def sink(fact: BusFact) -> None:
        events.extend(fact.events if isinstance(fact, Snapshot) else (fact,))

    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            await bus.follow((BenchCompleted,), sink)
        events += [event async for event in await bus.history() if isinstance(event.data, BenchCompleted)]
    except TimeoutError:
        raise BusUnavailable(f"{settings.nats_url} does not answer within {_CONNECT_SECONDS:g} s") from None
    finally:
        await bus.close()
    return events


def _taped(path: Path) -> list[Event]:
    """The results in a tape that a process recorded, with its parts, or in a file of events whose other lines are
    skipped. Lines of a tape that cannot be read are named on standard error.

    Raises LookupError for a file that holds neither.
    """
    try:
        tape = read_parts(following(path))
    except BadLine as err:
        if "newer than this release" in err.reason:
            raise LookupError(f"{path}: {err.reason}") from err
        events = list(_lines(path))
        if not events and path.stat().st_size:
            raise LookupError(f"{path}: this is no FlexInfer tape and holds no event") from err
        return [event for event in events if isinstance(event.data, BenchCompleted)]
    for bad in tape.bad:
        sys.stderr.write(f"flexinfer bench: {path}: {bad}\n")
    return [event for _, fact in tape.facts for event in _events_of(fact) if isinstance(event.data, BenchCompleted)]


def _events_of(fact: Fact) -> tuple[Event, ...]:
    match fact:
        case Event():
            return (fact,)
        case Snapshot():
            return fact.events
        case _:
            return ()


def _lines(path: Path) -> Iterator[Event]:
    with path.open("rb") as file:
        for line in file:
            try:
                yield decode_event(line.strip())
            except MalformedEvent:
                continue


def _list(settings: BenchListSettings, runs: tuple[Run, ...]) -> int:
    newest = comparison.latest(runs)
    tables.write(newest, settings.output, lambda console: tables.results(console, newest))
    return 0


def _show(settings: BenchShowSettings, runs: tuple[Run, ...]) -> int:
    if not settings.key:
        raise LookupError("name a result: flexinfer bench show KEY; flexinfer bench list shows the keys")
    found = comparison.find(runs, settings.key)
    past = comparison.history(runs, found)
    if settings.svg:
        settings.svg.write_text(plot.curve_svg(found.result.model, plot.lines_of(found.result)))

    def text(console: tables.Console) -> None:
        tables.result(console, found.result, found.at)
        if len(past) > 1:
            tables.history(console, past)

    tables.write([found], settings.output, text)
    return 0


def _compare(settings: BenchCompareSettings, runs: tuple[Run, ...]) -> int:
    if not settings.old:
        raise LookupError("name a result: flexinfer bench compare OLD [NEW]; flexinfer bench list shows the keys")
    old = comparison.find(runs, settings.old)
    new = comparison.find(runs, settings.new) if settings.new else comparison.history(runs, old)[-1]
    if old == new:
        raise LookupError(f"{old.name} is the only run of its kind; name a second one")
    if settings.svg:
        lines = (*plot.lines_of(old.result, old.name), *plot.lines_of(new.result, new.name))
        settings.svg.write_text(plot.curve_svg(f"{old.name} and {new.name}", lines))
    rows = comparison.compare(old.result, new.result)
    changes = comparison.identity_changes(old.result, new.result)
    if settings.output in {"json", "yaml"}:
        told = {
            "old": old.name,
            "new": new.name,
            "identity": changes,
            "rows": [
                {"name": r.name, "old": r.old, "new": r.new, "changePercent": r.change_percent, "better": r.better}
                for r in rows
            ],
        }
        sys.stdout.write(document(told, "json" if settings.output == "json" else "yaml"))
        return 0
    tables.write([old, new], settings.output, lambda console: tables.comparison(console, (old, new), rows, changes))
    return 0
