"""A virtual fleet beside the real parts of ``flexinfer up``: per node an agent and a process runner."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flexinfer.adapters.inference.fetch import PageReader
from flexinfer.adapters.kube.informer import Informer
from flexinfer.contracts.kubernetes import NODES, PODS
from flexinfer.contracts.labels import COST_ANNOTATION, DEFAULT_PREFIX, VIRTUAL_LABEL
from flexinfer.local.processes import Reaper
from flexinfer.local.runner import LocalImage, ProcessRunner
from flexinfer.ports import Bus, Clock, KubeApi, KubeFact
from flexinfer.runtime.process import boot_id
from flexinfer.runtime.tasks import Supervisor
from flexinfer.testing.virtual.agent import Surroundings, VirtualAgent
from flexinfer.testing.virtual.declared import VirtualFleet, VirtualNode
from flexinfer.testing.virtual.objects import resources_of

# Every image an engine manifest may name; on a virtual node each stands for the throttled engine.
ENGINE_IMAGES = (
    "ghcr.io/ggml-org/llama.cpp", "ollama/ollama", "vllm/vllm-openai", "rocm/vllm", "intel/vllm",
    "ghcr.io/huggingface/text-generation-inference", "lmsysorg/sglang", "nvcr.io/nvidia/tensorrt-llm/release",
)  # fmt: skip


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


def images_of(declaration: Path, began: float, programs: dict[str, LocalImage]) -> dict[str, LocalImage]:
    """The image table of a virtual node: engines are throttled ones, other programs are the real ones."""
    argv = (sys.executable, "-m", "flexinfer.local.fleet.engine", "--virtual-node", str(declaration))
    engine = LocalImage((*argv, "--virtual-since", f"{began:.3f}"))
    return {**programs, **dict.fromkeys(ENGINE_IMAGES, engine)}


class VirtualNodes:
    """Starts and stops the whole declared fleet."""

    def __init__(self, fleet: VirtualFleet, world: World) -> None:
        self._world = world
        self._began = world.clock.now()
        self._fleet = fleet
        self._agents = [self._agent(node) for node in fleet.expanded()]
        self._tasks = Supervisor("virtual nodes")
        self.runners: dict[str, ProcessRunner] = {}  # by node, from start on

    @property
    def names(self) -> Sequence[str]:
        """Names of the nodes."""
        return [agent.node.name for agent in self._agents]

    async def start(self) -> None:
        """Register the nodes, start their agents and runners."""
        for agent in self._agents:
            self.runners[agent.node.name] = await self._runner(agent.node).start()
            agent.start(self._tasks)
        self._tasks.forever("nodes", Informer(self._world.api, NODES, self._on_node).run)
        self._tasks.forever("pods", Informer(self._world.api, PODS, self._on_pods).run)
        await self._prices()

    async def stop(self) -> None:
        """End every loop and process."""
        await self._tasks.close()
        await asyncio.gather(*(runner.stop() for runner in self.runners.values()))
        await self._world.pages.aclose()

    def _agent(self, node: VirtualNode) -> VirtualAgent:
        world = self._world
        around = Surroundings(world.bus, world.clock, world.pages.read, self._began, boot_id(), world.api)
        return VirtualAgent(node, self._fleet, around)

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
