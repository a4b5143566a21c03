"""``flexinfer-dashboard``: follows everything on the bus and shows it, or travels on a tape."""

import asyncio
import logging
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.adapters.web.dashboard.app import Source, dashboard_app
from flexinfer.adapters.web.dashboard.state import Board
from flexinfer.adapters.web.dashboard.timeline import Timeline
from flexinfer.adapters.web.dashboard.viewers import Broadcast
from flexinfer.adapters.web.serve import WebServer, listen
from flexinfer.config.dashboard import DashboardSettings
from flexinfer.contracts.events import ModelLoad, NodeTelemetry
from flexinfer.contracts.topics import TOPICS
from flexinfer.ports import Bus, BusFact, BusRefused, BusUnavailable, Clock
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.journal import BadLine
from flexinfer.runtime.process import fail, host_name, stop_signals
from flexinfer.runtime.readiness import Readiness
from flexinfer.runtime.tapes import bus_facts, tapes_of
from flexinfer.runtime.taping import Tape
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

HISTORY_SECONDS = 20.0
STUCK_MILLISECONDS = 60_000


async def run(settings: DashboardSettings) -> int:
    """Serve until SIGTERM; 1 if there is a tape that is none."""
    if settings.tape is None:
        async with AsyncExitStack() as stack:
            return await _live(settings, Tape.open(settings, "dashboard", host_name(), SystemClock().now, stack))
    try:
        timeline = await asyncio.to_thread(_timeline, settings.tape)
    except (OSError, BadLine) as err:
        return fail(f"flexinfer-dashboard: {settings.tape}: {getattr(err, 'strerror', None) or err}")
    server = _server(settings, timeline, Readiness())
    stop = stop_signals()
    await server.start()
    sys.stderr.write(f"{settings.tape} at http://127.0.0.1:{server.port}\n")
    await stop.wait()
    await server.stop()
    return 0


def _timeline(path: Path) -> Timeline:
    """Raises OSError, BadLine."""
    moments: list[tuple[float, BusFact]] = []
    notes: list[str] = []
    titles: list[str] = []
    for found, tape in tapes_of(path):
        moments.extend(bus_facts(tape))
        notes.extend(f"{found.name}: {bad}" for bad in tape.bad)
        titles.append(f"{tape.header.component} {tape.header.instance}")
    return Timeline(", ".join(titles), moments, notes)


def _server(settings: DashboardSettings, source: Source, readiness: Readiness) -> WebServer:
    sock = listen(settings.host, settings.port)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # accepted connections inherit it: one nobody reads ends by itself
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STUCK_MILLISECONDS)
    return WebServer(dashboard_app(source, readiness.report, settings.token), sock, drain=1)


async def _live(settings: DashboardSettings, tape: Tape) -> int:
    stop = stop_signals()
    clock = SystemClock()
    readiness = Readiness()
    board = Board()
    tasks = Supervisor("dashboard")
    bus = await NatsBus.of(settings, "dashboard", clock)

    def notes() -> list[str]:
        return [] if bus.connected else ["The bus cannot be reached: what you see is the last known state."]

    readiness.require("bus", lambda: None if bus.connected else "the bus cannot be reached")
    broadcast = Broadcast(board, clock, notes)
    server = _server(settings, broadcast, readiness)
    try:
        await server.start()
        log.info("dashboard on port %d", server.port)
        tasks.once("follow", _follow(tape.bus(bus), board, clock, settings.history))
        tasks.forever("batches", broadcast.run)
        await stop.wait()
    finally:
        readiness.draining = True
        await tasks.close()
        broadcast.close()
        await server.stop()
        await bus.close()
    return 0


async def _follow(bus: Bus, board: Board, clock: Clock, seconds: float) -> None:
    """What the log of the bus remembers, then all that is said."""
    connected = asyncio.Event()
    bus.on_connect(connected.set)
    await connected.wait()
    await _recall(bus, board, clock.now() - seconds)

    def sink(fact: BusFact) -> None:
        board.take(fact, clock.now())

    await bus.follow(tuple(topic.data for topic in TOPICS.values()), sink)


async def _recall(bus: Bus, board: Board, since: float) -> None:
    """Phases, decisions and runs of the past; figures of the past are no use."""
    try:
        async with asyncio.timeout(HISTORY_SECONDS):
            async for event in await bus.history(since=since):
                if not isinstance(event.data, NodeTelemetry | ModelLoad):
                    board.take(event)
    except (BusUnavailable, BusRefused, TimeoutError) as err:
        log.info("the log of the bus was not read to its end: %s", str(err) or "too slow")
