"""A tape played into a private bus, so that dashboards, commands and tests see it live."""

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.contracts.envelope import Event, EventMint
from flexinfer.contracts.events import PlacementDecided
from flexinfer.local.nats_server import NatsServer
from flexinfer.ports import Bus, BusRefused, BusUnavailable, Clock, Snapshot
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.connecting import wait_connected
from flexinfer.runtime.process import boot_id, stop_signals
from flexinfer.runtime.tasks import Supervisor
from flexinfer.testing.replay import Tape, replay

READY = "playing"
SLEEP_LEAST = 0.001


def events_of(tape: Tape) -> Iterator[tuple[float, Event]]:
    """What was said on the bus, each event once, as it reached the process. An extender's own decisions, which its
    tape does not hold, are decided again and said, too."""
    told: set[str] = set()
    decided = _decisions(tape) if tape.header.component == "scheduler" else iter(())
    following = next(decided, None)
    for at, fact in tape.facts:
        while following is not None and following[0] < at:
            yield following
            following = next(decided, None)
        events = fact.events if isinstance(fact, Snapshot) else (fact,) if isinstance(fact, Event) else ()
        for event in events:
            if event.id not in told:
                told.add(event.id)
                yield at, event
    if following is not None:
        yield following
    yield from decided


def _decisions(tape: Tape) -> Iterator[tuple[float, Event]]:
    at = tape.header.started
    mint = EventMint.start("scheduler", tape.header.instance, "replay", lambda: at)
    for step in replay(tape):
        if isinstance(step.data, PlacementDecided):
            at = step.at
            yield at, mint.mint(step.data)


async def play(tape: Tape, bus: Bus, speed: float, clock: Clock) -> int:
    """Publish everything, ``speed`` times as fast as it was (0: at once); how many events. Raises BusRefused."""
    await bus.ensure()
    count, first, began = 0, None, clock.monotonic()
    for at, event in events_of(tape):
        first = at if first is None else first
        wait = (at - first) / speed - (clock.monotonic() - began) if speed else 0.0
        if wait > SLEEP_LEAST:
            await asyncio.sleep(wait)
        await bus.publish(event, durable=True)
        count += 1
    return count


async def _play(tape: Tape, bus: Bus, speed: float, clock: Clock) -> None:
    try:
        count = await play(tape, bus, speed, clock)
    except (BusRefused, BusUnavailable) as err:
        sys.stderr.write(f"flexinfer replay: the bus went away: {err}\n")
        return
    sys.stdout.write(f"played {count} events; Ctrl-C ends the bus\n")
    sys.stdout.flush()


async def serve(tape: Tape, speed: float, port: int) -> int:
    """A private bus in a temporary directory; plays, then stays until a signal.

    Raises BusNotInstalled, BusNotStarted, BusUnavailable.
    """
    stop = stop_signals()
    clock, tasks = SystemClock(), Supervisor("replay")
    with tempfile.TemporaryDirectory(prefix="flexinfer-replay-") as folder:
        server = NatsServer(Path(folder), port=port)
        await server.start()
        bus = await NatsBus.start(server.url, name=f"replay-{boot_id()}", cluster=_cluster(tape), clock=clock)
        try:
            await wait_connected(bus, server.url)
            sys.stdout.write(
                f"{READY} at {server.url}; look with:\n  flexinfer-dashboard --nats-url {server.url}\n"
                f"  flexinfer events tail --nats-url {server.url}\n"
            )
            sys.stdout.flush()
            tasks.once("play", _play(tape, bus, speed, clock))
            await stop.wait()
        finally:
            await tasks.close()
            await bus.close()
            await server.stop()
    return 0


def _cluster(tape: Tape) -> str:
    return str(tape.header.settings.get("cluster") or "default")
