"""One pod: init containers, sidecars, main containers, restarts, deadline, end; its status written as it goes."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from flexinfer.adapters.kube.times import parse as parse_time
from flexinfer.contracts.kubernetes import PODS, Object
from flexinfer.local.runner.adoption import adopt
from flexinfer.local.runner.containers import Container
from flexinfer.local.runner.downward import PodFacts
from flexinfer.local.runner.housing import Files, Home, Launch
from flexinfer.local.runner.launching import prepare
from flexinfer.local.runner.records import Backoff, Ended, Record, Waiting, policy_of, records_of, wants_restart
from flexinfer.local.runner.site import Site
from flexinfer.local.runner.status import Course, Verdict
from flexinfer.local.runner.status_writer import StatusWriter
from flexinfer.local.runner.volumes import Places, VolumeFailed, provide, remove
from flexinfer.ports import KubeError, KubeUnavailable, NotFound
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

VANISHED_GRACE = 1.0  # for a pod that was removed from the API by force


class PodWorker:
    """Owns one pod from the moment it is bound here until it is gone from the API."""

    def __init__(self, pod: Object, site: Site) -> None:
        self.pod = pod
        self._site = site
        self._uid = str(pod["metadata"]["uid"])
        self._folder = site.pod_folder(self._uid)
        self._records = records_of(pod)
        self._containers = [
            Container(record, self._folder, site, self._emit, self._changed) for record in self._records
        ]
        self._stop = asyncio.Event()  # nothing may start any more
        self._gone = asyncio.Event()  # its deletion was asked for, or has happened
        self._progress = asyncio.Event()
        self.finished = asyncio.Event()  # nothing of it runs any more
        self._grace = 0.0
        self._vanished = False
        self._verdict: Verdict | None = None
        self._over = False
        self._volumes: dict[str, Path] = {}
        self._home: Home | None = None
        self._started_at = parse_time((pod.get("status") or {}).get("startTime")) or site.clock.now()
        self._tasks = Supervisor(f"pod {self.name}")
        self._status = StatusWriter(site.api, site.clock)

    @property
    def name(self) -> str:
        """Pod name."""
        return str(self.pod["metadata"]["name"])

    def container(self, name: str | None) -> Container | None:
        """The container of that name; without one, the only or first main container."""
        if name:
            return next((found for found in self._containers if found.record.name == name), None)
        return next(found for found in self._containers if found.record.role == "main")

    def trim_logs(self) -> None:
        """Keep the log files small."""
        for found in self._containers:
            found.logs.trim()

    # --- what others tell it ---------------------------------------------------------------------------------

    def update(self, pod: Object) -> None:
        """The object changed."""
        self.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            grace = pod["metadata"].get("deletionGracePeriodSeconds")
            self.end(30.0 if grace is None else float(grace))
            self._gone.set()

    def vanish(self) -> None:
        """The object is gone from the API."""
        self._vanished = True
        self.end(VANISHED_GRACE)
        self._gone.set()

    def end(self, grace: float) -> None:
        """Stop everything within ``grace`` seconds; the object is left as it is."""
        self._grace = min(self._grace, grace) if self._stop.is_set() else grace
        self._stop.set()
        self._progress.set()

    # --- its life --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until the pod's deletion is complete."""
        writer = self._tasks.once("status", self._status.run(self._snapshot))
        try:
            if not self._ended_before():
                await self._live()
            self._over = True
            self._changed()
            self.finished.set()
            await self._gone.wait()
            if not self._vanished:
                await self._status.settle()
                remove(self._folder)  # before the object: who sees it gone finds nothing of it
                await self._delete()
        finally:
            writer.cancel()
            await self._tasks.close()
            remove(self._folder)
            self._site.reaper.forget_dir(self._folder)

    def close(self, grace: float) -> None:
        """End it because the runner ends: processes are stopped, the object stays as it is."""
        self._status.disable()
        self.end(grace)

    def _ended_before(self) -> bool:
        """Finished under an earlier runner, or deleted before it ever ran here."""
        status = self.pod.get("status") or {}
        if status.get("phase") in {"Succeeded", "Failed"}:
            self._status.disable()
            return True
        ran = bool(status.get("containerStatuses"))
        return self._stop.is_set() and not ran

    async def _live(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._site.reaper.track_dir(self._folder)
        self._home = home = await self._enter()
        if home is None:
            return
        try:
            if not adopt(self.pod, self._records, self._site.clock.now()):
                return
            self._changed()
            limits = self._tasks.once("limits", self._limits())
            await self._work(home)
            limits.cancel()
        finally:
            await home.close()

    async def _enter(self) -> Home | None:
        """A home for the pod; None when it was stopped before there was one."""
        while not self._stop.is_set():
            try:
                return await self._site.housing.enter(self.pod, self._folder)
            except OSError as err:
                self._emit("Warning", "FailedCreatePodSandBox", str(err))
                await self._sleep(self._site.pacing.retry)
        return None

    async def _work(self, home: Home) -> None:
        """Everything a pod does, in order; returns when nothing of it runs and nothing will."""
        if not await self._mount():
            return
        sidecars: list[tuple[Container, asyncio.Task[None]]] = []
        if await self._initialize(home, sidecars):
            mains = [found for found in self._containers if found.record.role == "main"]
            keepers = [self._tasks.once(found.record.name, self._keep(found, home)) for found in mains]
            enders = [self._tasks.once(f"end {found.record.name}", self._end_when_told(found)) for found in mains]
            await asyncio.wait(keepers)
            for ender in enders:
                ender.cancel()
        # Sidecars end after the containers they serve, the last started first.
        left = self._grace if self._stop.is_set() else float(self.pod["spec"].get("terminationGracePeriodSeconds", 30))
        self.end(left)
        for sidecar, keeper in reversed(sidecars):
            await sidecar.stop(left)
            await asyncio.wait({keeper})

    async def _initialize(self, home: Home, sidecars: "list[tuple[Container, asyncio.Task[None]]]") -> bool:
        """Run init containers one after another and start sidecars; False when the pod got no further."""
        for found in self._containers:
            if found.record.role == "main":
                break
            keeper = self._tasks.once(found.record.name, self._keep(found, home))
            if found.record.role == "sidecar":
                sidecars.append((found, keeper))
                await self._until_started(found.record)
            else:
                ender = self._tasks.once(f"end {found.record.name}", self._end_when_told(found))
                await asyncio.wait({keeper})
                ender.cancel()
                if not found.record.succeeded:
                    return False
            if self._stop.is_set():
                return False
        for record in self._records:
            if record.role == "main" and isinstance(record.state, Waiting) and record.state.reason == "PodInitializing":
                record.state = Waiting("ContainerCreating")
        return True

    async def _mount(self) -> bool:
        """Provide the volumes; False when the pod was stopped before that worked."""
        while not self._stop.is_set():
            try:
                places = Places(self._folder, self._site.claims, self._site.host_paths)
                self._volumes = await provide(self._facts(), places, self._site.data)
            except (VolumeFailed, KubeUnavailable) as err:
                self._emit("Warning", "FailedMount", str(err))
                await self._sleep(self._site.pacing.retry)
            else:
                return True
        return False

    async def _keep(self, found: Container, home: Home) -> None:
        """Run a container again and again as its restart policy has it; returns when it ended for good."""
        record, pacing, policy = found.record, self._site.pacing, policy_of(self.pod)
        backoff = Backoff(pacing.backoff, pacing.backoff_cap)
        while not self._stop.is_set():
            if isinstance(record.state, Ended) and not wants_restart(record.role, policy, record.state.exit_code):
                return  # under an earlier runner
            launch = await self._launch(found, home)
            if launch is None:
                return
            ended = await found.run(launch, home)
            if self._stop.is_set() or not wants_restart(record.role, policy, ended.exit_code):
                return
            record.last = ended
            wait = backoff.after(ended.finished_at - ended.started_at)
            if wait:
                text = f"back-off {wait:g}s restarting failed container={record.name} pod={self.name}"
                record.state = Waiting("CrashLoopBackOff", text)
                self._emit("Warning", "BackOff", text)
                self._changed()
                if await self._sleep(wait):
                    record.state = ended
                    return
            record.restarts += 1

    async def _launch(self, found: Container, home: Home) -> Launch | None:
        """What to start, retried while something it refers to is missing; None when the pod is to end."""
        files = Files(self._volumes, found.message_file, found.scratch)
        while not self._stop.is_set():
            launch = await prepare(found.record.spec, self._facts(), files, home, self._site)
            if isinstance(launch, Launch):
                return launch
            if found.record.state != launch:
                found.record.state = launch
                self._emit("Warning", "Failed", f"Error: {launch.reason}: {launch.message}")
                self._changed()
            await self._sleep(self._site.pacing.retry)
        return None

    async def _end_when_told(self, found: Container) -> None:
        await self._stop.wait()
        await found.stop(self._grace)

    async def _limits(self) -> None:
        """activeDeadlineSeconds, counted from the pod's start."""
        seconds = self.pod["spec"].get("activeDeadlineSeconds")
        if seconds is None:
            return
        await asyncio.sleep(max(0.0, self._started_at + float(seconds) - self._site.clock.now()))
        self._verdict = Verdict("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
        self.end(float(self.pod["spec"].get("terminationGracePeriodSeconds", 30)))

    async def _delete(self) -> None:
        """Complete a deletion: the last word of a kubelet."""
        meta = self.pod["metadata"]
        while True:
            try:
                await self._site.api.delete(PODS, self.name, meta.get("namespace"), uid=self._uid, grace_seconds=0)
            except NotFound:
                return
            except KubeUnavailable:
                await asyncio.sleep(1.0)
            except KubeError as err:
                log.warning("pod %s cannot be deleted: %s", self.name, err)
                return
            else:
                return

    async def _until_started(self, record: Record) -> None:
        while not record.started and not self._stop.is_set():
            self._progress.clear()
            await self._progress.wait()

    # --- small things ----------------------------------------------------------------------------------------

    async def _sleep(self, seconds: float) -> bool:
        """Wait, but not beyond a stop; tells whether it was one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        return self._stop.is_set()

    @property
    def _ip(self) -> str:
        return "" if self._home is None else self._home.ip

    def _facts(self) -> PodFacts:
        return PodFacts(self.pod, self._ip, self._site.housing.host_ip, self._site.node, self._site.allocatable)

    def _emit(self, kind: str, reason: str, message: str) -> None:
        self._site.recorder.emit(self.pod, "Warning" if kind == "Warning" else "Normal", reason, message)

    def _changed(self) -> None:
        self._progress.set()
        self._status.changed()

    def _snapshot(self) -> tuple[Object, Sequence[Record], Course]:
        """What the status is made of right now."""
        course = Course(self._ip, self._site.housing.host_ip, self._started_at, self._over, self._verdict)
        return self.pod, self._records, course
