"""``flexinfer top``: nodes, models and recent events, live in the terminal."""

import asyncio
import sys
import termios
import tty
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.config.people import TopSettings
from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import ModelLoad, NodeTelemetry, PlacementDecided
from flexinfer.contracts.topics import DEMAND_TTL_SECONDS, TOPIC_OF, TOPICS, order_key
from flexinfer.core.fleet.view import OrderBook
from flexinfer.core.placement.explanation import sentence
from flexinfer.ports import BusFact, BusRefused, BusUnavailable, Snapshot
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.connecting import wait_connected
from flexinfer.runtime.process import fail, stop_signals
from flexinfer.runtime.screen import SHOWN, tables

RECENT = 8
PIPE_WIDTH = 160


@dataclass(slots=True)
class Board:
    """The newest fact per key, and what happened lately."""

    kept: dict[str, Event] = field(default_factory=dict)
    recent: deque[Event] = field(default_factory=lambda: deque(maxlen=RECENT))
    total: int = 0
    _order: OrderBook = field(default_factory=OrderBook)

    def sink(self, fact: BusFact) -> None:
        """For ``Bus.follow``."""
        if isinstance(fact, Snapshot):
            for event in fact.events:
                self._fold(event)
            return
        self.total += 1
        self._fold(fact)
        if not isinstance(fact.data, NodeTelemetry | ModelLoad):
            self.recent.append(fact)

    def _fold(self, event: Event) -> None:
        if not isinstance(event.data, SHOWN):
            return
        key = order_key(event.data)
        if not self._order.accept(key, event):
            return
        if TOPIC_OF[type(event.data)].retracts(event.data):
            self.kept.pop(key, None)
        else:
            self.kept[key] = event

    def screen(self, now: float, note: str, height: int) -> RenderableType:
        """What the terminal shows, cut to its height."""
        events = tuple(
            event for event in self.kept.values()
            if not isinstance(event.data, ModelLoad) or now - event.at <= DEMAND_TTL_SECONDS
        )  # fmt: skip
        lines = [Text(_line(event), no_wrap=True, overflow="ellipsis") for event in reversed(self.recent)]
        head = Text(f"flexinfer top · {self.total} events · q ends it{note}", style="bold")
        console = Console(width=200, height=height)
        room = height - len(lines) - 2
        shown: list[RenderableType] = [head]
        for table in tables(events, now):
            need = len(console.render_lines(table))
            if table.row_count and need <= room:
                shown.append(table)
                room -= need
        return Group(*shown, *lines)


def _line(event: Event) -> str:
    data = event.data
    noun = event.type.removeprefix("ai.flexinfer.").rpartition(".")[0]
    told = sentence(data) if isinstance(data, PlacementDecided) else str(getattr(data, "message", ""))
    return f"{event.time:%H:%M:%S} {noun:<18} {event.subject:<28} {told}"


async def run(settings: TopSettings) -> int:
    """Draw until q, Ctrl-C or the count of screens; 1 if the bus cannot be read."""
    clock, board, stop = SystemClock(), Board(), stop_signals()
    bus = await NatsBus.of(settings, "status", clock)
    try:
        await wait_connected(bus, settings.nats_url)
        await bus.follow(tuple(topic.data for topic in TOPICS.values()), board.sink)
        console = Console()
        if not console.is_terminal:
            console = Console(width=PIPE_WIDTH)
            for _ in range(max(settings.count, 1)):
                console.print(board.screen(clock.now(), "", 1000))
            return 0
        with _keys(stop):
            await _draw(settings, bus, board, console, stop)
    except (BusUnavailable, BusRefused) as err:
        return fail(f"flexinfer top: {err}")
    finally:
        await bus.close()
    return 0


async def _draw(settings: TopSettings, bus: NatsBus, board: Board, console: Console, stop: asyncio.Event) -> None:
    clock, drawn = SystemClock(), 0
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while not stop.is_set() and not (settings.count and drawn >= settings.count):
            note = "" if bus.connected else " · the bus cannot be reached, figures are the last known"
            live.update(board.screen(clock.now(), note, console.height), refresh=True)
            drawn += 1
            try:
                async with asyncio.timeout(settings.interval):
                    await stop.wait()
            except TimeoutError:
                continue


@contextmanager
def _keys(stop: asyncio.Event) -> Iterator[None]:
    """q on the keyboard sets ``stop``; the terminal is left as it was."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        if sys.stdin.read(1) in {"q", "Q"}:
            stop.set()

    tty.setcbreak(sys.stdin)
    loop.add_reader(sys.stdin, pressed)
    try:
        yield
    finally:
        loop.remove_reader(sys.stdin)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
