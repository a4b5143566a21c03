"""An event loop whose time is simulated: it jumps to the next timer instead of sleeping, and its network is memory.

Everything built on asyncio runs on it unchanged. With nothing from outside in it, the same program takes the same
steps in the same order, so hours pass in seconds and two runs are equal.
"""

import asyncio
from asyncio import base_events
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from flexinfer.testing.memory_net import MemoryNetwork, MemoryServer

T = TypeVar("T")
R = TypeVar("R")

START = 1_800_000_000.0


class Stalled(RuntimeError):
    """Every task waits and no timer is set: nothing can ever happen again."""


class _Jump:
    """In the place of a selector: waiting is adding."""

    def __init__(self) -> None:
        self.at = 0.0

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Stalled("every task waits and no timer is set; a simulated loop has nothing outside to wait for")
        self.at += max(timeout, 0.0)
        return []


class SimulatedLoop(base_events.BaseEventLoop):
    """``create_server`` and ``create_connection`` work among themselves, without delay; sockets, pipes, processes and
    signals are not there. Functions for an executor are called at once, in place."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Jump()
        self._clock_resolution = 1e-6  # a jump may fall short of its timer by the rounding of large sums
        self._network = MemoryNetwork(self)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._selector.at

    def _process_events(self, _events: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps who had to be woken."""

    async def create_server(  # type: ignore[override] # the one form that our servers use
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_options: Any
    ) -> MemoryServer:
        """Listen in memory. Port 0 becomes a free one. Raises OSError for an address in use."""
        return self._network.listen(protocol_factory, host, port)

    async def create_connection(  # type: ignore[override] # the one form that our clients use
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_options: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to a server of this loop. Raises ConnectionRefusedError."""
        return self._network.connect(protocol_factory, host, port)

    def run_in_executor(  # type: ignore[override] # asyncio's own types differ by version
        self, _executor: Any, func: Callable[..., R], *args: Any
    ) -> asyncio.Future[R]:
        """Call it now."""
        done: asyncio.Future[R] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as err:  # noqa: BLE001 - whatever it raises belongs to who awaits it
            done.set_exception(err)
        return done


class SimulatedClock:
    """ports.Clock of the running loop: ``start`` (Unix seconds) plus the loop's time."""

    def __init__(self, start: float = START) -> None:
        self._start = start

    def now(self) -> float:
        """Unix seconds."""
        return self._start + self.monotonic()

    def monotonic(self) -> float:
        """Seconds since the loop was made."""
        return asyncio.get_running_loop().time()


def run_simulated(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` in simulated time. Raises Stalled if the program can never end."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(main)
