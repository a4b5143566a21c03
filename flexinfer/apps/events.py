"""``flexinfer events tail|show|record``: what is said on the bus, for people, scripts and tapes."""

import asyncio
import sys
from collections import deque
from dataclasses import dataclass, field

import msgspec

from flexinfer import __version__
from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.config.people import EventsSettings
from flexinfer.contracts.envelope import Event, encode_event
from flexinfer.contracts.topics import TOPICS
from flexinfer.ports import BusFact, BusRefused, BusUnavailable, Snapshot
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.connecting import wait_connected
from flexinfer.runtime.documents import document
from flexinfer.runtime.journal import VERSION, Header
from flexinfer.runtime.parts import Limits, pack, prune
from flexinfer.runtime.process import fail, host_name, stop_signals
from flexinfer.runtime.recording import COMPONENT, Recorder
from flexinfer.runtime.sifting import Wanted, hiding, wanted

QUEUE_LIMIT = 20_000
ALL = tuple(topic.data for topic in TOPICS.values())
BEAT = 0.2


async def run(settings: EventsSettings) -> int:
    """Print or record until the count is reached or a signal comes; exit code 1 if the bus cannot be read."""
    clock = SystemClock()
    bus = await NatsBus.of(settings, "events", clock)
    try:
        await wait_connected(bus, settings.nats_url)
        match settings.action:
            case "show":
                return await _show(settings, bus, clock.now())
            case "record":
                return await _record(settings, bus, clock)
            case _:
                return await _tail(settings, bus)
    except (BusUnavailable, BusRefused) as err:
        return fail(f"flexinfer events: {err}")
    except BrokenPipeError:
        return 0
    finally:
        await bus.close()


async def _show(settings: EventsSettings, bus: NatsBus, now: float) -> int:
    shown, test = 0, wanted(settings.filter)
    async for event in await bus.history(since=now - settings.since):
        if test(event):
            write((event,), settings.output)
            shown += 1
            if settings.count and shown >= settings.count:
                break
    return 0


@dataclass(slots=True)
class Backlog:
    """Events on their way to a terminal. A full one drops what comes, counted: the bus is never held up."""

    test: Wanted
    limit: int = QUEUE_LIMIT
    dropped: int = 0
    torn: bool = False
    events: deque[Event] = field(default_factory=deque)
    some: asyncio.Event = field(default_factory=asyncio.Event)

    def sink(self, fact: BusFact) -> None:
        """For ``Bus.follow``. A second snapshot means that the connection broke or was overrun."""
        if isinstance(fact, Snapshot):
            self.torn = self.torn or fact.epoch > 1
            return
        if not self.test(fact):
            return
        if len(self.events) >= self.limit:
            self.dropped += 1
            return
        self.events.append(fact)
        self.some.set()

    def take(self) -> tuple[Event, ...]:
        """All that waits."""
        found = tuple(self.events)
        self.events.clear()
        self.some.clear()
        return found

    def complaint(self) -> str:
        """What was dropped since the last call; empty if nothing."""
        count, self.dropped = self.dropped, 0
        torn, self.torn = self.torn, False
        told = f"flexinfer events: {count} events dropped, the terminal is slower than the bus\n" if count else ""
        if torn:
            told += "flexinfer events: the connection broke or was overrun, events in between are missing\n"
        return told


async def _tail(settings: EventsSettings, bus: NatsBus) -> int:
    backlog = Backlog(wanted(settings.filter))
    stop = stop_signals()
    subscription = await bus.follow(ALL, backlog.sink)
    shown = 0
    try:
        while not stop.is_set() and not (settings.count and shown >= settings.count):
            try:
                async with asyncio.timeout(BEAT):
                    await backlog.some.wait()
            except TimeoutError:
                sys.stderr.write(backlog.complaint())
                continue
            events = backlog.take()
            if settings.count:
                events = events[: settings.count - shown]
            write(events, settings.output)
            shown += len(events)
            sys.stderr.write(backlog.complaint())
    finally:
        await subscription.close()
    return 0


async def _record(settings: EventsSettings, bus: NatsBus, clock: SystemClock) -> int:
    sift, test = hiding([word for word in settings.hide.split(",") if word]), wanted(settings.filter)
    limits = Limits(settings.max_size << 20, settings.max_age, settings.keep)
    shown = {"filter": settings.filter, "cluster": settings.cluster}
    header = Header(
        tape="flexinfer", version=VERSION, component=COMPONENT, instance=host_name(), release=__version__,
        started=clock.now(), settings=shown,
    )  # fmt: skip
    try:
        recorder = Recorder(settings.out, header, limits, lambda event: sift(event) if test(event) else None)
    except OSError as err:
        return fail(f"flexinfer events: {settings.out}: {err.strerror or err}")
    stop = stop_signals()
    subscription = await bus.follow(ALL, lambda fact: recorder.take(clock.now(), fact))
    sys.stderr.write(f"flexinfer events: recording into {settings.out}, Ctrl-C ends it\n")
    try:
        while not stop.is_set() and not (settings.count and recorder.events >= settings.count):
            try:
                async with asyncio.timeout(BEAT):
                    await stop.wait()
            except TimeoutError:
                await _tidy(settings, recorder, header)
    finally:
        await subscription.close()
        recorder.close()
        await _tidy(settings, recorder, header)
    sys.stderr.write(f"flexinfer events: {recorder.events} events in {recorder.parts} tape(s) in {settings.out}\n")
    return 0


async def _tidy(settings: EventsSettings, recorder: Recorder, header: Header) -> None:
    while recorder.finished:
        path = recorder.finished.pop(0)
        try:
            if settings.compress:
                await asyncio.to_thread(pack, path)
            await asyncio.to_thread(prune, settings.out, header, settings.keep)
        except OSError as err:
            sys.stderr.write(f"flexinfer events: {path}: {err.strerror or err}\n")


def write(events: tuple[Event, ...], output: str) -> None:
    """One line each on stdout, flushed, so that a pipe sees them at once."""
    show = {"text": line, "json": _json, "yaml": _yaml}[output]
    sys.stdout.write("".join(show(event) + "\n" for event in events))
    sys.stdout.flush()


def _json(event: Event) -> str:
    return encode_event(event).decode()


def _yaml(event: Event) -> str:
    return document(msgspec.json.decode(encode_event(event)), "yaml").rstrip()


def line(event: Event) -> str:
    """``12:34:56.789 node.telemetry  n1  {...}``, the payload without nulls and empties."""
    noun = event.type.removeprefix("ai.flexinfer.").rpartition(".")[0]
    fields = {k: v for k, v in msgspec.to_builtins(event.data).items() if v not in (None, "", [], {}, False)}
    text = msgspec.json.encode(fields).decode()
    return f"{event.time:%H:%M:%S}.{event.time.microsecond // 1000:03d} {noun:<17} {event.subject:<28} {text}"
