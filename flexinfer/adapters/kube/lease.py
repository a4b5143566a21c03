"""Leader election over a Lease, for work that must not run twice.

Ours because the client library's kept leading through an API outage, wrote local time as UTC, never counted
transitions and did not wait for the cancelled work. Ages of somebody else's lease are measured from when *we* saw it
change, on the monotonic clock: wall clocks of two machines are never compared.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from flexinfer.adapters.kube.times import micro_time
from flexinfer.contracts.kubernetes import LEASES, Object
from flexinfer.ports import Clock, Conflict, KubeApi, KubeError, KubeUnavailable, NotFound
from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

_LEADING = metrics.gauge("flexinfer_leading", "1 while this process holds the lease.", ("lease",))
_TRANSITIONS = metrics.counter(
    "flexinfer_leader_changes_total", "Times this process began or ceased to lead.", ("lease", "what")
)

Lead = Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds, the defaults of Kubernetes' own components.

    ``duration``: others may take over after this long without a renewal. ``renew_deadline``: the leader stops its
    work after this long without one, so the work has ``duration - renew_deadline`` to end. ``retry``: between tries.
    """

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry < self.renew_deadline < self.duration:
            raise ValueError("a lease needs 0 < retry < renew_deadline < duration")

    @property
    def call(self) -> float:
        """Time limit of one request: two must fit into the deadline."""
        return self.renew_deadline * 0.45


class Elector:
    """Runs work while, and only while, this process holds the lease ``namespace/name``.

    ``identity`` must be unique per start of a process: two candidates with one identity would both lead.
    """

    def __init__(  # noqa: PLR0913 - the lease's address, who we are, and time
        self,
        api: KubeApi,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock,
        *,
        times: LeaseTimes | None = None,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._times = times or LeaseTimes()
        self._jitter = jitter
        self._lease: Object | None = None
        self._seen_version = ""
        self._seen_at = 0.0
        self._renewed_at = 0.0
        self._highest = 0
        self._leading = False

    @property
    def leading(self) -> bool:
        """Whether the work may act now. False from the moment the deadline passes, whatever the loop is busy with."""
        return self._leading and self._time_left() > 0

    @property
    def holder(self) -> str:
        """Identity in the lease as last read, empty if nobody holds it."""
        return str(((self._lease or {}).get("spec") or {}).get("holderIdentity") or "")

    async def run(self, lead: Lead) -> None:
        """Campaign, run ``lead(fencing)`` while leading, campaign again after losing.

        ``fencing`` is leaseTransitions: it grows with every change of leader. When the lease is lost or this call is
        cancelled, the work is cancelled *and awaited*. Returns when the work returns, raises what it raises; in both
        cases, and when cancelled, the lease is given back so that the next leader need not wait.
        """
        while True:
            fencing = await self._campaign()
            if await self._reign(fencing, lead):
                return

    async def _campaign(self) -> int:
        while True:
            if await self._try_acquire():
                return int(self._spec()["leaseTransitions"])
            await asyncio.sleep(self._times.retry * self._jitter(1.0, 1.2))

    async def _reign(self, fencing: int, lead: Lead) -> bool:
        """True when the work ended by itself, False when the lease was lost."""
        self._leading = True
        _LEADING.labels(lease=self._name).set(1)
        _TRANSITIONS.labels(lease=self._name, what="began").inc()
        log.info("leading %s (transition %d)", self._name, fencing)
        loop = asyncio.get_running_loop()
        work = loop.create_task(_run(lead, fencing), name=f"lead:{self._name}")
        renew = loop.create_task(self._renew_until_lost(), name=f"renew:{self._name}")
        try:
            await asyncio.wait({work, renew}, return_when=asyncio.FIRST_COMPLETED)
            ended = work.done()
        except asyncio.CancelledError:
            await self._step_down(work, renew)
            raise
        await self._step_down(work, renew)
        if ended:
            work.result()
        return ended

    async def _step_down(self, work: "asyncio.Task[None]", renew: "asyncio.Task[None]") -> None:
        lost = renew.done()
        if not lost and not work.done():
            # Stopping on purpose: keep the lease alive until the work has ended.
            await _cancel(work, self._name)
        self._leading = False
        _LEADING.labels(lease=self._name).set(0)
        _TRANSITIONS.labels(lease=self._name, what="lost" if lost else "stopped").inc()
        await _cancel(renew, self._name)
        await _cancel(work, self._name)
        if not lost:
            await self._release()
        elif not renew.cancelled() and (failure := renew.exception()) is not None:
            log.error("renewing %s failed: %r", self._name, failure)

    async def _renew_until_lost(self) -> None:
        """Returns when the lease is lost: somebody else's, or not renewed within the deadline."""
        while (left := self._time_left()) > 0:
            await asyncio.sleep(min(left, self._times.retry * self._jitter(0.8, 1.0)))
            if (left := self._time_left()) <= 0:
                break
            try:
                async with asyncio.timeout(min(left, self._times.call)):
                    if not await self._renew():
                        log.warning("lost %s to %s", self._name, self.holder or "nobody")
                        return
            except (KubeError, KubeUnavailable, TimeoutError) as err:
                log.warning("renewing %s failed: %s", self._name, str(err) or "no answer in time")
        log.warning("lost %s: not renewed for %.1f s", self._name, self._times.renew_deadline)

    def _time_left(self) -> float:
        return self._renewed_at + self._times.renew_deadline - self._clock.monotonic()

    async def _renew(self) -> bool:
        sent = self._clock.monotonic()
        spec = {**self._spec(), "renewTime": micro_time(self._clock.now())}
        try:
            await self._write(spec)
        except (Conflict, NotFound):
            await self._observe()
            if self.holder != self._identity or self._spec().get("leaseTransitions") != spec["leaseTransitions"]:
                return False
            await self._write({**self._spec(), "renewTime": micro_time(self._clock.now())})
        self._renewed_at = sent
        return True

    async def _try_acquire(self) -> bool:
        sent = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._times.call):
                await self._observe()
                if not self._takeable():
                    return False
                await self._take()
        except Conflict:
            return False  # another candidate was quicker
        except (KubeError, KubeUnavailable, TimeoutError) as err:
            log.warning("cannot campaign for %s: %s", self._name, str(err) or "no answer in time")
            return False
        self._renewed_at = sent
        return True

    async def _observe(self) -> None:
        try:
            lease = await self._api.get(LEASES, self._name, self._namespace)
        except NotFound:
            self._lease = None
            return
        self._remember(lease)

    def _remember(self, lease: Object) -> None:
        version = str(lease["metadata"].get("resourceVersion") or "")
        if version != self._seen_version:
            self._seen_version, self._seen_at = version, self._clock.monotonic()
        self._lease = lease
        self._highest = max(self._highest, int(self._spec().get("leaseTransitions") or 0))

    def _takeable(self) -> bool:
        if not self.holder or self.holder == self._identity:
            return True
        duration = float(self._spec().get("leaseDurationSeconds") or self._times.duration)
        return self._clock.monotonic() >= self._seen_at + duration

    async def _take(self) -> None:
        now = micro_time(self._clock.now())
        spec = {
            "holderIdentity": self._identity,
            # Whole seconds on the wire, never shorter than what we keep ourselves to.
            "leaseDurationSeconds": max(1, -int(-self._times.duration // 1)),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": self._highest + 1,
        }
        if self._lease is not None:
            await self._write(spec)
            return
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": spec,
        }
        self._remember(await self._api.create(LEASES, body, self._namespace))

    async def _write(self, spec: Object) -> None:
        assert self._lease is not None  # noqa: S101 - callers observed it
        self._remember(await self._api.replace(LEASES, {**self._lease, "spec": spec}, self._namespace))

    async def _release(self) -> None:
        spec = {
            **self._spec(),
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "renewTime": micro_time(self._clock.now()),
        }
        with suppress(KubeError, KubeUnavailable, TimeoutError):
            async with asyncio.timeout(min(2.0, self._times.call)):
                await self._write(spec)

    def _spec(self) -> Object:
        return (self._lease or {}).get("spec") or {}


async def _run(lead: Lead, fencing: int) -> None:
    await lead(fencing)


async def _cancel(task: "asyncio.Task[None]", name: str) -> None:
    """Cancel and wait to the end, however long the task takes and however often we are cancelled meanwhile."""
    if task.done():
        return
    task.cancel()
    interrupted: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as err:
            interrupted = err
    if not task.cancelled() and (failure := task.exception()) is not None:
        log.error("work of %s failed while it was stopped: %r", name, failure)
    if interrupted is not None:
        raise interrupted
