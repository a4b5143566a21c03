"""Supervised tasks: the only place that creates asyncio tasks.

A bare task loses its exception and dies unseen. A supervised one is named, logged and counted when it fails,
restarted with backoff if it should run for ever, and cancelled and awaited at shutdown.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

_FAILURES = metrics.counter(
    "flexinfer_task_failures_total", "Background tasks that ended with an exception.", ("task",)
)


class Supervisor:
    """Owns the background tasks of one process or component."""

    def __init__(self, name: str = "main") -> None:
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False

    def once(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run to the end; an exception is logged and counted."""
        task = asyncio.get_running_loop().create_task(self._guard(name, work), name=f"{self._name}:{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task cancelled before its first step never awaits the coroutine; closing a finished one does nothing.
        task.add_done_callback(lambda _task: work.close())
        return task

    def forever(
        self, name: str, work: Callable[[], Awaitable[Any]], *, backoff: float = 0.5, ceiling: float = 30.0
    ) -> asyncio.Task[Any]:
        """Run again whenever it ends or fails, waiting ``backoff`` seconds doubled up to ``ceiling``, with jitter."""
        return self.once(name, self._repeat(name, work, backoff, ceiling))

    async def _repeat(self, name: str, work: Callable[[], Awaitable[Any]], backoff: float, ceiling: float) -> None:
        loop = asyncio.get_running_loop()
        wait = backoff
        while not self._closing:
            began = loop.time()
            try:
                await work()
            except Exception:  # whatever it was, the work goes on; counted and logged
                _FAILURES.labels(task=name).inc()
                log.exception("task %s failed, restarting", name)
            if loop.time() - began > ceiling:
                wait = backoff
            await asyncio.sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311 - jitter, not a secret
            wait = min(wait * 2, ceiling)

    async def _guard(self, name: str, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await work
        except Exception:
            _FAILURES.labels(task=name).inc()
            log.exception("task %s failed", name)
            raise

    async def close(self, grace: float = 5.0) -> None:
        """Cancel everything and wait; a task that ignores cancellation for ``grace`` seconds is named in the log."""
        self._closing = True
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if not tasks:
            return
        done, pending = await asyncio.wait(tasks, timeout=grace)
        for task in done:
            if not task.cancelled():
                task.exception()  # already logged; reading it keeps asyncio from reporting it again
        for task in pending:
            log.warning("task %s did not stop within %.0f s", task.get_name(), grace)
