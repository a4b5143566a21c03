"""Life of an executable: identity, event loop, signals."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def boot_id() -> str:
    """A new identity for each start of a process; sorts by start time, which is for readers, not for decisions."""
    return f"{int(time.time() * 1000):x}-{os.urandom(4).hex()}"


def host_name() -> str:
    """The machine's name as Kubernetes writes it."""
    return socket.gethostname().lower()


def stop_signals() -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets; call once, on the running loop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    return stop


def run_app(main: Callable[[], Awaitable[int]]) -> int:
    """Run to the end on the fastest loop at hand; returns the exit code."""

    async def body() -> int:
        return await main()

    try:
        import uvloop  # noqa: PLC0415 - optional: absent on some interpreters
    except ImportError:
        return asyncio.run(body())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(body())


def fail(message: str, code: int = 1) -> int:
    """One sentence on stderr; returns the exit code."""
    sys.stderr.write(message.rstrip() + "\n")
    return code
