"""Who decides where a pod goes: the real extender, and the policies it is compared with.

The extender decides through ``Desk`` over a view folded from events, as the server does: it filters, prioritizes,
reserves, sees its pods bound by the Pod watch and their use LOAD_SECONDS later in telemetry. Ties in points go by
chance, as in kube-scheduler. The other policies see the world itself, at that moment, which is more than any scheduler
can. CLAIRVOYANT ones also know true speeds nobody measured and what each pod will ask for.
"""

import heapq
import math
import random
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray
from placement_cases import CARDS, MIB_PER_MB, Case, Pod, World

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import (
    BenchCompleted,
    Device,
    DeviceTelemetry,
    EngineTelemetry,
    NodeHardware,
    NodeTelemetry,
)
from flexinfer.contracts.extender import PodObject
from flexinfer.contracts.kubernetes import NODES, PODS, KubeDelta, Object
from flexinfer.core.fleet.fold import fold
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.hardware.device_class import device_class
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.roster import Asked
from flexinfer.core.placement.scoring import Weights

EPOCH = 1_800_000_000.0
LOAD_SECONDS = 20.0  # from binding to the first telemetry that shows the engine
TELEMETRY_SECONDS = 2.0  # from the end of a pod to the first telemetry without it
KV_WHEN_FULL = 0.5  # of the KV cache in use on a device that is asked for all it has
POINTS = tuple(range(10, -1, -1))
RESOURCES = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "INTEL": "gpu.intel.com/xe"}

Vector = NDArray[np.float64]
Nodes = NDArray[np.intp]


class Policy(Protocol):
    """``choose`` gives the node of a pod, None if it is refused; the others tell what happened."""

    def choose(self, world: World, pod: Pod) -> int | None: ...

    def bound(self, world: World, pod: Pod, node: int) -> None: ...

    def ended(self, world: World, pod: Pod, node: int) -> None: ...


def run(case: Case, policy: Policy) -> World:
    """The world at the end of the case."""
    world = World(case)
    leaving: list[tuple[float, int]] = []
    for pod in case.pods:
        while leaving and leaving[0][0] <= pod.at:
            _leave(world, policy, *heapq.heappop(leaving))
        world.advance(pod.at)
        node = policy.choose(world, pod)
        if node is None or not world.place(pod, node):
            world.refused += 1
            continue
        policy.bound(world, pod, node)
        heapq.heappush(leaving, (pod.until, pod.number))
    while leaving and leaving[0][0] <= case.end:
        _leave(world, policy, *heapq.heappop(leaving))
    world.advance(case.end)
    return world


def _leave(world: World, policy: Policy, at: float, number: int) -> None:
    world.advance(at)
    pod = world.case.pods[number]
    node = world.remove(pod)
    if node is not None:
        policy.ended(world, pod, node)


class Extender:
    """``Desk`` and what it learns from. ``by_sum``: the node with the best sum gets the pod, whatever the points."""

    def __init__(self, case: Case, weights: Weights | None = None, *, by_sum: bool = False, seed: int = 0) -> None:
        self._case = case
        self._by_sum = by_sum
        self._dice = random.Random(seed)
        self._now = EPOCH
        self._view = FleetView()
        self._desk = Desk(self._view, weights or Weights())
        self._mints = [EventMint.start("agent", node.name, "boot", lambda: self._now) for node in case.nodes]
        self._names = [node.name for node in case.nodes]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._running: list[dict[int, tuple[int, float]]] = [{} for _ in case.nodes]  # pod -> device, bound at
        self._due: list[tuple[float, int]] = []
        for number in range(len(case.nodes)):
            self._introduce(number)
        for model in case.models:
            for kind in model.measured:
                self._measured(model.name, kind, model.speeds[kind])

    def choose(self, world: World, pod: Pod) -> int | None:
        self._catch_up(world)
        asking = msgspec.convert(self._body(pod), PodObject)
        passed = self._desk.filter(asking, Asked(self._names), self._now).passed
        if len(passed) < 2:
            return self._numbers[passed[0]] if passed else None
        ranking = self._desk.prioritize(asking, Asked(passed), self._now).ranking
        if self._by_sum:
            return self._numbers[passed[ranking.order(1)[0]]]
        points = ranking.translated(POINTS)
        best = max(points)
        return self._numbers[self._dice.choice([n for n, at in zip(passed, points, strict=True) if at == best])]

    def bound(self, world: World, pod: Pod, node: int) -> None:
        self._running[node][pod.number] = (world.placed[pod.number], world.now)
        self._kube("MODIFIED", self._body(pod, self._names[node]))
        heapq.heappush(self._due, (world.now + LOAD_SECONDS, node))

    def ended(self, world: World, pod: Pod, node: int) -> None:
        self._catch_up(world)
        del self._running[node][pod.number]
        self._kube("DELETED", self._body(pod, self._names[node]))
        heapq.heappush(self._due, (world.now + TELEMETRY_SECONDS, node))

    def _catch_up(self, world: World) -> None:
        while self._due and self._due[0][0] <= world.now:
            at, node = heapq.heappop(self._due)
            self._now = EPOCH + at
            self._tell(world, node, at)
        self._now = EPOCH + world.now

    def _tell(self, world: World, number: int, at: float) -> None:
        """Telemetry of one node: pods count once they are loaded."""
        card = CARDS[self._case.nodes[number].card]
        first = int(world.starts[number])
        used, shares = [0.0] * self._case.nodes[number].count, [0.0] * self._case.nodes[number].count
        shown = {pod: one for pod, (one, bound) in self._running[number].items() if bound + LOAD_SECONDS <= at}
        for pod, one in shown.items():
            asking = self._case.pods[pod]
            used[one - first] += self._case.models[asking.model].memory_mib
            shares[one - first] += world.asks(asking, self._case.nodes[number].card)[1]
        devices = tuple(
            DeviceTelemetry(
                index=index, uuid=f"GPU-{self._names[number]}-{index}", util_percent=min(100.0, 100 * shares[index]),
                memory_used_mib=math.ceil(used[index]),
                memory_free_mib=max(math.floor(card.memory_mib - used[index]), 0),
            )
            for index in range(len(used))
        )  # fmt: skip
        engines = tuple(EngineTelemetry(namespace="d", pod=f"pod-{pod}") for pod in shown)
        kv = KV_WHEN_FULL * min(1.0, max(shares))
        self._fold(number, NodeTelemetry(
            node=self._names[number], interval_seconds=1e6, devices=devices, engines=engines, kv_cache_ratio=kv,
        ))  # fmt: skip

    def _introduce(self, number: int) -> None:
        node = self._case.nodes[number]
        devices = tuple(_device(node.card, f"GPU-{node.name}-{index}", index) for index in range(node.count))
        self._fold(number, NodeHardware(node=node.name, devices=devices))
        annotations = {} if node.price is None else {f"{self._view.prefix}cost": f"{node.price:.4f}"}
        meta = {"name": node.name, "annotations": annotations}
        fold(self._view, KubeDelta(plural=NODES.plural, action="ADDED", object={"metadata": meta}), self._now)
        self._tell(World(self._case), number, 0.0)

    def _measured(self, model: str, kind: int, speed: float) -> None:
        name = device_class(_device(kind, "x", 0), 1)
        result = BenchCompleted(
            key=f"{model}-{kind}", namespace="d", model=model, workload=model, source="s", backend="vllm",
            device_class=name, tokens_per_second=speed, iterations=5, duration_seconds=30.0,
        )  # fmt: skip
        fold(self._view, EventMint.start("bench", f"{model}-{kind}", "boot", lambda: self._now).mint(result), EPOCH)

    def _body(self, pod: Pod, node: str = "") -> Object:
        model = self._case.models[pod.model]
        limits = {"resources": {"limits": {RESOURCES[pod.vendor]: "1"}}} if pod.vendor else {}
        return {
            "metadata": {
                "name": f"pod-{pod.number}", "namespace": "d", "uid": f"uid-{pod.number}",
                "annotations": {
                    "flexinfer.ai/benchmark-key": model.name,
                    "flexinfer.ai/gpu.vram-estimate-mb": str(math.ceil(model.memory_mib / MIB_PER_MB)),
                },
            },
            "spec": {"containers": [{"name": "c", **limits}], **({"nodeName": node} if node else {})},
        }  # fmt: skip

    def _kube(self, action: Any, body: Object) -> None:
        fold(self._view, KubeDelta(plural=PODS.plural, action=action, object=body), self._now)

    def _fold(self, number: int, data: NodeHardware | NodeTelemetry) -> None:
        fold(self._view, self._mints[number].mint(data), self._now)


def _device(kind: int, uuid: str, index: int) -> Device:
    card = CARDS[kind]
    return Device(
        index=index, uuid=uuid, vendor=card.vendor, product=card.product, arch=card.arch,  # type: ignore[arg-type]
        memory_mib=card.memory_mib,
    )  # fmt: skip


Rule = Callable[[World, Pod, Nodes], Vector | tuple[Vector, ...]]


class Greedy:
    """The fitting node with the most by ``rule``; further entries of a tuple break ties, then the order of nodes."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def choose(self, world: World, pod: Pod) -> int | None:
        fitting = world.fitting(pod)
        if not len(fitting):
            return None
        keys = self._rule(world, pod, fitting)
        keys = keys if isinstance(keys, tuple) else (keys,)
        return int(fitting[np.lexsort(tuple(-key for key in reversed(keys)))[0]])

    def bound(self, world: World, pod: Pod, node: int) -> None:
        """Nothing to remember."""

    def ended(self, world: World, pod: Pod, node: int) -> None:
        """Nothing to remember."""


class RoundRobin(Greedy):
    """The next node that fits."""

    def __init__(self) -> None:
        super().__init__(self._turn)
        self._last = -1

    def _turn(self, world: World, _pod: Pod, nodes: Nodes) -> Vector:
        return -((nodes - self._last - 1) % len(world.case.nodes)).astype(float)

    def bound(self, world: World, pod: Pod, node: int) -> None:  # noqa: ARG002 - the signature of Policy
        self._last = node


def believed(case: Case, model: int) -> Vector:
    """Speed by card as a scheduler may know it: measured, else half of the best measured; all alike if none is."""
    found = case.models[model]
    best = max((found.speeds[kind] for kind in found.measured), default=2.0)
    return np.array([found.speeds[kind] if kind in found.measured else best / 2 for kind in range(len(CARDS))])


def by_bandwidth(case: Case, model: int) -> Vector:
    """The same, but what is not measured is taken to be as fast as its memory is, by what was measured elsewhere."""
    found = case.models[model]
    rates = [found.speeds[kind] / CARDS[kind].bandwidth for kind in found.measured]
    rate = float(np.median(rates)) if rates else 1.0
    return np.array(
        [found.speeds[kind] if kind in found.measured else rate * card.bandwidth for kind, card in enumerate(CARDS)]
    )


def _free(world: World, nodes: Nodes) -> Vector:
    return np.asarray(world.free[world.pick[nodes]])


def _busy(world: World, nodes: Nodes) -> Vector:
    return np.asarray(np.minimum(world.shares[world.pick[nodes]], 1.0))


def _left(world: World, nodes: Nodes) -> Vector:
    return np.maximum(1 - _busy(world, nodes), 1 / (world.pods[world.pick[nodes]] + 1))


def tightest(world: World, _pod: Pod, nodes: Nodes) -> Vector:
    return -_free(world, nodes)


def least_loaded(world: World, _pod: Pod, nodes: Nodes) -> tuple[Vector, ...]:
    return -_busy(world, nodes), _free(world, nodes)


def fastest(world: World, pod: Pod, nodes: Nodes) -> tuple[Vector, ...]:
    return believed(world.case, pod.model)[world.kind[nodes]], -_busy(world, nodes), _free(world, nodes)


def smallest_then_fastest(world: World, pod: Pod, nodes: Nodes) -> tuple[Vector, ...]:
    size = np.array([float(card.memory_mib) for card in CARDS])[world.kind[nodes]]
    return (-size, *fastest(world, pod, nodes))


def speed_left(world: World, pod: Pod, nodes: Nodes) -> tuple[Vector, ...]:
    """Measured speed times the share of the device that is left, at least an equal part of it."""
    return believed(world.case, pod.model)[world.kind[nodes]] * _left(world, nodes), _free(world, nodes)


def speed_left_by_bandwidth(world: World, pod: Pod, nodes: Nodes) -> tuple[Vector, ...]:
    """The same with the unmeasured estimated by bandwidth."""
    return by_bandwidth(world.case, pod.model)[world.kind[nodes]] * _left(world, nodes), _free(world, nodes)


def speed_idle(world: World, pod: Pod, nodes: Nodes) -> tuple[Vector, ...]:
    """Speed times what is idle of the device, and nothing for what the others would give up."""
    idle = 1 - _busy(world, nodes)
    return by_bandwidth(world.case, pod.model)[world.kind[nodes]] * idle, _free(world, nodes)


def idle_then_fastest(world: World, pod: Pod, nodes: Nodes) -> tuple[Vector, ...]:
    """The fastest among devices less than half busy, else the least busy."""
    busy = _busy(world, nodes)
    return -np.maximum(busy - 0.5, 0.0), believed(world.case, pod.model)[world.kind[nodes]], _free(world, nodes)


def gains(world: World, pod: Pod, nodes: Nodes) -> Vector:
    """Tokens/s the fleet would serve more."""
    devices = world.pick[nodes]
    speed = np.array(world.case.models[pod.model].speeds)[world.kind[nodes]]
    demand = np.minimum(pod.demand, speed) if world.case.setting.whole else np.full(len(nodes), pod.demand)
    had, shares = world.demand[devices], world.shares[devices]
    more: Vector = (had + demand) / np.maximum(1.0, shares + demand / speed) - had / np.maximum(1.0, shares)
    return more


def most_gain(world: World, pod: Pod, nodes: Nodes) -> tuple[Vector, ...]:
    return gains(world, pod, nodes).round(6), _free(world, nodes)


def gain_less_regret(world: World, pod: Pod, nodes: Nodes) -> tuple[Vector, ...]:
    """What is gained, less what the mean other model would gain there, by how full the fleet is."""
    full = float(np.mean(world.pods > 0)) if world.case.setting.whole else float(np.minimum(world.shares, 1).mean())
    others = np.array([model.speeds for model in world.case.models]).mean(axis=0)[world.kind[nodes]]
    devices = world.pick[nodes]
    left = np.maximum(1 - world.shares[devices], 0.0)
    taken = np.minimum(np.array([world.asks(pod, kind)[1] for kind in range(len(CARDS))])[world.kind[nodes]], left)
    return (gains(world, pod, nodes) - full * others * taken).round(6), -_free(world, nodes)


BLIND: dict[str, Rule] = {"VRAM fit": tightest, "least loaded": least_loaded}  # and round robin
INFORMED: dict[str, Rule] = {
    "fastest": fastest,
    "smallest, then fastest": smallest_then_fastest,
    "speed left": speed_left,
    "speed left by bandwidth": speed_left_by_bandwidth,
    "speed of what is idle": speed_idle,
    "idle, then fastest": idle_then_fastest,
}
CLAIRVOYANT: dict[str, Rule] = {"most gain": most_gain, "gain less regret": gain_less_regret}


def policies(case: Case) -> dict[str, Policy]:
    """Fresh ones."""
    found: dict[str, Policy] = {"extender": Extender(case), "round robin": RoundRobin()}
    return found | {name: Greedy(rule) for name, rule in {**BLIND, **INFORMED, **CLAIRVOYANT}.items()}
