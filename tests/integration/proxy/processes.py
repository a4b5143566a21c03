"""Real proxy processes on a real bus."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.contracts.envelope import Event, EventMint
from flexinfer.contracts.events import ClusterHeadroom, Endpoint, EventData, ModelDemand, ModelEndpoint, ModelLoad
from flexinfer.local.nats_server import NatsServer
from flexinfer.local.ports import free_port
from flexinfer.ports import Snapshot
from flexinfer.runtime.clock import SystemClock
from flexinfer.testing.fake_engine import FakeEngine
from tests.contract.proxy.rig import Answer, Wire, until

START_SECONDS = 60.0


@dataclass
class Program:
    """A running executable of ours."""

    process: asyncio.subprocess.Process
    port: int
    log: Path

    @classmethod
    async def start(cls, program: str, log: Path, *args: str) -> "Program":
        port = free_port()
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c",
                f"import sys; from flexinfer.cli import run_program; sys.exit(run_program({program!r}))",
                "--host", "127.0.0.1", "--port", str(port), "--accept-timeout", "0s", *args,
                stdout=out, stderr=out, stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        return cls(process, port, log)

    async def ask(self, data: bytes) -> Answer:
        wire = await Wire.to(self.port)
        try:
            wire.send(data)
            return await wire.answer()
        finally:
            await wire.close()

    async def get(self, path: str) -> Answer:
        return await self.ask(f"GET {path} HTTP/1.1\r\nHost: p\r\n\r\n".encode())

    async def ready(self) -> "Program":
        """Wait for /readyz. Raises AssertionError with the log."""
        try:
            async with asyncio.timeout(START_SECONDS):
                while not await self._is_ready():
                    assert self.process.returncode is None, self.log.read_text()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(self.log.read_text()) from None
        return self

    async def _is_ready(self) -> bool:
        try:
            return (await self.get("/readyz")).status == 200
        except (OSError, asyncio.IncompleteReadError):
            return False

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def terminate(self) -> int:
        if self.process.returncode is None:
            self.process.terminate()
        return await self.process.wait()


@dataclass
class Stage:
    """A bus, the manager's side of it, and what runs on it."""

    folder: Path
    nats: NatsServer
    bus: NatsBus
    mint: EventMint
    engines: list[FakeEngine] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    heard: list[Event] = field(default_factory=list)
    cluster: str = "default"

    async def listen(self) -> None:
        def sink(fact: Event | Snapshot) -> None:
            if isinstance(fact, Event):
                self.heard.append(fact)

        await self.bus.follow((ModelDemand, ModelLoad, ClusterHeadroom), sink)

    def events(self, kind: type) -> list[Any]:
        return [event.data for event in self.heard if isinstance(event.data, kind)]

    async def engine(self, **options: Any) -> FakeEngine:
        engine = await FakeEngine(**options).start()
        self.engines.append(engine)
        return engine

    async def proxy(self, instance: str, *args: str) -> Program:
        program = await Program.start(
            "flexinfer-proxy", self.folder / f"{instance}.log",
            "--nats-url", self.nats.url, "--instance", instance, "--cluster", self.cluster, *args,
        )  # fmt: skip
        self.programs.append(program)
        return program

    async def tell(self, data: EventData) -> None:
        await self.bus.publish(self.mint.mint(data), durable=True)

    async def route(self, *engines: FakeEngine, **options: Any) -> ModelEndpoint:
        speeds = options.pop("speeds", ())
        spec = ModelEndpoint(
            **{
                "namespace": "default", "model": "m", "backend": "llamacpp",
                "endpoints": tuple(
                    Endpoint(url=e.url, pod=f"pod-{i}", tokens_per_second=speeds[i] if i < len(speeds) else None)
                    for i, e in enumerate(engines)
                ),
                **options,
            }
        )  # fmt: skip
        await self.tell(spec)
        return spec

    async def sees(self, proxy: Program, model: str, state: str) -> None:
        """Wait until the proxy lists the model in this state."""
        async with asyncio.timeout(60):
            while await self._state(proxy, model) != state:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)

    async def _state(self, proxy: Program, model: str) -> str:
        rows = msgspec.json.decode((await proxy.get("/v1/models")).body).get("data", ())
        return next((row["flexinfer"]["state"] for row in rows if row["id"] == model), "")


@asynccontextmanager
async def stage_in(folder: Path, *, cluster: str = "default", options: str = "") -> AsyncIterator[Stage]:
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - before anything runs
    nats = await NatsServer(folder / "nats", options=options).start()
    clock = SystemClock()
    bus = await NatsBus.start(nats.url, name="test", cluster=cluster, clock=clock)
    stage = Stage(folder, nats, bus, EventMint.start("manager", "test", "boot-1", clock.now, cluster), cluster=cluster)
    try:
        await until(lambda: bus.connected)
        await bus.ensure()
        yield stage
    finally:
        for program in stage.programs:
            await program.kill()
        for engine in stage.engines:
            await engine.stop()
        await bus.close()
        await nats.kill()
