"""Background work of a bus: every task is named, its failure logged, and all end with their owner."""

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class LoopClock:
    """ports.Clock over the running event loop and the operating system."""

    def now(self) -> float:
        """Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds of the running loop."""
        return asyncio.get_running_loop().time()


class Background:
    """The tasks of one owner."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run to the end; an exception is logged."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}:{name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("task %s failed", task.get_name(), exc_info=task.exception())

    async def close(self) -> None:
        """Cancel what runs and wait for its end."""
        current = asyncio.current_task()
        while tasks := [task for task in self._tasks if task is not current and not task.done()]:
            for task in tasks:
                task.cancel()
            # nats-py swallows a cancellation that arrives during a flush; so ask again.
            await asyncio.wait(tasks, timeout=0.2)
