"""What the scripts share: the machine's line, a connection to the bus, and for those that measure in one event loop
run, write the result file, hand the figures back to be shown."""

import asyncio
import json
import os
import platform
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.runtime.process import run_app


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}


async def connected(url: str) -> NatsBus:
    """A client of the bus, once it is there."""
    bus = await NatsBus.start(url, name="bench")
    ready = asyncio.Event()
    bus.on_connect(ready.set)
    await ready.wait()
    return bus


def show(found: dict[str, Any]) -> None:
    """The figures without their method, on the terminal."""
    print(json.dumps({key: value for key, value in found.items() if key != "method"}, indent=1))


def measured(work: Coroutine[Any, Any, dict[str, Any]], output: Path | None) -> dict[str, Any]:
    """The figures of ``work``, also written to ``output`` if there is one."""
    found: dict[str, Any] = {}

    async def body() -> int:
        found.update(await work)
        return 0

    run_app(body)
    if output:
        output.write_text(json.dumps(found, indent=1) + "\n")
    return found
