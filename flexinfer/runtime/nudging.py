"""Rejected pods are tried again when the fleet could take them.

kube-scheduler retries a pod that an extender rejected only on cluster events, and our facts are none. So the leading
manager runs the extender's own filter on its own view for each pod last decided as rejected, and while a node passes
it touches an annotation on the pod, which is such an event: after 200 ms, then 1, 2, 4 … 30 s until it is bound.
Among pods that want the same, those of higher priority go first; the others wait for two of their tries.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from flexinfer.contracts.events import PlacementDecided
from flexinfer.contracts.extender import PodObject
from flexinfer.contracts.kubernetes import PODS, Object
from flexinfer.contracts.labels import FIELD_MANAGER
from flexinfer.core.fleet.fold import tick
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.lifecycle.pods import PRIORITY
from flexinfer.core.placement.demand import Demand, demand_of
from flexinfer.core.placement.offers import verdict
from flexinfer.ports import BusFact, Clock, KubeApi, KubeError, KubeFact, KubeUnavailable, Relisted, Snapshot
from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

RETRY_ANNOTATION = "flexinfer.ai/retry"
FIRST_SECONDS = 0.2
STEPS = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
LOOK_SECONDS = 0.2
FIRST_TRIES = 2
DEFAULT_PRIORITY = 100

_TOUCHES = metrics.counter("flexinfer_controller_pod_touches_total", "Rejected pods touched so that they are retried.")

Name = tuple[str, str]


@dataclass(slots=True)
class Rejected:
    """One pod without a node. ``due``: when to touch it next, None while no node passes."""

    pod: PodObject
    demand: Demand
    priority: int
    touched: int = 0
    due: float | None = None


@dataclass(slots=True)
class Group:
    """Pods with one demand get one answer; ``passing`` are the nodes that would take it."""

    passing: set[str] = field(default_factory=set)
    seen: int = 0  # position in the view's feed of changes


class Retries:
    """Which pods to touch now. Pure but for its own memory: time comes in with each call."""

    def __init__(self, view: FleetView) -> None:
        self._view = view
        self._unbound: dict[Name, PodObject] = {}
        self._told: dict[Name, str] = {}  # uid of pods decided as rejected before the watch showed them
        self._groups: dict[Demand, Group] = {}
        self.rejected: dict[Name, Rejected] = {}

    def decided(self, data: PlacementDecided) -> None:
        """The extender's word on one attempt."""
        name = (data.namespace, data.pod)
        if data.outcome != "rejected":
            self._told.pop(name, None)
            self.rejected.pop(name, None)
            return
        pod = self._unbound.get(name)
        if pod is None or pod.metadata.uid != data.pod_uid:
            self._told[name] = data.pod_uid
        elif name not in self.rejected:
            self.rejected[name] = _rejected(pod)

    def pod(self, obj: Object, *, gone: bool = False) -> None:
        """A Pod as the watch shows it."""
        meta = obj.get("metadata") or {}
        name = (str(meta.get("namespace") or ""), str(meta.get("name") or ""))
        placed = bool((obj.get("spec") or {}).get("nodeName"))
        if gone or placed or meta.get("deletionTimestamp"):
            self._unbound.pop(name, None)
            self._told.pop(name, None)
            self.rejected.pop(name, None)
            return
        try:
            pod = msgspec.convert(obj, PodObject)
        except msgspec.ValidationError:
            return  # the scheduler cannot read it either, and says so
        self._unbound[name] = pod
        if self._told.get(name) == pod.metadata.uid:
            del self._told[name]
            self.rejected[name] = _rejected(pod)

    def listed(self, objects: Iterable[Object]) -> None:
        """All Pods there are."""
        self._unbound.clear()
        found = list(objects)
        for obj in found:
            self.pod(obj)
        names = {(str(o["metadata"].get("namespace") or ""), str(o["metadata"]["name"])) for o in found}
        for name in [name for name in self.rejected if name not in names]:
            del self.rejected[name]

    def due(self, now: float) -> list[Name]:
        """Pods to touch now; each is counted as touched."""
        if not self.rejected:
            self._groups.clear()
            return []
        tick(self._view, now)
        found = []
        first: dict[Demand, int] = {}
        for name, entry in sorted(self.rejected.items(), key=lambda item: -item[1].priority):
            if entry.touched < FIRST_TRIES:
                first.setdefault(_device(entry.demand), entry.priority)
            if not self._passes(entry.demand, now) or entry.priority < first.get(_device(entry.demand), entry.priority):
                entry.due = None
            elif entry.due is None:
                entry.due = now + (FIRST_SECONDS if not entry.touched else _step(entry.touched))
            elif now >= entry.due:
                entry.touched += 1
                entry.due = now + _step(entry.touched)
                found.append(name)
        for demand in self._groups.keys() - {entry.demand for entry in self.rejected.values()}:
            del self._groups[demand]
        return found

    def _passes(self, demand: Demand, now: float) -> bool:
        """Only nodes that changed since the last look are asked again."""
        view = self._view
        group = self._groups.get(demand)
        changed: Iterable[str] | None = view.changes.since(group.seen) if group else None
        if group is None or changed is None:
            group = self._groups[demand] = Group()
            changed = view.nodes
        group.seen = view.changes.count
        for name in set(changed):
            group.passing.discard(name)
            if name in view.nodes and verdict(view, name, demand, now) is None:
                group.passing.add(name)
        return bool(group.passing)


def _rejected(pod: PodObject) -> Rejected:
    text = (pod.metadata.annotations or {}).get(PRIORITY, "")
    return Rejected(pod, demand_of(pod), int(text) if text.isdigit() else DEFAULT_PRIORITY)


def _device(demand: Demand) -> Demand:
    """What pods compete for: the hardware, whatever the model."""
    return replace(demand, backend="", model="", workload="", quantization="")


def _step(touched: int) -> float:
    return STEPS[min(touched, len(STEPS)) - 1]


class Nudger:
    """Feeds Retries and performs its touches. Followers fold; only ``run`` touches."""

    def __init__(self, view: FleetView, api: KubeApi, clock: Clock) -> None:
        self.retries = Retries(view)
        self._api = api
        self._clock = clock

    def bus(self, fact: BusFact) -> None:
        """Sink for PlacementDecided."""
        for event in fact.events if isinstance(fact, Snapshot) else (fact,):
            if isinstance(event.data, PlacementDecided):
                self.retries.decided(event.data)

    def kube(self, fact: KubeFact) -> None:
        """Sink for Pods."""
        if isinstance(fact, Relisted):
            self.retries.listed(fact.objects)
        else:
            self.retries.pod(fact.object, gone=fact.action == "DELETED")

    async def run(self) -> None:
        """Look and touch until cancelled."""
        while True:
            for namespace, name in self.retries.due(self._clock.now()):
                await self._touch(namespace, name)
            await asyncio.sleep(LOOK_SECONDS)

    async def _touch(self, namespace: str, name: str) -> None:
        entry = self.retries.rejected.get((namespace, name))
        if entry is None:
            return
        body = {
            "metadata": {
                "uid": entry.pod.metadata.uid,
                "annotations": {RETRY_ANNOTATION: str(entry.touched)},
            }
        }
        with suppress(KubeError, KubeUnavailable):  # gone, or tried again in a moment
            await self._api.patch(PODS, name, body, namespace, kind="merge", field_manager=FIELD_MANAGER)
            _TOUCHES.inc()
            log.info("touched pod %s/%s: a node would take it now", namespace, name)
