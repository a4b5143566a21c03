"""A virtual fleet at work: per node the real agent's loops over declared hardware, and a process runner."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flexinfer import __version__
from flexinfer.adapters.inference.fetch import PageReader
from flexinfer.adapters.kube.informer import Informer
from flexinfer.adapters.kube.recorder import EventRecorder
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.kubernetes import NODES, PODS, Object
from flexinfer.contracts.labels import (
    COST_ANNOTATION,
    DEFAULT_PREFIX,
    GPU_RESOURCES,
    POD_VRAM_ESTIMATE,
    VIRTUAL_LABEL,
)
from flexinfer.local.fleet import signals
from flexinfer.local.fleet.declared import VirtualFleet, VirtualNode
from flexinfer.local.fleet.source import Muted, Scene, sources_of
from flexinfer.local.processes import Reaper
from flexinfer.local.runner import LocalImage, ProcessRunner
from flexinfer.ports import Bus, Clock, KubeApi, KubeFact, Relisted
from flexinfer.runtime.agent.board import Board, Station
from flexinfer.runtime.agent.engines import EngineWatch
from flexinfer.runtime.agent.pods import PodWatch
from flexinfer.runtime.agent.probing import Prober
from flexinfer.runtime.agent.projecting import Projector
from flexinfer.runtime.agent.telling import Teller
from flexinfer.runtime.process import boot_id
from flexinfer.runtime.tasks import Supervisor

# Every image an engine manifest may name; on a virtual node each stands for the throttled engine.
ENGINE_IMAGES = (
    "ghcr.io/ggml-org/llama.cpp", "ollama/ollama", "vllm/vllm-openai", "rocm/vllm", "intel/vllm",
    "ghcr.io/huggingface/text-generation-inference", "lmsysorg/sglang", "nvcr.io/nvidia/tensorrt-llm/release",
)  # fmt: skip
STATE_TICK = 1.0


@dataclass(slots=True)
class World:
    """What the virtual nodes share with the rest of the system."""

    api: KubeApi
    bus: Bus
    clock: Clock
    reaper: Reaper
    work: Path
    programs: dict[str, LocalImage]
    pages: PageReader = field(default_factory=PageReader)


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

    def __init__(self, node: VirtualNode, fleet: VirtualFleet, world: World, began: float) -> None:
        self.node = node
        self._world = world
        self._claims = _Claims()
        clock = world.clock
        station = Station(node.name, DEFAULT_PREFIX, __version__, 10.0, fleet.telemetry_interval, virtual=True)
        self._scene = Scene(node, fleet.seed, lambda: clock.now() - began, lambda: sum(self._claims.pods.values()))
        board = Board(station, self._scene.cpu())
        self._scene.engines = lambda: board.engines
        mint = EventMint.start("agent", node.name, boot_id(), clock.now)
        self._teller = Teller(board, mint, Muted(world.bus, self._scene), clock)
        self._prober = Prober(board, sources_of(self._scene), clock)
        self._projector = Projector(board, world.api, clock)
        self._recorder = EventRecorder(world.api, "agent", clock, node.name)
        self._pods = PodWatch(board, self._recorder.emit, self._teller.tell)
        self._engines = EngineWatch(board, world.pages.read, clock, self._pods.engines)

    def start(self, tasks: Supervisor) -> None:
        """All loops until ``tasks`` is closed."""
        self._prober.start(tasks)
        tasks.forever("kube events", self._recorder.run)
        tasks.forever("hardware", self._teller.hardware)
        tasks.forever("telemetry", lambda: self._teller.telemetry(self._scene.busy, self._scene.memory))
        tasks.forever("state", self._states)
        tasks.forever("projection", self._projector.run)
        tasks.forever("pod checks", self._pods.run)
        tasks.forever("engines", self._engines.run)

    def on_node(self, fact: KubeFact) -> None:
        """Facts about Node objects."""
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
        while True:
            state = signals.state(self.node, self._scene.elapsed())
            await self._teller.status(state, "declared fault: a shutdown notice" if state == "draining" else "")
            await asyncio.sleep(STATE_TICK)


def images_of(declaration: Path, began: float, programs: dict[str, LocalImage]) -> dict[str, LocalImage]:
    """The image table of a virtual node: engines are throttled ones, other programs are the real ones."""
    argv = (sys.executable, "-m", "flexinfer.local.fleet.engine", "--virtual-node", str(declaration))
    engine = LocalImage((*argv, "--virtual-since", f"{began:.3f}"))
    return {**programs, **dict.fromkeys(ENGINE_IMAGES, engine)}


def resources_of(node: VirtualNode) -> dict[str, str]:
    """Extended resources and the size of the node, as the Node object tells them."""
    found = {"cpu": str(node.cpu.threads), "memory": f"{node.cpu.memory}Mi"}
    for gpu in node.gpus:
        name = GPU_RESOURCES[gpu.vendor]
        found[name] = str(int(found.get(name, "0")) + gpu.count)
    return found


class VirtualNodes:
    """Starts and stops the whole declared fleet."""

    def __init__(self, fleet: VirtualFleet, world: World) -> None:
        self._world = world
        self._began = world.clock.now()
        self._fleet = fleet
        self._agents = [VirtualAgent(node, fleet, world, self._began) for node in fleet.expanded()]
        self._tasks = Supervisor("virtual nodes")
        self._runners: list[ProcessRunner] = []

    @property
    def names(self) -> Sequence[str]:
        """Names of the nodes."""
        return [agent.node.name for agent in self._agents]

    async def start(self) -> None:
        """Register the nodes, start their agents and runners."""
        for agent in self._agents:
            self._runners.append(await self._runner(agent.node).start())
            agent.start(self._tasks)
        self._tasks.forever("nodes", Informer(self._world.api, NODES, self._on_node).run)
        self._tasks.forever("pods", Informer(self._world.api, PODS, self._on_pods).run)
        await self._prices()

    async def stop(self) -> None:
        """End every loop and process."""
        await self._tasks.close()
        await asyncio.gather(*(runner.stop() for runner in self._runners))
        await self._world.pages.aclose()

    def _runner(self, node: VirtualNode) -> ProcessRunner:
        world = self._world
        folder = world.work / node.name
        folder.mkdir(parents=True, exist_ok=True)
        declaration = world.work / f"{node.name}.json"
        declaration.write_text(node.model_dump_json(by_alias=True))
        return ProcessRunner(
            world.api, node.name, images_of(declaration, self._began, world.programs), folder,
            reaper=world.reaper, resources=resources_of(node), labels={DEFAULT_PREFIX + VIRTUAL_LABEL: "true"},
        )  # fmt: skip

    async def _prices(self) -> None:
        for agent in self._agents:
            if agent.node.cost is not None:
                patch = {"metadata": {"annotations": {DEFAULT_PREFIX + COST_ANNOTATION: f"{agent.node.cost:g}"}}}
                await self._world.api.patch(NODES, agent.node.name, patch)

    def _on_node(self, fact: KubeFact) -> None:
        for agent in self._agents:
            agent.on_node(fact)

    def _on_pods(self, fact: KubeFact) -> None:
        for agent in self._agents:
            agent.on_pods(fact)
