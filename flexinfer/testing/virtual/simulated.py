"""A whole virtual fleet in simulated time: agents on an in-memory bus, throttled engines, faults when declared."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from flexinfer.adapters.bus.memory import MemoryBroker, MemoryBus
from flexinfer.adapters.inference.exchange import Address, exchange
from flexinfer.contracts.envelope import Event, EventMint, encode_event
from flexinfer.contracts.events import BenchSettings
from flexinfer.contracts.kubernetes import KubeDelta, Object
from flexinfer.ports import EngineError, KubeFact, Relisted
from flexinfer.runtime.tasks import Supervisor
from flexinfer.testing.simulated_time import START, SimulatedClock, run_simulated
from flexinfer.testing.virtual.agent import Surroundings, VirtualAgent
from flexinfer.testing.virtual.deciding import SimulatedExtender
from flexinfer.testing.virtual.declared import VirtualFleet
from flexinfer.testing.virtual.engines import VirtualEngine, measure
from flexinfer.testing.virtual.objects import node_object

T = TypeVar("T")


class _Counted:
    """The bus as agents see it; every event is counted into the fleet's digest."""

    def __init__(self, bus: MemoryBus) -> None:
        self.bus = bus
        self.events = 0
        self.hash = hashlib.sha256()

    async def publish(self, event: Event, *, durable: bool = False) -> None:
        """Like ``Bus.publish``."""
        self.events += 1
        self.hash.update(encode_event(event) + b"\n")
        await self.bus.publish(event, durable=durable)


class SimulatedFleet:
    """What a story gets. Times are seconds of the fleet; nothing here waits in real time.

    ``bus`` and ``broker`` are the in-memory ones, to follow, cut or stop; ``clock`` is the fleet's.
    """

    def __init__(self, fleet: VirtualFleet, start: float) -> None:
        self.fleet = fleet
        self.clock = SimulatedClock(start)
        self.broker = MemoryBroker(self.clock)
        self.bus = MemoryBus(self.broker)
        self.broker.ensure()
        self.nodes = {node.name: node for node in fleet.expanded()}
        self.engines: dict[str, VirtualEngine] = {}  # by pod uid
        self.tasks = Supervisor("simulated fleet")
        self._told = _Counted(self.bus)
        self._sinks: list[Callable[[KubeFact], None]] = []
        self._pods: dict[str, Object] = {}
        boot = f"virtual-{fleet.seed}"
        around = Surroundings(self._told, self.clock, self._page, start, boot)
        self._agents = {name: VirtualAgent(node, fleet, around) for name, node in self.nodes.items()}
        self._mints = {
            component: EventMint.start(component, "simulated", boot, self.clock.now) for component in ("bench", "test")
        }

    # --- time ------------------------------------------------------------------------------------------------

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self.clock.monotonic()

    async def run(self, seconds: float) -> None:
        """Let so much time pass."""
        await asyncio.sleep(seconds)

    async def until(self, elapsed: float) -> None:
        """Let time pass until ``elapsed`` seconds after the start."""
        await asyncio.sleep(max(0.0, elapsed - self.elapsed))

    # --- what agents said ------------------------------------------------------------------------------------

    @property
    def events(self) -> int:
        """Events published by the agents so far."""
        return self._told.events

    @property
    def digest(self) -> str:
        """SHA-256 of all their bytes in order: equal for equal stories, whatever the process or its hash seed."""
        return self._told.hash.hexdigest()

    async def digest_after(self, seconds: float) -> str:
        """``run``, then ``digest``."""
        await self.run(seconds)
        return self.digest

    # --- pods ------------------------------------------------------------------------------------------------

    def node_objects(self) -> tuple[Object, ...]:
        """Nodes as an API server would list them."""
        return tuple(map(node_object, self.nodes.values()))

    def watch(self, sink: Callable[[KubeFact], None]) -> None:
        """Hand the Nodes and Pods of the fleet to ``sink`` as an informer would, now and at each change."""
        sink(Relisted("nodes", self.node_objects()))
        sink(Relisted("pods", tuple(self._pods.values())))
        self._sinks.append(sink)

    async def serve(self, pod: Object, node: str) -> VirtualEngine:
        """Bind a pod to a node and run its engine there, throttled as declared. Raises KeyError for an unknown node."""
        number = len(self._pods) + 1
        engine = VirtualEngine(self.nodes[node], pod, f"10.0.{number // 250}.{number % 250 + 1}", self.clock)
        await engine.start(self.tasks)
        self.engines[engine.uid] = engine
        self._tell(engine.pod, "ADDED" if engine.uid not in self._pods else "MODIFIED")
        return engine

    async def remove(self, engine: VirtualEngine) -> None:
        """Delete the pod of an engine."""
        del self.engines[engine.uid]
        await engine.stop()
        self._tell(engine.pod, "DELETED")

    async def measure(self, engine: VirtualEngine, workload: str, settings: BenchSettings | None = None) -> float:
        """Benchmark an engine with the real driver and publish the result; tokens/s. Raises Unusable."""
        completed = await measure(engine, workload, self.clock, settings or BenchSettings(min_duration_seconds=5.0))
        await self.bus.publish(self._mints["bench"].mint(completed))
        return completed.tokens_per_second

    async def extender(self, record: Path | None = None) -> SimulatedExtender:
        """A fresh extender that follows this fleet; ``record`` is a directory for its tape."""
        return await SimulatedExtender.start(self.bus, self.clock, self.watch, record)

    # --- the machinery ---------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Start every agent."""
        for agent in self._agents.values():
            agent.on_pods(Relisted("pods", ()))
            agent.start(self.tasks)
        await asyncio.sleep(0)

    async def end(self) -> None:
        """Stop everything."""
        for engine in self.engines.values():
            await engine.stop()
        await self.tasks.close()
        await self.bus.close()

    def _tell(self, pod: Object, action: str) -> None:
        uid = pod["metadata"]["uid"]
        delta = KubeDelta(plural="pods", action=action, object=pod)  # type: ignore[arg-type] # one of the three
        if action == "DELETED":
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = pod
        for agent in self._agents.values():
            agent.on_pods(delta)
        for sink in self._sinks:
            sink(delta)

    async def _page(self, url: str) -> bytes | None:
        """An engine's own page, as the agent reads it."""
        parts: list[bytes] = []
        try:
            address = Address.of(url)
            request = address.head("GET", "", {}, 0)  # the path is the address's prefix
            done = await exchange(address, request, lambda data, _: parts.append(data), self.clock.monotonic)
        except (OSError, EngineError):
            return None
        return b"".join(parts) if done.status == 200 else None


def simulate(
    fleet: VirtualFleet, story: Callable[[SimulatedFleet], Awaitable[T]], *, seed: int | None = None,
    start: float = START,
) -> T:  # fmt: skip
    """Run ``story`` on the fleet in simulated time; what it returns.

    ``seed`` replaces the file's. ``start`` is the Unix time at which the fleet begins. Not to be called on a running
    event loop. Raises what the story raises, and Stalled if it waits for what cannot come.
    """
    chosen = fleet if seed is None else fleet.model_copy(update={"seed": seed})

    async def body() -> T:
        simulated = SimulatedFleet(chosen, start)
        await simulated.begin()
        try:
            return await story(simulated)
        finally:
            await simulated.end()

    return run_simulated(body())
