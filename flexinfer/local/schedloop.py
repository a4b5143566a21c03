"""The scheduler of one-machine mode: what kube-scheduler does with an extender, for the one profile we ship.

It asks the extender over HTTP with the bodies kube-scheduler sends, takes the best score (ties by preferred affinity,
then by name), binds through ``pods/binding``, and tells failures by an Event and the PodScheduled condition.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from flexinfer.adapters.kube.informer import Informer
from flexinfer.adapters.kube.recorder import EventRecorder
from flexinfer.adapters.web.extender_client import ExtenderClient, ExtenderFailed
from flexinfer.contracts.kubernetes import NODES, PODS, KubeDelta, Object
from flexinfer.contracts.labels import SCHEDULER_NAME
from flexinfer.local.nodefit import attraction, misfit
from flexinfer.local.schedqueue import Key, SchedulingQueue, key_of
from flexinfer.ports import Clock, Conflict, KubeApi, KubeError, KubeFact, KubeUnavailable, NotFound, Relisted
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

_ENDED = frozenset({"Succeeded", "Failed"})


class NoNode(Exception):
    """Every node is out; the text is kube-scheduler's ``0/N nodes are available: …``."""


class SchedulerLoop:
    """One pod at a time, as kube-scheduler does. ``run`` until cancelled."""

    def __init__(
        self, api: KubeApi, extender_url: str, *, name: str = SCHEDULER_NAME, clock: Clock | None = None
    ) -> None:
        self._api = api
        self._url = extender_url
        self._name = name
        self._clock = clock or SystemClock()
        self._queue = SchedulingQueue()
        self._nodes: dict[str, Object] = {}
        self._told: dict[Key, str] = {}  # last failure message written on the pod
        self._assumed: dict[Key, str] = {}  # uid of pods bound by us that the watch still shows unbound
        self._wake = asyncio.Event()
        self._recorder = EventRecorder(api, "scheduler", self._clock)

    async def run(self) -> None:
        """Watch, place, repeat."""
        supervisor = Supervisor("scheduler loop")
        extender = ExtenderClient(self._url)
        pods = Informer(self._api, PODS, self._on_pod)
        nodes = Informer(self._api, NODES, self._on_node)
        try:
            supervisor.forever("nodes", nodes.run)
            supervisor.forever("pods", pods.run)
            supervisor.forever("events", self._recorder.run)
            await nodes.wait_synced()
            await pods.wait_synced()
            while True:
                await self._step(extender)
        finally:
            await supervisor.close()
            await extender.aclose()

    async def _step(self, extender: ExtenderClient) -> None:
        pod, wait = self._queue.next(self._clock.monotonic())
        if pod is not None:
            await self._attempt(extender, pod)
            return
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(wait, 3600.0)):
                await self._wake.wait()

    def _on_node(self, fact: KubeFact) -> None:
        if isinstance(fact, Relisted):
            self._nodes = {_name(node): node for node in fact.objects}
        elif fact.action == "DELETED":
            self._nodes.pop(fact.name, None)
            return
        else:
            old = self._nodes.get(fact.name)
            self._nodes[fact.name] = fact.object
            if old is not None and _offer(old) == _offer(fact.object):
                return  # a heartbeat
        self._queue.stir()
        self._wake.set()

    def _on_pod(self, fact: KubeFact) -> None:
        deltas = (
            [KubeDelta(plural=fact.plural, action="MODIFIED", object=pod) for pod in fact.objects]
            if isinstance(fact, Relisted)
            else [fact]
        )
        for delta in deltas:
            if delta.action == "DELETED" or _ended(delta.object):
                self._forget(key_of(delta.object))
                self._queue.stir()
            elif self._is_ours(delta.object):
                if self._assumed.get(key_of(delta.object)) != (delta.object.get("metadata") or {}).get("uid"):
                    self._queue.put(delta.object, self._clock.monotonic())
            else:
                self._forget(key_of(delta.object))
        self._wake.set()

    def _is_ours(self, pod: Object) -> bool:
        spec = pod.get("spec") or {}
        meta = pod.get("metadata") or {}
        waiting = spec.get("schedulerName") == self._name and not spec.get("nodeName")
        return waiting and not meta.get("deletionTimestamp")

    def _forget(self, key: Key) -> None:
        self._queue.remove(key)
        self._told.pop(key, None)
        self._assumed.pop(key, None)

    async def _attempt(self, extender: ExtenderClient, pod: Object) -> None:
        key = key_of(pod)
        try:
            node = await self._choose(extender, pod)
            await self._bind(pod, node)
        except NoNode as err:
            self._queue.failed(key, self._clock.monotonic(), rejected=True)
            await self._tell(pod, "Unschedulable", str(err))
        except NotFound:
            self._forget(key)
        except (ExtenderFailed, KubeError, KubeUnavailable) as err:
            self._queue.failed(key, self._clock.monotonic(), rejected=False)
            await self._tell(pod, "SchedulerError", str(err))
        else:
            self._forget(key)
            self._assumed[key] = str(pod["metadata"].get("uid", ""))
            self._recorder.emit(
                pod | {"apiVersion": PODS.api_version, "kind": PODS.kind},
                "Normal", "Scheduled", f"Successfully assigned {key[0]}/{key[1]} to {node}",
            )  # fmt: skip

    async def _choose(self, extender: ExtenderClient, pod: Object) -> str:
        reasons: dict[str, str] = {}
        fitting: list[str] = []
        for name, node in sorted(self._nodes.items()):
            reason = misfit(pod, node)
            if reason is None:
                fitting.append(name)
            else:
                reasons[name] = reason
        if not fitting:
            raise NoNode(summary(len(self._nodes), reasons))
        filtered = await extender.filter(pod, fitting)
        if not filtered.names:
            raise NoNode(summary(len(self._nodes), reasons | dict(filtered.reasons)))
        if len(filtered.names) == 1:
            return filtered.names[0]
        scores: Mapping[str, int] = {}
        try:
            scores = await extender.prioritize(pod, filtered.names)
        except ExtenderFailed as err:
            log.warning("%s; placing without scores", err)
        drawn = {name: attraction(pod, self._nodes[name]) for name in filtered.names if name in self._nodes}
        return best(filtered.names, scores, drawn)

    async def _bind(self, pod: Object, node: str) -> None:
        meta = pod["metadata"]
        body: Object = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._api.create(PODS, body, meta["namespace"], subresource="binding")
        except Conflict as err:
            # Somebody bound or replaced it; the watch brings what it is now.
            log.info("pod %s/%s was not bound: %s", meta["namespace"], meta["name"], err)
            raise

    async def _tell(self, pod: Object, reason: str, message: str) -> None:
        """FailedScheduling Event, and PodScheduled=False unless the pod says so already."""
        key = key_of(pod)
        whole = pod | {"apiVersion": PODS.api_version, "kind": PODS.kind}
        self._recorder.emit(whole, "Warning", "FailedScheduling", message)
        if self._told.get(key) == message:
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        try:
            await self._api.patch(
                PODS, key[1], {"status": {"conditions": [condition]}}, key[0], kind="strategic", subresource="status"
            )
        except (KubeError, KubeUnavailable) as err:
            log.warning("condition of pod %s/%s was not written: %s", *key, err)
            return
        self._told[key] = message


def summary(nodes: int, reasons: Mapping[str, str]) -> str:
    """``0/4 nodes are available: 3 no free accelerator, 1 node is draining.``, equal reasons counted."""
    counted = Counter(reasons.values())
    text = ", ".join(f"{count} {reason}" for reason, count in sorted(counted.items(), key=lambda pair: pair[0]))
    return f"0/{nodes} nodes are available" + (f": {text}." if text else ".")


def best(names: tuple[str, ...], scores: Mapping[str, int], drawn: Mapping[str, int]) -> str:
    """The highest score; of equal ones where affinity draws the pod most, then by name, so that one machine places
    the same way each time."""
    return min(names, key=lambda name: (-scores.get(name, 0), -drawn.get(name, 0), name))


def _name(node: Object) -> str:
    return str((node.get("metadata") or {}).get("name", ""))


def _ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in _ENDED


def _offer(node: Object) -> object:
    meta = node.get("metadata") or {}
    return meta.get("labels"), meta.get("annotations"), node.get("spec"), (node.get("status") or {}).get("allocatable")
