"""One queue of keys for all controllers: changes put keys in, reconciling takes them out, times bring them back."""

import asyncio
import heapq
import logging
from collections.abc import Iterable
from typing import Protocol

from flexinfer.local.kubeapi.controllers.crdcleanup import CrdCleanup
from flexinfer.local.kubeapi.controllers.deployment import DeploymentController
from flexinfer.local.kubeapi.controllers.endpoints import EndpointSliceController
from flexinfer.local.kubeapi.controllers.expiry import EventExpiry
from flexinfer.local.kubeapi.controllers.garbage import GarbageCollector
from flexinfer.local.kubeapi.controllers.job import JobController
from flexinfer.local.kubeapi.controllers.namespaces import NamespaceController
from flexinfer.local.kubeapi.controllers.replicaset import ReplicaSetController
from flexinfer.local.kubeapi.errors import ApiError
from flexinfer.local.kubeapi.registry import Registry
from flexinfer.local.kubeapi.store import Change, Key
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

_RETRY = 0.5  # seconds after a refused write
_LONG_RETRY = 30.0  # seconds after an object that cannot be handled


class Controller(Protocol):
    """Reconciles one kind, a key at a time."""

    name: str

    def concerns(self, change: Change) -> Iterable[Key]:
        """Keys to look at again after this change. Must not write."""
        ...

    def reconcile(self, key: Key) -> float | None:
        """Bring the world one step closer; seconds until the key wants another look, or None."""
        ...


Task = tuple[int, Key]  # index of the controller, key


class Controllers:
    """Runs them. ``job_backoff`` is the first pause before a failed pod of a Job is replaced, in seconds."""

    def __init__(self, registry: Registry, *, job_backoff: float = 10.0) -> None:
        self._clock = registry.clock
        self._controllers: tuple[Controller, ...] = (
            DeploymentController(registry),
            ReplicaSetController(registry),
            JobController(registry, job_backoff),
            GarbageCollector(registry),
            NamespaceController(registry),
            CrdCleanup(registry),
            EndpointSliceController(registry),
            EventExpiry(registry),
        )
        self._ready: dict[Task, None] = {}
        self._later: list[tuple[float, Task]] = []
        self._planned: dict[Task, float] = {}
        self._wake = asyncio.Event()
        registry.store.hook(self._route)

    def _route(self, change: Change) -> None:
        for index, controller in enumerate(self._controllers):
            for key in controller.concerns(change):
                self._ready[index, key] = None
        if self._ready:
            self._wake.set()

    def start(self, supervisor: Supervisor) -> None:
        """Run in the background from now on."""
        supervisor.forever("controllers", self._run, backoff=0.05)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            if not self.step():
                pause = self._later[0][0] - self._clock.now() if self._later else None
                timer = loop.call_later(max(pause, 0.01), self._wake.set) if pause is not None else None
                await self._wake.wait()
                if timer:
                    timer.cancel()
            else:
                # Requests and watches get their turn between two keys.
                await asyncio.sleep(0)

    def step(self) -> bool:
        """Reconcile one key that is due; whether there was one."""
        now = self._clock.now()
        while self._later and self._later[0][0] <= now:
            due, task = heapq.heappop(self._later)
            if self._planned.get(task) == due:
                del self._planned[task]
                self._ready[task] = None
        if not self._ready:
            return False
        task = next(iter(self._ready))
        del self._ready[task]
        controller, key = self._controllers[task[0]], task[1]
        try:
            delay = controller.reconcile(key)
        except ApiError as err:
            log.debug("%s %s: %s", controller.name, "/".join(key), err)
            delay = _RETRY
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            # An object that slipped through the rules must not stop the others.
            log.exception("controller %s cannot handle %s", controller.name, "/".join(key))
            delay = _LONG_RETRY
        if delay is not None:
            due = now + delay
            self._planned[task] = due
            heapq.heappush(self._later, (due, task))
        return True

    def settle(self, limit: int = 10_000) -> None:
        """Reconcile until nothing is due. Raises RuntimeError when that takes more than ``limit`` steps."""
        for _ in range(limit):
            if not self.step():
                return
        raise RuntimeError("controllers do not come to rest")
