"""``flexinfer status``: nodes, models, results on one screen, from the bus alone."""

import sys
from typing import Any

import msgspec
import yaml
from rich.console import Console

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.config.people import StatusSettings
from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import (
    BenchCompleted,
    ModelEndpoint,
    ModelLoad,
    ModelPhase,
    NodeHardware,
    NodeStatus,
    NodeTelemetry,
)
from flexinfer.ports import BusRefused, BusUnavailable
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.connecting import wait_connected
from flexinfer.runtime.process import fail
from flexinfer.runtime.screen import SHOWN, tables

PIPE_WIDTH = 200  # a pipe has no edge to fold at


async def run(settings: StatusSettings) -> int:
    """Print once; exit code 1 if the bus cannot be read."""
    clock = SystemClock()
    bus = await NatsBus.of(settings, "status", clock)
    try:
        await wait_connected(bus, settings.nats_url)
        events = await bus.state(SHOWN)
    except (BusUnavailable, BusRefused) as err:
        return fail(f"flexinfer status: {err}")
    finally:
        await bus.close()
    if settings.output == "text":
        console = Console()
        if not console.is_terminal:
            console = Console(width=PIPE_WIDTH)
        for table in tables(events, clock.now()):
            console.print(table)
    else:
        document = summary(events)
        text = msgspec.json.encode(document).decode() if settings.output == "json" else yaml.safe_dump(document)
        sys.stdout.write(text.rstrip() + "\n")
    return 0


def summary(events: tuple[Event, ...]) -> dict[str, Any]:
    """Payloads by kind, as on the wire, with the time each was observed."""
    kinds: dict[type, str] = {
        NodeHardware: "hardware", NodeTelemetry: "telemetry", NodeStatus: "nodeStatus", ModelPhase: "phases",
        ModelEndpoint: "endpoints", ModelLoad: "load", BenchCompleted: "results",
    }  # fmt: skip
    found: dict[str, Any] = {name: [] for name in kinds.values()}
    for event in events:
        found[kinds[type(event.data)]].append(msgspec.to_builtins(event.data) | {"observedAt": event.time.isoformat()})
    return found
