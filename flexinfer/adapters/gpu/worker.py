"""A thread for a vendor library: its calls may hang, print or crash in ways that must not reach the event loop."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerStuck(Exception):
    """The call did not return in time, or an earlier one still has not."""


class Worker:
    """Runs calls one after another on one daemon thread, which a hanging driver cannot keep the process from ending."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._busy: asyncio.Future[Any] | None = None

    async def call(self, work: Callable[[], T], limit: float) -> T:
        """The result of ``work`` within ``limit`` seconds; its exceptions come through. Raises WorkerStuck."""
        if self._busy is not None and not self._busy.done():
            raise WorkerStuck(f"{self._name}: an earlier call has not returned")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._busy = done

        def settle(result: T | None, error: Exception | None) -> None:
            if done.cancelled():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type] # None only beside an error

        def body() -> None:
            result, error = None, None
            try:
                result = work()
            except Exception as err:  # noqa: BLE001 - handed to the caller, who names what it expects
                error = err
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

        self._start()
        self._calls.put(body)
        finished, _ = await asyncio.wait({done}, timeout=limit)
        if not finished:
            done.add_done_callback(_read_late)
            raise WorkerStuck(f"{self._name}: no answer within {limit:.0f} s")
        return done.result()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            self._calls.get()()


def _read_late(late: asyncio.Future[Any]) -> None:
    """A result nobody waits for; reading its exception keeps asyncio from reporting it."""
    if not late.cancelled():
        late.exception()
