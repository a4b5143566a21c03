"""The real agent's loops over declared hardware: one per virtual node, in ``flexinfer up`` and in simulated time."""

import asyncio
from dataclasses import dataclass, field

from flexinfer import __version__
from flexinfer.adapters.kube.recorder import EventRecorder
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.kubernetes import Object
from flexinfer.contracts.labels import DEFAULT_PREFIX, POD_VRAM_ESTIMATE
from flexinfer.ports import Clock, KubeApi, KubeFact, Publisher, Relisted
from flexinfer.runtime.agent.board import Board, Station
from flexinfer.runtime.agent.engines import EngineWatch, Read
from flexinfer.runtime.agent.pods import PodWatch
from flexinfer.runtime.agent.probing import Prober
from flexinfer.runtime.agent.projecting import Projector
from flexinfer.runtime.agent.telling import Teller
from flexinfer.runtime.tasks import Supervisor
from flexinfer.testing.virtual import signals
from flexinfer.testing.virtual.declared import VirtualFleet, VirtualNode
from flexinfer.testing.virtual.source import Muted, Scene, sources_of

AFTER_EDGE = 0.01
PROBE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an agent talks to. ``began``: start of the fleet on ``clock``, Unix seconds. ``boot``: its bootid. Without
    ``api`` nothing is written to a Node object."""

    bus: Publisher
    clock: Clock
    read: Read
    began: float
    boot: str
    api: KubeApi | None = None


@dataclass(slots=True)
class _Claims:
    """VRAM that the pods of a node claim, from their annotations."""

    pods: dict[str, int] = field(default_factory=dict)

    def take(self, pod: Object, *, gone: bool) -> None:
        uid = pod["metadata"]["uid"]
        self.pods.pop(uid, None)
        finished = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        estimate = (pod["metadata"].get("annotations") or {}).get(POD_VRAM_ESTIMATE, "")
        if not gone and not finished and estimate.isdigit():
            self.pods[uid] = int(estimate)


class VirtualAgent:
    """One node: board, probe of the declaration, events, projection, engines."""

    def __init__(self, node: VirtualNode, fleet: VirtualFleet, around: Surroundings) -> None:
        self.node = node
        self._claims = _Claims()
        clock, api = around.clock, around.api
        station = Station(node.name, DEFAULT_PREFIX, __version__, PROBE_SECONDS, fleet.telemetry_interval, virtual=True)
        self._scene = Scene(
            node, fleet.seed, lambda: clock.now() - around.began, lambda: sum(self._claims.pods.values())
        )
        board = Board(station, signals.cpu(node))
        self._scene.engines = lambda: board.engines
        mint = EventMint.start("agent", node.name, around.boot, clock.now)
        self._teller = Teller(board, mint, Muted(around.bus, self._scene), clock)
        self._prober = Prober(board, sources_of(self._scene), clock)
        self._projector = Projector(board, api, clock) if api else None
        self._recorder = EventRecorder(api, "agent", clock, node.name) if api else None
        self._pods = PodWatch(board, self._recorder.emit if self._recorder else None, self._teller.tell)
        self._engines = EngineWatch(board, around.read, clock, self._pods.engines)

    def start(self, tasks: Supervisor) -> None:
        """All loops until ``tasks`` is closed."""
        self._prober.start(tasks)
        if self._recorder and self._projector:
            tasks.forever("kube events", self._recorder.run)
            tasks.forever("projection", self._projector.run)
        tasks.forever("hardware", self._teller.hardware)
        tasks.forever("telemetry", lambda: self._teller.telemetry(self._scene.busy, self._scene.memory))
        tasks.once("state", self._states())
        tasks.forever("pod checks", self._pods.run)
        tasks.forever("engines", self._engines.run)

    def on_node(self, fact: KubeFact) -> None:
        """Facts about Node objects."""
        if self._projector:
            self._projector.take(fact)

    def on_pods(self, fact: KubeFact) -> None:
        """Facts about pods, of which only those bound here matter."""
        if isinstance(fact, Relisted):
            mine = tuple(pod for pod in fact.objects if self._mine(pod))
            self._claims.pods.clear()
            for pod in mine:
                self._claims.take(pod, gone=False)
            self._pods.take(Relisted(fact.plural, mine))
        elif self._mine(fact.object):
            self._claims.take(fact.object, gone=fact.action == "DELETED")
            self._pods.take(fact)

    def _mine(self, pod: Object) -> bool:
        return bool(pod.get("spec", {}).get("nodeName") == self.node.name)

    async def _states(self) -> None:
        for edge in (0.0, *signals.edges(self.node)):
            # A moment later, because sums of seconds fall short of a round number as often as not.
            await asyncio.sleep(max(0.0, edge - self._scene.elapsed()) + AFTER_EDGE)
            state = signals.state(self.node, self._scene.elapsed())
            await self._teller.status(state, "declared fault: a shutdown notice" if state == "draining" else "")
