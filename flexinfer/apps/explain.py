"""``flexinfer explain``: the last placement decision of a pod, read from the shared log."""

import sys
from collections.abc import AsyncIterator

import msgspec
import yaml
from rich.console import Console
from rich.table import Table

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.config.people import ExplainSettings
from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import PlacementDecided
from flexinfer.core.placement.explanation import parse_weights, what_if
from flexinfer.core.placement.shadow import Comparison
from flexinfer.ports import BusRefused, BusUnavailable
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.connecting import wait_connected
from flexinfer.runtime.process import fail

SHADOW = "shadow"  # in place of a pod; a pod of that name is pod/shadow


async def run(settings: ExplainSettings) -> int:
    """Print the decision, or for ``shadow`` how the weights under trial compare; exit code 1 if there is none or the
    bus cannot be read."""
    name = settings.pod.removeprefix("pod/").removeprefix("pods/")
    if not name:
        return fail("flexinfer explain: name a pod, for example: flexinfer explain pod/smollm2-5d9c7b7c4-x2x9z", 2)
    try:
        weights = parse_weights([settings.what_if])
    except ValueError as err:
        return fail(f"flexinfer explain: {err}", 2)
    if settings.pod == SHADOW:
        return await _compare(settings)
    try:
        last, pods = await _last_of(settings, name)
    except (BusUnavailable, BusRefused) as err:
        return fail(f"flexinfer explain: {err}")
    if last is None or not isinstance(last.data, PlacementDecided):
        known = ", ".join(sorted(pods)) or "none"
        return fail(
            f"flexinfer explain: no decision about {settings.namespace}/{name} in the log; decided pods: {known}"
        )
    try:
        decided = what_if(last.data, weights) if weights else last.data
    except ValueError as err:
        return fail(f"flexinfer explain: {err}", 2)
    if settings.output == "text":
        show(last, decided)
    else:
        document = msgspec.to_builtins(decided) | {"decidedAt": last.time.isoformat()}
        text = msgspec.json.encode(document).decode() if settings.output == "json" else yaml.safe_dump(document)
        sys.stdout.write(text.rstrip() + "\n")
    return 0


async def _last_of(settings: ExplainSettings, name: str) -> tuple[Event | None, set[str]]:
    """The last decision about the pod, and all pods of the namespace that were decided."""
    last: Event | None = None
    pods: set[str] = set()
    async for event, decided in _decisions(settings):
        if decided.namespace == settings.namespace:
            pods.add(decided.pod)
            if decided.pod == name:
                last = event
    return last, pods


async def _decisions(settings: ExplainSettings) -> AsyncIterator[tuple[Event, PlacementDecided]]:
    """All in the log, oldest first. Raises BusUnavailable, BusRefused."""
    bus = await NatsBus.of(settings, "explain", SystemClock())
    try:
        await wait_connected(bus, settings.nats_url)
        async for event in await bus.history():
            if isinstance(event.data, PlacementDecided):
                yield event, event.data
    finally:
        await bus.close()


async def _compare(settings: ExplainSettings) -> int:
    found = Comparison()
    try:
        async for _, decided in _decisions(settings):
            found.add(decided)
    except (BusUnavailable, BusRefused) as err:
        return fail(f"flexinfer explain: {err}")
    sys.stdout.write("\n".join(found.lines()) + "\n")
    return 0 if found.decisions else 1


def show(event: Event, data: PlacementDecided) -> None:
    """The decision as a person reads it: verdict, terms that add up, reasons."""
    console = Console()
    mode = ", degraded mode (the bus was away)" if data.degraded else ""
    console.print(
        f"[bold]{data.namespace}/{data.pod}[/bold]: {data.outcome} at {event.time:%H:%M:%S} UTC, "
        f"{data.considered} node(s) considered{mode}",
        highlight=False,
    )
    demand = ", ".join(f"{key} {value}" for key, value in data.demand.items() if value not in (None, "", [], 0))
    console.print(f"demand: {demand or 'none'}", highlight=False, markup=False)
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for column in ("node", "term", "value", "× weight", "=", "age", "note"):
        table.add_column(column, justify="left" if column in {"node", "term", "note"} else "right")
    for candidate in data.candidates:
        for position, term in enumerate(candidate.terms):
            age = "-" if term.age_seconds is None else f"{term.age_seconds:.1f} s"
            table.add_row(
                candidate.node if position == 0 else "", term.name, f"{term.value:.2f}", f"{term.weight:g}",
                f"{term.contribution:+.2f}", age, term.note,
            )  # fmt: skip
        table.add_row(
            "", "[bold]sum[/bold]", "", "", f"[bold]{candidate.sum:.2f}[/bold]", "", f"score {candidate.score}"
        )
    if data.candidates:
        console.print(table)
    for reason, count in sorted(data.reasons.items()):
        console.print(f"{count} node(s): {reason}", highlight=False, markup=False)
    if data.message:
        console.print(data.message, highlight=False, markup=False)
