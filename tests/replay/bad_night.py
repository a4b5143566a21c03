"""A night in which much goes wrong, as the extender and as the manager saw it; times are seconds after START."""

from collections.abc import Callable
from typing import Any

import msgspec

from flexinfer.contracts.envelope import Event, EventMint
from flexinfer.contracts.events import (
    BenchCompleted,
    Device,
    DeviceTelemetry,
    NodeHardware,
    NodeTelemetry,
    PlacementDecided,
)
from flexinfer.contracts.kubernetes import KubeDelta, Object
from flexinfer.core.effects import Apply, Create, Effect, Patch, Refusal, Write
from flexinfer.core.fleet.fold import STATE_TYPES
from flexinfer.core.hardware.device_class import device_class
from flexinfer.core.lifecycle.description import ModelKey
from flexinfer.core.lifecycle.plan import NEEDED, plan
from flexinfer.ports import Relisted, Snapshot
from flexinfer.runtime.effect_lines import key_text
from flexinfer.runtime.interpreter import Outcome
from flexinfer.runtime.journal import Fact, Header, Tick, Webhook
from flexinfer.runtime.lifecycle import evolve
from flexinfer.testing.replay_manager import ManagerReplay

START = 1_800_000_000.0
WORKLOAD = "llama3-8b-0123456789ab"
MODEL = ModelKey("ModelDeployment", "default", "llama3")

Line = tuple[float, Fact]


class Fleet:
    """Agents that speak for two nodes, each through a boot of its own."""

    def __init__(self) -> None:
        self.now = START
        self._mints: dict[tuple[str, str], EventMint] = {}

    def says(self, node: str, data: Any, boot: str = "boot-1", at: float | None = None) -> Event:
        mint = self._mints.setdefault((node, boot), EventMint.start("agent", node, boot, lambda: self.now))
        return mint.mint(data, None if at is None else START + at)

    def hardware(self, node: str, memory: int, boot: str = "boot-1") -> Event:
        return self.says(node, NodeHardware(node=node, devices=(device(node, memory),)), boot)

    def live(self, node: str, free: int, util: float = 0.0, boot: str = "boot-1", at: float | None = None) -> Event:
        figures = DeviceTelemetry(index=0, uuid=f"GPU-{node}", util_percent=util, memory_free_mib=free)
        return self.says(node, NodeTelemetry(node=node, interval_seconds=2.0, devices=(figures,)), boot, at)


def device(node: str, memory: int) -> Device:
    return Device(
        index=0, uuid=f"GPU-{node}", vendor="NVIDIA", product="NVIDIA L4", arch="sm_89", memory_mib=memory, int4=True
    )


def measured(fleet: Fleet, speed: float) -> Event:
    name = device_class(device("a", 23034), 1)
    return fleet.says("bench", BenchCompleted(
        key=f"{WORKLOAD}-l4", namespace="default", model="llama3", workload=WORKLOAD, source="hf://llama3",
        backend="vllm", device_class=name, tokens_per_second=speed, iterations=5, duration_seconds=30.0,
    ))  # fmt: skip


def pod(name: str, vram: int, node: str | None = None) -> Object:
    annotations = {"flexinfer.ai/gpu.vram-estimate-mb": str(vram), "flexinfer.ai/benchmark-key": WORKLOAD}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations},
        "spec": {"containers": [{"name": "c"}]} | ({"nodeName": node} if node else {}),
    }


def scheduler() -> list[Line]:
    """Two nodes: one reboots into a smaller card and its old boot speaks late, one falls silent for ten intervals."""
    fleet, lines = Fleet(), list[Line]()

    def tell(at: float, *facts: Fact) -> None:
        lines.extend((START + at, fact) for fact in facts)

    def ask(at: float, name: str, vram: int) -> None:
        body = msgspec.json.encode({"Pod": pod(name, vram), "NodeNames": ["a", "b"]}).decode()
        tell(at, Webhook(path="filter", body=body), Webhook(path="prioritize", body=body))

    first = (fleet.hardware("a", 23034), fleet.hardware("b", 23034), fleet.live("a", 20000), fleet.live("b", 20000))
    tell(0, Relisted("nodes", ({"metadata": {"name": "a"}}, {"metadata": {"name": "b"}})), Relisted("pods", ()))
    tell(0, Snapshot(STATE_TYPES, (*first, measured(fleet, 60.0)), 1))
    ask(1, "calm", 8000)
    tell(1.2, KubeDelta(plural="pods", action="MODIFIED", object=pod("calm", 8000, "a")))
    fleet.now = START + 2
    older, newer = fleet.live("a", 19000, 5.0), fleet.live("a", 12000, 70.0)
    tell(2, newer, older, newer, older)  # reordered, then all of it twice
    late = fleet.live("a", 22000, 0.0)  # will arrive long after its boot has ended
    ask(3, "busy-a", 8000)
    fleet.now = START + 4
    tell(4, fleet.hardware("a", 15360, "boot-2"), fleet.live("a", 14000, 0.0, "boot-2"))
    tell(4.5, late, fleet.hardware("a", 23034))  # the old boot again: neither its memory nor its card return
    ask(5, "too-big-for-a", 18000)
    fleet.now = START + 6
    tell(6, fleet.live("a", 14000, 0.0, "boot-2"))
    for seconds in range(8, 30, 2):  # b is silent from 0 to 28: more than ten intervals of 2 s
        fleet.now = START + seconds
        tell(seconds, fleet.live("a", 14000, 0.0, "boot-2"))
    ask(29, "after-silence", 6000)
    body = msgspec.json.encode({"Pod": pod("rejected", 90000), "NodeNames": ["a", "b"]}).decode()
    tell(30, Webhook(path="filter", body=body))
    fleet.now = START + 31
    tell(31, fleet.live("b", 20000))
    ask(31.5, "b-is-back", 16000)
    open_attempt = msgspec.json.encode({"Pod": pod("never-ranked", 1000), "NodeNames": ["a", "b"]}).decode()
    tell(32, Webhook(path="filter", body=open_attempt))
    tell(34.5, Tick())
    return lines


class Night:
    """The manager's side: facts are folded as they are told, and effects answered or refused by a server of its own."""

    def __init__(self) -> None:
        self.fleet, self.lines = Fleet(), list[Line]()
        self._view = ManagerReplay({}).view
        self._stored: dict[str, Object] = {}
        self._version = 100

    def tell(self, at: float, *facts: Fact) -> None:
        self.fleet.now = START + at
        for fact in facts:
            self.lines.append((START + at, fact))
            if not isinstance(fact, Tick | Webhook):
                evolve(self._view, fact, START + at)

    def work(self, at: float, refuse: Callable[[Effect], Refusal | None] = lambda _effect: None) -> None:
        """Plan the model once and tell what became of each effect; nothing after a refusal is tried."""
        self.tell(at, Tick(key=key_text(MODEL), bus_up=True))
        self._view.bus_up = True
        for effect in plan(self._view, MODEL, START + at).effects:
            refusal = refuse(effect)
            if refusal is not None:
                self.tell(at, Outcome(MODEL, effect, refusal=refusal))
                return
            if isinstance(effect, Write):
                self.tell(at, Outcome(MODEL, effect, self._store(effect)))

    def _store(self, effect: Write) -> Object | None:
        self._version += 1
        match effect:
            case Apply(resource, body) | Create(resource, body):
                name = body["metadata"]["name"]
                meta = {"uid": f"uid-{resource.plural}-{name}", "generation": 1, **body["metadata"]}
                found = {**body, "metadata": {**meta, "resourceVersion": str(self._version)}}
            case Patch(resource, _, name, body):
                found = _merged(self._stored[f"{resource.plural}/{name}"], body)
                found["metadata"] = {**found["metadata"], "resourceVersion": str(self._version)}
            case _:
                return None
        self._stored[f"{resource.plural}/{name}"] = found
        return found

    def apply(self, at: float, obj: Object) -> None:
        """Somebody else writes a ModelDeployment."""
        self._stored[f"modeldeployments/{obj['metadata']['name']}"] = obj
        self.tell(at, KubeDelta(plural="modeldeployments", action="ADDED", object=obj))


def _merged(old: Object, change: Object) -> Object:
    found = dict(old)
    for name, part in change.items():
        kept = found.get(name)
        found[name] = _merged(kept, part) if isinstance(part, dict) and isinstance(kept, dict) else part
    return found


def quota(effect: Effect) -> Refusal | None:
    """No Job fits the quota."""
    if isinstance(effect, Create) and effect.resource.plural == "jobs":
        return Refusal(effect, "Forbidden", "exceeded quota: compute", 4.0)
    return None


def lost_race(effect: Effect) -> Refusal | None:
    """Somebody else wrote the object first."""
    return Refusal(effect, "Conflict", "the object has been modified") if isinstance(effect, Patch) else None


def manager() -> list[Line]:
    """A model while its node reboots, its writes are refused and its pod is rejected."""
    night = Night()
    fleet = night.fleet
    for plural in sorted(NEEDED - {"nodes"}):
        night.tell(0, Relisted(plural, ()))
    night.tell(0, Relisted("nodes", ({"metadata": {"name": "a", "uid": "uid-a"}},)))
    night.tell(0.5, Snapshot((NodeHardware,), (fleet.hardware("a", 23034),), 1))
    night.apply(1, {
        "apiVersion": "ai.flexinfer/v1alpha1", "kind": "ModelDeployment",
        "metadata": {"name": "llama3", "namespace": "default", "uid": "uid-llama3", "generation": 1,
                     "resourceVersion": "7", "creationTimestamp": "2027-01-15T08:00:01Z"},
        "spec": {"backend": "vllm", "model": "hf://meta/llama3", "replicas": 1,
                 "env": [{"name": "HF_TOKEN", "value": "hf_never_on_a_tape"}]},
    })  # fmt: skip
    night.work(1.1, lost_race)
    night.work(1.4, quota)
    night.work(1.5, quota)  # the same is not tried again yet
    late = fleet.hardware("a", 81920)
    smaller = fleet.hardware("a", 15360, "boot-2")
    night.tell(3, smaller, late, smaller)
    night.work(6, quota)
    night.work(30)
    night.work(31)
    decided = PlacementDecided(
        namespace="default", pod="bench-x", pod_uid="uid-x", outcome="rejected", demand={}, considered=1,
        reasons={"flexinfer: not enough free memory": 1},
    )  # fmt: skip
    rejected = fleet.says("scheduler", decided)
    night.tell(32, rejected, rejected)
    night.work(33)
    night.work(700)  # nothing was measured in time: served all the same
    night.work(701)
    return night.lines


def encode(header: Header) -> bytes:
    """The first line."""
    return msgspec.json.encode(header) + b"\n"
