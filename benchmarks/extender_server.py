"""The process under test: the extender over a fleet of virtual nodes and, on another port, an app that sends the
request body back. Telemetry events arrive as encoded bytes at the stated rate and are decoded and folded here."""

import asyncio
import gc
import random
import time
from collections import deque
from typing import Any

from flexinfer.adapters.web.extender import ExtenderApp, Process
from flexinfer.adapters.web.serve import Receive, Scope, Send, WebServer, listen, read_body, respond
from flexinfer.contracts.envelope import EventMint, decode_event, encode_event
from flexinfer.contracts.events import BenchCompleted, Device, DeviceTelemetry, NodeHardware, NodeTelemetry
from flexinfer.core.fleet.fold import STATE_TYPES, fold, replace_state
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.hardware.device_class import device_class
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.scoring import Weights
from flexinfer.runtime.heap import collect_rarely, keep_freed_memory
from flexinfer.runtime.process import run_app

WORKLOAD = "llama3-8b-0123456789ab"
CARDS = (
    ("NVIDIA GeForce RTX 4090", "sm_89", 58.0),
    ("NVIDIA GeForce RTX 3090", "sm_86", 40.0),
    ("NVIDIA T4", "sm_75", 9.0),
)
MEMORY = 24564
AHEAD_SECONDS = 6
MOST_OWED = 50.0  # after a pause of the machine the events of that time do not come all at once


class Fleet:
    """``count`` virtual nodes with one card each, and their telemetry as bytes."""

    def __init__(self, count: int) -> None:
        self.names = [f"gpu-node-{number:05d}.example" for number in range(count)]
        self._random = random.Random(7)
        self._used = {name: 20000 if number % 10 == 9 else 4000 for number, name in enumerate(self.names)}
        self._mints = {name: EventMint.start("agent", name, "boot", time.time) for name in self.names}

    def state(self) -> list[bytes]:
        """Everything a fresh replica reads."""
        found = []
        for number, name in enumerate(self.names):
            product, arch, _ = CARDS[number % 3]
            card = Device(
                index=0, uuid=f"GPU-{name}", vendor="NVIDIA", product=product, arch=arch, memory_mib=MEMORY, int4=True
            )
            found.append(encode_event(self._mints[name].mint(NodeHardware(node=name, devices=(card,)))))
            found.append(self.telemetry(name))
        for product, arch, speed in CARDS:
            card = Device(index=0, uuid="x", vendor="NVIDIA", product=product, arch=arch, memory_mib=MEMORY)
            result = BenchCompleted(
                key=f"k-{arch}", namespace="default", model="m", workload=WORKLOAD, source="s", backend="vllm",
                device_class=device_class(card, 1), tokens_per_second=speed, iterations=5, duration_seconds=30.0,
            )  # fmt: skip
            found.append(encode_event(EventMint.start("bench", arch, "boot", time.time).mint(result)))
        return found

    def telemetry(self, name: str) -> bytes:
        """One node, somewhat busy; one in ten has little memory left."""
        used = self._used[name] + self._random.randrange(500)
        live = DeviceTelemetry(
            index=0, uuid=f"GPU-{name}", util_percent=round(self._random.uniform(0, 100), 1),
            memory_used_mib=used, memory_free_mib=MEMORY - used,
            temperature_celsius=61.0, power_watts=210.0, throttle=(),
        )  # fmt: skip
        data = NodeTelemetry(node=name, interval_seconds=60.0, devices=(live,), cpu_util_percent=20.0)
        return encode_event(self._mints[name].mint(data))


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await respond(send, 200, await read_body(receive, 1 << 30) or b"")


class Server:
    """The child process."""

    def __init__(self, count: int, pipe: Any) -> None:
        self._fleet = Fleet(count)
        self._pipe = pipe
        self._view = FleetView()
        self._rate = 0
        self._ready: deque[bytes] = deque()
        self._turn = 0

    async def run(self) -> int:
        keep_freed_memory()  # as the executable does
        collect_rarely()
        state = self._fleet.state()
        began = time.perf_counter()
        replace_state(self._view, STATE_TYPES, [decode_event(raw) for raw in state], time.time())
        warm = time.perf_counter() - began
        desk = self._desk = Desk(self._view, Weights())

        def written() -> None:
            # What the executable publishes is bounded per second; here it is only written up.
            if desk.waiting > 50:
                while desk.take():
                    pass

        app = ExtenderApp(desk, Process(lambda: None, lambda: (True, {}), time.time, written), 64 << 20)
        servers = [await WebServer(one, listen("127.0.0.1", 0)).start() for one in (app, echo)]
        desk.warm(time.time())
        gc.collect()
        gc.freeze()
        self._pipe.send({"extender": servers[0].port, "echo": servers[1].port, "warm_seconds": warm})
        stop = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._command, stop)
        feeding = asyncio.get_running_loop().create_task(self._feed())
        await stop.wait()
        feeding.cancel()
        return 0

    def _command(self, stop: asyncio.Event) -> None:
        command = self._pipe.recv()
        if command is None:
            stop.set()
            return
        # Events are made before they are due: making them is the work of other processes.
        self._make(command * AHEAD_SECONDS - len(self._ready))
        self._rate = command
        self._pipe.send("ready")

    def _make(self, count: int) -> None:
        names = self._fleet.names
        for _ in range(count):
            self._ready.append(self._fleet.telemetry(names[self._turn % len(names)]))
            self._turn += 1

    async def _feed(self) -> None:
        owed = 0.0
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            owed = min(owed + (now - last) * self._rate, MOST_OWED)
            last = now
            while owed >= 1:
                owed -= 1
                if not self._ready:
                    self._make(20)
                fold(self._view, decode_event(self._ready.popleft()), time.time())
                self._desk.keep_up(time.time())


def serve(count: int, pipe: Any) -> None:
    run_app(Server(count, pipe).run)
