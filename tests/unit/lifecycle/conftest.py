"""A cluster on paper: the manager's folds and plans against objects in a dictionary, time moved by hand.

Nothing here is asynchronous: effects are performed one by one, each followed by its outcome and the watch delta, so
that a test can stop, fail or restart the manager between any two of them.
"""

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import (
    BenchCompleted,
    Cpu,
    Device,
    EventData,
    ModelEndpoint,
    ModelLoad,
    ModelPhase,
    NodeHardware,
)
from flexinfer.contracts.kubernetes import KubeDelta, Object, Resource
from flexinfer.contracts.topics import TOPIC_OF
from flexinfer.core.effects import Apply, Create, Delete, Effect, Note, Patch, Publish, Refusal, Write
from flexinfer.core.lifecycle.description import ModelKey
from flexinfer.core.lifecycle.fold import fold_delta, fold_done, fold_list, fold_refusal
from flexinfer.core.lifecycle.fold_events import fold_event, fold_snapshot
from flexinfer.core.lifecycle.objects import write_time
from flexinfer.core.lifecycle.plan import NEEDED, plan
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.lifecycle.view import BENCH_KEY, RECORDS, LifecycleView

KINDS = {"Model": "models", "ModelDeployment": "modeldeployments"}
SPEC: Object = {
    "backend": "llamacpp",
    "model": "file:///models/tiny-1b.gguf",
    "gpu": {"vendor": "cpu", "count": 0},
}
Address = tuple[str, str, str]  # plural, namespace, name


class Rejected(Exception):
    """The API refused; ``code`` as the interpreter would name it."""

    def __init__(self, code: str, message: str = "refused") -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Sim:
    """Objects, bus state, clock, and one manager's view at a time."""

    policy: Policy = field(default_factory=lambda: Policy(proxy_url="http://proxy", nats_url="nats://bus"))
    now: float = 1_700_000_000.0
    objects: dict[Address, Object] = field(default_factory=dict)
    bus: dict[str, Any] = field(default_factory=dict)  # state key → event
    bus_up: bool = True
    log: list[Effect] = field(default_factory=list)
    refuse: Callable[[Effect], str] = lambda _effect: ""
    controllers: bool = True
    outcome: Callable[[Object], EventData | None] | None = None

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)
        self._boots = itertools.count(1)
        self.agent = EventMint.start("agent", "n", "b1", lambda: self.now)
        self.other = EventMint.start("other", "o", "b1", lambda: self.now)
        self.restart()

    # --- the manager -----------------------------------------------------------------------------------------

    def restart(self) -> None:
        """A new process: nothing is remembered but what cluster and bus hold."""
        self.mint = EventMint.start("manager", "m", f"b{next(self._boots)}", lambda: self.now)
        self.view = LifecycleView(self.policy, self.mint.bootid)
        self.dirty: set[ModelKey] = set()
        self.wake: dict[ModelKey, float] = {}
        if self.bus_up:
            self.snapshot()
        for plural in sorted(NEEDED | {"persistentvolumeclaims"}):
            found = [o for (kind, _, _), o in sorted(self.objects.items()) if kind == plural]
            self.dirty |= fold_list(self.view, plural, copy.deepcopy(found), self.now)

    def snapshot(self) -> None:
        types = tuple(TOPIC_OF)
        self.dirty |= fold_snapshot(self.view, types, tuple(self.bus.values()), self.now)

    def tell(self, data: EventData) -> None:
        """An event of somebody else."""
        mint = self.agent if isinstance(data, NodeHardware) else self.other
        self._event(mint.mint(data))

    def _event(self, event: Any) -> None:
        topic = TOPIC_OF[type(event.data)]
        if topic.key is not None:
            key = f"{topic.bucket}.{topic.key(event.data)}"
            if topic.retracts(event.data):
                self.bus.pop(key, None)
            else:
                self.bus[key] = event
        self.dirty |= fold_event(self.view, event, self.now)

    def settle(self, limit: int = 400) -> "Sim":
        """Plan and perform until nothing is left to do at this moment."""
        for _ in range(limit):
            if not self.step():
                return self
        raise AssertionError(f"no end in sight; the last effects were {self.log[-6:]}")

    def step(self) -> bool:
        """One round of one key; False if no key is marked."""
        due = {key for key, at in self.wake.items() if at <= self.now}
        self.dirty |= due
        for key in due:
            del self.wake[key]
        if not self.dirty:
            return False
        key = min(self.dirty)
        self.dirty.discard(key)
        for _ in self.round(key):
            pass
        return True

    def round(self, key: ModelKey) -> Iterator[Effect]:
        """Plan one key and perform its effects, yielding before each."""
        self.view.bus_up = self.bus_up
        decision = plan(self.view, key, self.now)
        self.wake.pop(key, None)
        if decision.wake_at is not None:
            self.wake[key] = decision.wake_at
        for effect in decision.effects:
            yield effect
            if not self.perform(key, effect):
                return

    def perform(self, key: ModelKey, effect: Effect) -> bool:
        self.log.append(effect)
        if isinstance(effect, Note):
            self.dirty |= fold_done(self.view, key, effect, None, self.now)
            return True
        if isinstance(effect, Publish):
            event = self.mint.mint(effect.data, effect.at)
            self.dirty |= fold_done(self.view, key, effect, None, self.now)
            if self.bus_up:
                self._event(event)
            return True
        try:
            code = self.refuse(effect)
            if code:
                raise Rejected(code)  # noqa: TRY301 - the same path as a refusal of the server
            result = self.write(effect)
        except Rejected as err:
            refusal = Refusal(effect, err.code, str(err))
            self.dirty |= fold_refusal(self.view, key, refusal, self.now)
            return False
        self.dirty |= fold_done(self.view, key, effect, copy.deepcopy(result), self.now)
        return True

    def pass_time(self, seconds: float) -> "Sim":
        """Let time go by, stopping at each moment somebody wants to look again."""
        end = self.now + seconds
        self.settle()
        while True:
            at = min((w for w in self.wake.values() if w <= end), default=None)
            if at is None:
                break
            self.now = max(self.now, at)
            self.settle()
        self.now = end
        return self.settle()

    # --- the API server --------------------------------------------------------------------------------------

    def write(self, effect: Write) -> Object | None:
        match effect:
            case Apply(resource, body) | Create(resource, body):
                return self._put(resource, body, isinstance(effect, Create), getattr(effect, "owner", ""))
            case Patch(resource, namespace, name, body, subresource):
                return self._patch((resource.plural, namespace, name), body, subresource)
            case Delete(resource, namespace, name, uid):
                found = self.objects.get((resource.plural, namespace, name))
                if found and found["metadata"]["uid"] == uid:
                    self.delete((resource.plural, namespace, name))
                return None

    def _put(self, resource: Resource, body: Object, create: bool, owner: str) -> Object:
        meta = body["metadata"]
        address = (resource.plural, meta.get("namespace", ""), meta["name"])
        old = self.objects.get(address)
        if old is not None and create:
            raise Rejected("AlreadyExists")
        if old is not None and owner:
            holders = [o["uid"] for o in old["metadata"].get("ownerReferences", []) if o.get("controller")]
            if holders and holders != [owner]:
                raise Rejected("Taken", f"{resource.kind} {meta['name']} exists and belongs to somebody else")
        merged = copy.deepcopy(body)
        if old is not None:
            for name in ("uid", "creationTimestamp", "generation"):
                merged["metadata"][name] = old["metadata"][name]
            merged["status"] = old.get("status", {})
            if old.get("spec") != merged.get("spec"):
                merged["metadata"]["generation"] += 1
        return self.store(address, merged)

    def _patch(self, address: Address, body: Object, subresource: str | None) -> Object:
        found = self.objects.get(address)
        if found is None:
            raise Rejected("NotFound")
        version = body.get("metadata", {}).get("resourceVersion")
        if version is not None and version != found["metadata"]["resourceVersion"]:
            raise Rejected("Conflict")
        found = copy.deepcopy(found)
        if subresource == "status":
            found["status"] = {**found.get("status", {}), **copy.deepcopy(body["status"])}
        else:
            before = copy.deepcopy(found.get("spec"))
            _merge(found, copy.deepcopy(body))
            if found.get("spec") != before:
                found["metadata"]["generation"] += 1
        return self.store(address, found)

    def store(self, address: Address, obj: Object) -> Object:
        meta = obj["metadata"]
        action = "MODIFIED" if address in self.objects else "ADDED"
        meta.setdefault("uid", f"uid-{next(self._numbers)}")
        meta.setdefault("creationTimestamp", write_time(self.now))
        meta.setdefault("generation", 1)
        meta["resourceVersion"] = str(next(self._numbers) + 1000)
        self.objects[address] = obj
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            self._vanish(address)
            return obj
        self._delta(address[0], action, obj)
        if self.controllers:
            self._control(address, obj)
        return obj

    def _delta(self, plural: str, action: Any, obj: Object) -> None:
        delta = KubeDelta(plural=plural, action=action, object=copy.deepcopy({**obj, "kind": _kind(plural, obj)}))
        self.dirty |= fold_delta(self.view, delta, self.now)

    def delete(self, address: Address) -> None:
        found = self.objects.get(address)
        if found is None:
            return
        if found["metadata"].get("finalizers"):
            if not found["metadata"].get("deletionTimestamp"):
                found = copy.deepcopy(found)
                found["metadata"]["deletionTimestamp"] = write_time(self.now)
                self.store(address, found)
            return
        self._vanish(address)

    def _vanish(self, address: Address) -> None:
        gone = self.objects.pop(address)
        self._delta(address[0], "DELETED", gone)
        for other in [a for a, o in self.objects.items() if _owned(o, gone["metadata"]["uid"])]:
            self.delete(other)

    # --- controllers and kubelet -----------------------------------------------------------------------------

    def _control(self, address: Address, obj: Object) -> None:
        if address[0] == "deployments" and not obj["metadata"].get("deletionTimestamp"):
            self._deployment(address, obj)
        elif address[0] == "jobs" and not obj.get("status"):
            self._pod(address, obj, "0")

    def _deployment(self, address: Address, obj: Object) -> None:
        wanted = obj["spec"]["replicas"]
        mine = sorted(a for a, o in self.objects.items() if a[0] == "pods" and _owned(o, obj["metadata"]["uid"]))
        for extra in mine[wanted:]:
            self.delete(extra)
        for number in range(len(mine), wanted):
            self._pod(address, obj, str(number))
        self.report(address)

    def report(self, address: Address) -> None:
        """Deployment status from its pods."""
        obj = self.objects[address]
        pods = [o for a, o in self.objects.items() if a[0] == "pods" and _owned(o, obj["metadata"]["uid"])]
        ready = sum(1 for pod in pods if _ready(pod))
        status = {"replicas": len(pods), "updatedReplicas": len(pods), "readyReplicas": ready}
        known = obj.get("status", {})
        available = "True" if ready or not obj["spec"]["replicas"] else "False"
        before = next(iter(known.get("conditions", [])), {})
        same = before.get("status") == available
        since = before.get("lastTransitionTime") if same else write_time(self.now)
        status["conditions"] = [{"type": "Available", "status": available, "lastTransitionTime": since}]
        if known != status:
            self.store(address, {**copy.deepcopy(obj), "status": status})

    def _pod(self, address: Address, owner: Object, suffix: str) -> None:
        template = copy.deepcopy(owner["spec"]["template"])
        name = f"{address[2]}-{suffix}-{next(self._numbers)}"
        meta = {
            **template["metadata"],
            "name": name,
            "namespace": address[1],
            "ownerReferences": [{"uid": owner["metadata"]["uid"], "controller": True, "kind": owner["kind"]}],
        }
        self.store(
            ("pods", address[1], name), {"kind": "Pod", "metadata": meta, "spec": template["spec"], "status": {}}
        )

    def pods(self, bench: bool = False) -> list[Address]:
        return sorted(
            a for a, o in self.objects.items() if a[0] == "pods" and (BENCH_KEY in o["metadata"]["labels"]) == bench
        )

    def run_pod(self, address: Address, node: str = "n1") -> None:
        """Bind and start a pod, ready at once."""
        pod = copy.deepcopy(self.objects[address])
        pod["spec"]["nodeName"] = node
        engine = {"name": "engine", "started": True, "ready": True, "state": {"running": {}}}
        bench = BENCH_KEY in pod["metadata"]["labels"]
        pod["status"] = {
            "phase": "Running",
            "podIP": f"10.0.0.{next(self._numbers) % 250}",
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
            "containerStatuses": [{**engine, "name": "bench"}] if bench else [engine],
            **({"initContainerStatuses": [engine]} if bench else {}),
        }
        self.store(address, pod)
        self._after(pod)

    def set_pod(self, address: Address, **status: Any) -> None:
        pod = copy.deepcopy(self.objects[address])
        pod["status"] = {**pod.get("status", {}), **status}
        self.store(address, pod)
        self._after(pod)

    def _after(self, pod: Object) -> None:
        owner = pod["metadata"]["ownerReferences"][0]["uid"]
        for address, obj in list(self.objects.items()):
            if address[0] == "deployments" and obj["metadata"]["uid"] == owner:
                self.report(address)

    def finish_job(self, name: str = "", failed: str = "") -> None:
        """End a Job, well or badly."""
        address = next(a for a in sorted(self.objects) if a[0] == "jobs" and a[2].startswith(name or "bench-"))
        job = copy.deepcopy(self.objects[address])
        kind = "Failed" if failed else "Complete"
        condition = {"type": kind, "status": "True", "reason": failed or "Done", "message": failed}
        job["status"] = {"conditions": [condition], "completionTime": write_time(self.now)}
        if failed:
            del job["status"]["completionTime"]
        self.store(address, job)

    # --- conveniences ----------------------------------------------------------------------------------------

    def node(self, name: str = "n1", *devices: Device, cpu: str = "Test CPU", virtual: bool = False) -> None:
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        self.store(("nodes", "", name), {"kind": "Node", "metadata": meta, "spec": {}})
        hardware = NodeHardware(
            node=name, devices=devices, cpu=Cpu(model=cpu, threads=2, memory_mib=16000), virtual=virtual
        )
        self.tell(hardware)

    def apply(
        self, name: str = "m", kind: str = "ModelDeployment", namespace: str = "default", **spec: Any
    ) -> ModelKey:
        """Create or change an object of ours; keyword arguments go over the usual spec."""
        address = (KINDS[kind], namespace, name)
        base = dict(SPEC) if kind == "ModelDeployment" else {"backend": "llamacpp", "source": SPEC["model"]}
        if kind == "Model":
            base["gpu"] = SPEC["gpu"]
        old = self.objects.get(address)
        meta = copy.deepcopy(old["metadata"]) if old else {"name": name, "namespace": namespace}
        body = {"kind": kind, "metadata": meta, "spec": {**base, **spec}, "status": (old or {}).get("status", {})}
        if old and old["spec"] != body["spec"]:
            meta["generation"] += 1
        self.store(address, body)
        return ModelKey(kind, namespace, name)

    def model(self, name: str = "m", kind: str = "ModelDeployment", namespace: str = "default") -> Object:
        return self.objects[(KINDS[kind], namespace, name)]

    def status(self, name: str = "m", kind: str = "ModelDeployment", namespace: str = "default") -> Any:
        return self.model(name, kind, namespace).get("status", {})

    def condition(self, type_: str, name: str = "m", kind: str = "ModelDeployment") -> Any:
        return next(c for c in self.status(name, kind)["conditions"] if c["type"] == type_)

    def endpoint(self, name: str = "m", namespace: str = "default") -> ModelEndpoint | None:
        event = self.bus.get(f"models.{namespace}.{name}.endpoint")
        return event.data if event else None

    def phase_event(self, name: str = "m") -> ModelPhase | None:
        event = self.bus.get(f"models.default.{name}.phase")
        return event.data if event else None

    def result(self, tps: float = 50.0, name: str = "", **fields: Any) -> BenchCompleted:
        """What the bench pod of a Job would say."""
        address = next(a for a in sorted(self.objects) if a[0] == "jobs" and a[2].startswith(name or "bench-"))
        container = self.objects[address]["spec"]["template"]["spec"]["containers"][0]
        env = {e["name"]: e.get("value", "") for e in container["env"]}
        return BenchCompleted(
            key=env["FLEXINFER_KEY"], namespace=env["FLEXINFER_MODEL_NAMESPACE"], model=env["FLEXINFER_MODEL_NAME"],
            workload=env["FLEXINFER_WORKLOAD"], source=env["FLEXINFER_SOURCE"], backend=env["FLEXINFER_BACKEND"],
            device_class=env["FLEXINFER_DEVICE_CLASS"], driver_major=env.get("FLEXINFER_DRIVER_MAJOR", ""),
            tokens_per_second=tps, iterations=5, duration_seconds=10.0, node="n1",
            **fields,
        )  # fmt: skip

    def measure(self, tps: float = 50.0, name: str = "") -> None:
        """Run the bench pod, tell its result, finish its Job."""
        self.settle()
        for address in self.pods(bench=True):
            self.run_pod(address)
        self.settle()
        self.tell(self.result(tps, name))
        self.finish_job(name)
        self.settle()

    def run(self, node: str = "n1") -> "Sim":
        """From wherever it is to Running on ``node``: measure what is to be measured, start what is to be started."""
        self.settle()
        while any(a[0] == "jobs" and not o.get("status") for a, o in self.objects.items()):
            pending = next(a[2] for a, o in sorted(self.objects.items()) if a[0] == "jobs" and not o.get("status"))
            self.measure(name=pending)
        for address in self.pods():
            if not self.objects[address]["status"]:
                self.run_pod(address, node)
        return self.settle()

    def writes(self) -> list[Write]:
        return [effect for effect in self.log if isinstance(effect, Write)]

    def notes(self) -> list[tuple[str, str]]:
        return [(e.reason, e.message) for e in self.log if isinstance(e, Note)]

    def load(self, outstanding: int = 0, name: str = "m") -> None:
        self.tell(ModelLoad(namespace="default", model=name, proxy="p1", outstanding=outstanding))


def _kind(plural: str, obj: Object) -> str:
    return str(obj.get("kind", plural))


def _owned(obj: Object, uid: str) -> bool:
    return any(owner.get("uid") == uid for owner in obj["metadata"].get("ownerReferences", []))


def _ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _merge(target: Object, patch: Object) -> None:
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict) and isinstance(target.get(name), dict):
            _merge(target[name], value)
        elif name != "resourceVersion":
            target[name] = value


def gpu(product: str = "NVIDIA GeForce RTX 4090", index: int = 0, **fields: Any) -> Device:
    """A device as an agent reports it."""
    known = {"vendor": "NVIDIA", "arch": "sm_89", "memory_mib": 24564, "driver": "575.57.08", "int4": True}
    return Device(index=index, uuid=f"{product}-{index}", product=product, **{**known, **fields})


@pytest.fixture
def sim() -> Sim:
    return Sim()


@pytest.fixture
def one_node(sim: Sim) -> Sim:
    sim.node()
    return sim


@pytest.fixture(name="gpu")
def gpu_fixture() -> Callable[..., Device]:
    return gpu


@pytest.fixture
def new_sim() -> type[Sim]:
    return Sim


__all__ = ["RECORDS", "SPEC", "Sim", "gpu"]
