"""``ProcessRunner``: watches the pods bound to one node and owns a worker for each."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from flexinfer.adapters.kube.informer import Informer
from flexinfer.adapters.kube.recorder import EventRecorder
from flexinfer.contracts.kubernetes import PODS, Object
from flexinfer.local import reaper as last_rites
from flexinfer.local.processes import Reaper
from flexinfer.local.runner.addresses import Addresses
from flexinfer.local.runner.cluster_data import ClusterData
from flexinfer.local.runner.housing import Housing, Loopback
from flexinfer.local.runner.images import Images, ImageTable
from flexinfer.local.runner.node import NodeObject, Place, this_machine
from flexinfer.local.runner.pods import PodWorker
from flexinfer.local.runner.records import Running
from flexinfer.local.runner.site import Pacing, Site
from flexinfer.ports import Clock, KubeApi, KubeError, KubeFact, KubeUnavailable, Relisted
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

TRIM_SECONDS = 2.0


class ProcessRunner:
    """The kubelet of one machine without containers, root or a network of its own.

    ``images``: image reference → argv that stands for its entry point, or a LocalImage. ``work``: directory for
    everything of the pods; it is emptied at start, except for ``claims``. ``host_paths``: where hostPath volumes of
    manifests really are. ``resources``: capacity of the Node beyond cpu and memory.
    ``housing``: where pods live, addresses of 127.0.0.0/8 unless given. ``log_port``: where the API server asks this
    node for logs, if it can.
    """

    def __init__(  # noqa: PLR0913 - a node and its means
        self,
        api: KubeApi,
        node: str,
        images: Images,
        work: Path,
        *,
        reaper: Reaper,
        clock: Clock | None = None,
        pacing: Pacing | None = None,
        host_paths: Mapping[str, Path] | None = None,
        labels: Mapping[str, str] | None = None,
        resources: Mapping[str, str] | None = None,
        housing: Housing | None = None,
        log_port: int | None = None,
    ) -> None:
        clock = clock or SystemClock()
        work = work.absolute()
        work.mkdir(parents=True, exist_ok=True)
        machine = this_machine(work, resources or {})
        self._site = Site(
            api=api,
            node=node,
            images=ImageTable(images),
            work=work,
            reaper=reaper,
            recorder=EventRecorder(api, "process-runner", clock, instance=node),
            clock=clock,
            housing=housing or Loopback(Addresses(str(work))),
            data=ClusterData(api),
            pacing=pacing or Pacing(),
            host_paths=host_paths or {},
            allocatable=machine.capacity(),
        )
        place = Place(self._site.housing.host_ip, log_port)
        self._node = NodeObject(api, node, machine, clock, labels or {}, place)
        self._pods = Informer(api, PODS, self._sink, fields=f"spec.nodeName={node}")
        self._workers: dict[str, PodWorker] = {}
        self._tasks = Supervisor("runner")
        self._closing = False

    async def start(self) -> "ProcessRunner":
        """Remove what an earlier runner left, register the Node, begin. The API may still be away."""
        await asyncio.to_thread(clean_leftovers, self._site.work / "pods")
        try:
            await self._node.ensure()
        except (KubeError, KubeUnavailable) as err:
            log.warning("the node is not registered yet: %s", err)
        self._tasks.forever("node", self._node.run)
        self._tasks.forever("pods", self._pods.run)
        self._tasks.forever("events", self._site.recorder.run)
        self._tasks.forever("logs", self._trim_logs)
        return self

    async def stop(self, grace: float = 5.0) -> None:
        """End every process within ``grace`` seconds and the Node with them; pods stay in the API as they are."""
        self._closing = True
        workers = list(self._workers.values())
        for worker in workers:
            worker.close(grace)
        ends = [self._tasks.once("end", worker.finished.wait()) for worker in workers]
        if ends:
            await asyncio.wait(ends, timeout=grace + 1.0)
        await self._tasks.close()
        try:
            async with asyncio.timeout(2.0):
                await self._node.remove()
        except (KubeError, KubeUnavailable, TimeoutError) as err:
            log.info("the node stays in the API: %s", str(err) or "no answer in time")

    @property
    def synced(self) -> bool:
        """Whether the pods of this node are known."""
        return self._pods.synced

    # --- pods ------------------------------------------------------------------------------------------------

    def _sink(self, fact: KubeFact) -> None:
        if isinstance(fact, Relisted):
            for pod in fact.objects:
                self._upsert(pod)
            present = {str(pod["metadata"]["uid"]) for pod in fact.objects}
            for uid, worker in self._workers.items():
                if uid not in present:
                    worker.vanish()
        elif fact.action == "DELETED":
            gone = self._workers.get(str(fact.object["metadata"]["uid"]))
            if gone is not None:
                gone.vanish()
        else:
            self._upsert(fact.object)

    def _upsert(self, pod: Object) -> None:
        uid = str(pod["metadata"]["uid"])
        worker = self._workers.get(uid)
        if worker is None:
            if self._closing:
                return
            worker = self._workers[uid] = PodWorker(pod, self._site)
            task = self._tasks.once(f"pod {worker.name}", worker.run())
            task.add_done_callback(lambda _task: self._workers.pop(uid, None))
        worker.update(pod)

    # --- logs ------------------------------------------------------------------------------------------------

    async def logs(self, namespace: str, pod: str, container: str | None = None, tail: int | None = None) -> str:
        """Log of a container, the first main one unless named. Raises LookupError with a sentence."""
        return self._read(namespace, pod, container, {} if tail is None else {"tailLines": str(tail)}).decode(
            errors="replace"
        )

    async def log_source(self, namespace: str, pod: str, container: str, query: Mapping[str, str]) -> bytes:
        """The same with the query parameters of ``pods/log``: tailLines, limitBytes, previous. Raises LookupError."""
        return self._read(namespace, pod, container, query)

    def _read(self, namespace: str, pod: str, container: str | None, query: Mapping[str, str]) -> bytes:
        found = next(
            (
                worker.container(container)
                for worker in self._workers.values()
                if worker.name == pod and worker.pod["metadata"].get("namespace") == namespace
            ),
            None,
        )
        if found is None:
            raise LookupError(f"container {container or ''} of pod {namespace}/{pod} is not known on this node")
        previous = query.get("previous") in {"true", "1"}
        try:
            return found.logs.read(_number(query, "tailLines"), _number(query, "limitBytes"), previous=previous)
        except FileNotFoundError:
            if previous:
                text = f'previous terminated container "{found.record.name}" in pod "{pod}" not found'
                raise LookupError(text) from None
            state = found.record.state
            reason = getattr(state, "reason", "Running" if isinstance(state, Running) else "ContainerCreating")
            text = f'container "{found.record.name}" in pod "{pod}" is waiting to start: {reason}'
            raise LookupError(text) from None

    async def _trim_logs(self) -> None:
        while True:
            await asyncio.sleep(TRIM_SECONDS)
            for worker in list(self._workers.values()):
                worker.trim_logs()


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    return int(text) if text.isdigit() else None


def clean_leftovers(folder: Path) -> None:
    """Stop processes whose number and start time an earlier runner noted, and remove the directory. Blocks."""
    groups = {}
    for file in folder.glob("*/pids/*"):
        if file.name.isdigit():
            groups[int(file.name)] = file.read_text()
    last_rites.clean(groups, {str(folder)})
