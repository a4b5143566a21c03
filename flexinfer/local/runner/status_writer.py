"""Writes a pod's status when it changed, one write at a time, the newest state each time."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from flexinfer.contracts.kubernetes import PODS, Object
from flexinfer.local.runner.records import Record
from flexinfer.local.runner.status import Course, pod_status
from flexinfer.ports import Clock, Conflict, KubeApi, KubeError, KubeUnavailable, NotFound

log = logging.getLogger(__name__)

Snapshot = Callable[[], tuple[Object, Sequence[Record], Course]]


class StatusWriter:
    """Coalesces: however often ``changed`` is called during a write, one write follows."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._dirty = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._sent: Object | None = None
        self._disabled = False

    def changed(self) -> None:
        """The status is to be computed and written again."""
        if not self._disabled:
            self._settled.clear()
            self._dirty.set()

    def disable(self) -> None:
        """Write nothing from now on."""
        self._disabled = True
        self._settled.set()

    async def settle(self, limit: float = 5.0) -> None:
        """Return when what is known is written, or after ``limit`` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._settled.wait()

    async def run(self, snapshot: Snapshot) -> None:
        """Until cancelled."""
        failures = 0
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                await self._write(snapshot)
            except KubeUnavailable as err:
                self._dirty.set()
                await asyncio.sleep(max(err.retry_after or 0.0, min(10.0, 0.5 * 2**failures)))
                failures = min(failures + 1, 6)
                continue
            failures = 0
            if not self._dirty.is_set():
                self._settled.set()

    async def _write(self, snapshot: Snapshot) -> None:
        pod, records, course = snapshot()
        status = pod_status(pod, records, course, self._clock.now(), self._sent)
        if self._disabled or status == self._sent:
            return
        meta = pod["metadata"]
        # The uid makes the write fail if another pod has taken the name.
        body = {"metadata": {"uid": meta["uid"]}, "status": status}
        try:
            await self._api.patch(
                PODS, meta["name"], body, meta.get("namespace"), kind="strategic", subresource="status"
            )
        except (NotFound, Conflict):
            self.disable()
        except KubeError as err:
            log.warning("status of pod %s was refused: %s", meta["name"], err)
        self._sent = status
