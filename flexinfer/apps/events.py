"""``flexinfer events tail|show``: what is said on the bus, as people or scripts read it."""

import asyncio
import sys

import msgspec

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.config.people import EventsSettings
from flexinfer.contracts.envelope import Event, encode_event
from flexinfer.contracts.topics import TOPICS
from flexinfer.ports import BusFact, BusRefused, BusUnavailable, Snapshot
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.connecting import wait_connected
from flexinfer.runtime.process import fail, stop_signals

QUEUE_LIMIT = 20_000


async def run(settings: EventsSettings) -> int:
    """Print until the count is reached or a signal comes; exit code 1 if the bus cannot be read."""
    clock = SystemClock()
    bus = await NatsBus.start(
        settings.nats_url, name="events", cluster=settings.cluster, credentials=settings.nats_credentials,
        ca=settings.nats_ca, clock=clock,
    )  # fmt: skip
    try:
        await wait_connected(bus, settings.nats_url)
        if settings.action == "show":
            return await _show(settings, bus, clock.now())
        return await _tail(settings, bus)
    except (BusUnavailable, BusRefused) as err:
        return fail(f"flexinfer events: {err}")
    except BrokenPipeError:
        return 0
    finally:
        await bus.close()


async def _show(settings: EventsSettings, bus: NatsBus, now: float) -> int:
    shown = 0
    async for event in await bus.history(since=now - settings.since):
        if wanted(event, settings.filter):
            write(event, settings.output)
            shown += 1
            if settings.count and shown >= settings.count:
                break
    return 0


async def _tail(settings: EventsSettings, bus: NatsBus) -> int:
    queue: asyncio.Queue[Event | None] = asyncio.Queue(QUEUE_LIMIT)
    dropped = 0

    def sink(fact: BusFact) -> None:
        nonlocal dropped
        if isinstance(fact, Snapshot) or not wanted(fact, settings.filter):
            return
        try:
            queue.put_nowait(fact)
        except asyncio.QueueFull:
            dropped += 1

    stop = stop_signals()
    subscription = await bus.follow(tuple(topic.data for topic in TOPICS.values()), sink)
    shown = 0
    try:
        while not stop.is_set() and not (settings.count and shown >= settings.count):
            try:
                async with asyncio.timeout(0.2):
                    event = await queue.get()
            except TimeoutError:
                continue
            if event is not None:
                write(event, settings.output)
                shown += 1
            if dropped:
                sys.stderr.write(f"flexinfer events: {dropped} events dropped, the terminal is slower than the bus\n")
                dropped = 0
    finally:
        await subscription.close()
    return 0


def wanted(event: Event, text: str) -> bool:
    """Whether the filter text occurs in the event's type or subject."""
    return not text or text in event.type or text in event.subject


def write(event: Event, output: str) -> None:
    """One line on stdout, flushed, so that a pipe sees it at once."""
    sys.stdout.write(line(event) + "\n" if output == "text" else encode_event(event).decode() + "\n")
    sys.stdout.flush()


def line(event: Event) -> str:
    """``12:34:56.789 node.telemetry  n1  {...}``, the payload without nulls and empties."""
    noun = event.type.removeprefix("ai.flexinfer.").rpartition(".")[0]
    fields = {k: v for k, v in msgspec.to_builtins(event.data).items() if v not in (None, "", [], {}, False)}
    text = msgspec.json.encode(fields).decode()
    return f"{event.time:%H:%M:%S}.{event.time.microsecond // 1000:03d} {noun:<17} {event.subject:<28} {text}"
