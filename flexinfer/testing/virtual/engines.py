"""A throttled engine on a virtual node in simulated time, and the real benchmark against it."""

import asyncio

from flexinfer.adapters.inference.client import OpenAIClient
from flexinfer.adapters.inference.driver import Driver, Target
from flexinfer.contracts.events import BenchCompleted, BenchSample, BenchSettings
from flexinfer.contracts.kubernetes import Object
from flexinfer.contracts.labels import POD_BACKEND, POD_MODEL
from flexinfer.core.benchmark.prompts import request_options
from flexinfer.core.benchmark.summary import Subject, summarise
from flexinfer.core.fleet.identity import result_key
from flexinfer.core.hardware.device_class import classes_of
from flexinfer.core.hardware.inventory import take
from flexinfer.core.hardware.telling import hardware_event
from flexinfer.ports import Clock
from flexinfer.runtime.tasks import Supervisor
from flexinfer.testing.fake_engine import FakeEngine, Speeds
from flexinfer.testing.virtual import signals
from flexinfer.testing.virtual.agent import AFTER_EDGE
from flexinfer.testing.virtual.declared import VirtualNode

PORT = 8080
IMAGE = "virtual"


class VirtualEngine:
    """``pod`` is as the node's runner would show it: running, with its address. ``url`` has no path."""

    def __init__(self, node: VirtualNode, pod: Object, address: str, clock: Clock) -> None:
        meta, spec = pod["metadata"], pod.get("spec") or {}
        self.node = node
        self.uid = str(meta["uid"])
        self.model = str((meta.get("annotations") or {}).get(POD_MODEL) or meta["name"])
        self.pod: Object = {
            **pod, "spec": {**spec, "nodeName": node.name}, "status": {"phase": "Running", "podIP": address},
        }  # fmt: skip
        notes = {POD_BACKEND: "llamacpp", POD_MODEL: self.model, **(meta.get("annotations") or {})}
        self.pod["metadata"] = {"namespace": "default", **meta, "annotations": notes}
        self._clock = clock
        self.engine = FakeEngine(speeds=self.speeds_now(), host=address, port=PORT, models=(self.model,))

    @property
    def url(self) -> str:
        """Where it answers, on this loop only."""
        return self.engine.url

    async def start(self, tasks: Supervisor) -> None:
        """Listen, and follow the declared faults."""
        await self.engine.start()
        tasks.once(f"speed {self.uid}", self._follow())

    async def stop(self) -> None:
        """Cut what is open."""
        await self.engine.stop()

    def speeds_now(self) -> Speeds:
        """What the declaration gives at this moment."""
        return signals.engine_speeds(self.node, self.model, self._clock.monotonic())

    async def _follow(self) -> None:
        for edge in signals.edges(self.node):
            await asyncio.sleep(max(0.0, edge - self._clock.monotonic()) + AFTER_EDGE)
            self.engine.speeds = self.speeds_now()


async def measure(engine: VirtualEngine, workload: str, clock: Clock, settings: BenchSettings) -> BenchCompleted:
    """One whole benchmark, as flexinfer-bench does it. Raises Unusable."""
    device_class = class_of(engine)
    key = result_key(workload, IMAGE, "1", device_class)
    client = OpenAIClient(engine.url, clock=clock.monotonic)
    target = Target(client, engine.model, clock, request_options("llamacpp", 1), seed=1)

    async def nobody(_sample: BenchSample) -> None:
        """Samples are not published here."""

    driver = Driver(target, settings, key, nobody)
    await driver.ready()
    found = await driver.run()
    meta = engine.pod["metadata"]
    subject = Subject(
        key, meta["namespace"], engine.model, workload, engine.model, "llamacpp", device_class, engine.node.name,
        IMAGE, driver_major="1", virtual=True,
    )  # fmt: skip
    return summarise(subject, settings, found.results, found.seconds, notes=found.notes, cost_per_hour=engine.node.cost)


def class_of(engine: VirtualEngine) -> str:
    """Device class of one device of the node, or of its processor."""
    node = engine.node
    cpu = signals.cpu(node)
    findings = signals.findings(node, 0.0)
    hardware = hardware_event(node.name, take(findings, cpu), {}, "", virtual=True)
    return classes_of(hardware, 1 if node.gpus else 0)[0]
