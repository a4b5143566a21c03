"""The script the manager is compared with: it knows what is to be written and writes it. Used by manager_models.py."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.adapters.kube.informer import Informer
from flexinfer.contracts.kubernetes import DEPLOYMENTS, EVENTS, MODELDEPLOYMENTS, SERVICES, Object
from flexinfer.contracts.labels import FINALIZER
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.manifests import deployment, service
from flexinfer.core.lifecycle.pods import Placement
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.lifecycle.reading import describe
from flexinfer.ports import KubeFact, Relisted
from flexinfer.runtime.process import run_app
from flexinfer.runtime.tasks import Supervisor

WORKERS = 16  # as many as the manager has
NOW = "2026-01-01T00:00:00Z"
CONDITIONS = ("Available", "Progressing", "ReplicaFailure", "BenchmarkComplete", "NodeSelected")


async def start(kubeconfig: Path, namespace: str, models: int, *, stages: int) -> asyncio.subprocess.Process:
    """The script as a process of its own, as the manager is; returns when it is ready to work. ``stages``: how many
    phases it writes for each model, 2 or 3: as many as the manager did."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, str(kubeconfig), namespace, str(models), str(stages), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    return process


class Script:
    """Two steps for each model: what comes before its pod is ready, and what comes after."""

    def __init__(self, api: KubeClient, namespace: str, models: int, stages: int) -> None:
        self._api = api
        self._stages = stages
        self._namespace = namespace
        self._left = models
        self._work: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._seen: dict[str, Object] = {}
        self._begun: set[str] = set()
        self._ready: set[str] = set()
        self._done: set[str] = set()
        self.finished = asyncio.Event()

    def model(self, fact: KubeFact) -> None:
        for obj in fact.objects if isinstance(fact, Relisted) else (fact.object,):
            name = obj["metadata"]["name"]
            if name not in self._seen:
                self._seen[name] = obj
                self._work.put_nowait(partial(self._begin, obj))

    def deployment(self, fact: KubeFact) -> None:
        for obj in fact.objects if isinstance(fact, Relisted) else (fact.object,):
            name = obj["metadata"]["name"]
            if (obj.get("status") or {}).get("readyReplicas"):
                self._ready.add(name)
                self._proceed(name)

    def _proceed(self, name: str) -> None:
        """The second step, once the first is over and the Deployment is ready."""
        if name in self._ready and name in self._begun and name not in self._done:
            self._done.add(name)
            self._work.put_nowait(partial(self._end, name))

    async def work(self) -> None:
        while True:
            await (await self._work.get())()

    async def _begin(self, obj: Object) -> None:
        name = obj["metadata"]["name"]
        body = {"metadata": {"finalizers": [FINALIZER], "resourceVersion": obj["metadata"]["resourceVersion"]}}
        await self._api.patch(MODELDEPLOYMENTS, name, body, self._namespace)
        wanted = describe(obj)
        assert isinstance(wanted, Description)
        await self._status(name, "Pending", ready=0)
        await self._event(obj, "Accepted")
        for resource, child in (
            (DEPLOYMENTS, deployment(wanted, Placement("NVIDIA", 1), "engine:1", 1, Policy())),
            (SERVICES, service(wanted)),
        ):
            await self._api.patch(
                resource, child["metadata"]["name"], child, self._namespace, kind="apply", field_manager="script"
            )
        if self._stages > 2:
            await self._status(name, "Deploying", ready=0)
            await self._event(obj, "Creating")
        self._begun.add(name)
        self._proceed(name)

    async def _end(self, name: str) -> None:
        await self._event(self._seen[name], "NodeSelected")
        await self._status(name, "Running", ready=1)
        await self._event(self._seen[name], "Serving")
        self._left -= 1
        if not self._left:
            self.finished.set()

    async def _status(self, name: str, phase: str, *, ready: int) -> None:
        conditions = [
            {"type": kind, "status": "True", "reason": "Serving", "message": f"{phase}: 1 of 1 replica(s) serve",
             "lastTransitionTime": NOW, "observedGeneration": 1}
            for kind in CONDITIONS
        ]  # fmt: skip
        endpoint = {"url": "http://10.1.1.1:8080", "node": "node-001", "deviceClass": "nvidia-geforce-rtx-4090"}
        status = {
            "phase": phase, "conditions": conditions, "replicas": ready, "readyReplicas": ready,
            "selector": f"app.kubernetes.io/instance={name}", "endpoints": [endpoint] * ready, "benchmarks": [],
            "tokensPerSecond": "", "observedGeneration": 1,
        }  # fmt: skip
        await self._api.patch(MODELDEPLOYMENTS, name, {"status": status}, self._namespace, subresource="status")

    async def _event(self, obj: Object, reason: str) -> None:
        meta = obj["metadata"]
        regarding = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"], "uid": meta["uid"],
                     "namespace": self._namespace}  # fmt: skip
        body = {
            "apiVersion": EVENTS.api_version, "kind": EVENTS.kind,
            "metadata": {"name": f"{meta['name']}.{reason.lower()}", "namespace": self._namespace},
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "script", "reportingInstance": "script",
            "action": reason, "reason": reason, "type": "Normal", "note": f"{reason}: what a person reads",
            "regarding": regarding,
        }  # fmt: skip
        await self._api.create(EVENTS, body, self._namespace)


async def run(kubeconfig: Path, namespace: str, models: int, stages: int) -> int:
    """Until every model has been written to Running."""
    api = await KubeClient.connect(kubeconfig, timeout=60.0)
    script = Script(api, namespace, models, stages)
    tasks = Supervisor("script")
    informers = [
        Informer(api, MODELDEPLOYMENTS, script.model, namespace),
        Informer(api, DEPLOYMENTS, script.deployment, namespace),
    ]
    for informer in informers:
        tasks.forever("watch", informer.run)
        await informer.wait_synced()
    for _ in range(WORKERS):
        tasks.forever("work", script.work)
    print("ready", flush=True)
    await script.finished.wait()
    await tasks.close()
    await api.aclose()
    return 0


if __name__ == "__main__":
    sys.exit(run_app(lambda: run(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
