"""An extender over a small fleet, asked in process through its ASGI interface."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flexinfer.adapters.web.extender import ExtenderApp, Process
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import Device, DeviceTelemetry, NodeHardware, NodeTelemetry
from flexinfer.core.fleet.fold import fold
from flexinfer.core.fleet.view import FleetView
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.scoring import Weights

CAPTURES = Path(__file__).parents[2] / "captures" / "extender"
NOW = 1_800_000_000.0


class Answer(msgspec.Struct):
    """One HTTP answer."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Asked:
    """The extender and a way to ask it; ``cold`` can be set to a reason."""

    def __init__(self, view: FleetView, max_body: int = 64 << 20) -> None:
        self.view = view
        self.desk = Desk(view, Weights())
        self.cold: str | None = None
        process = Process(lambda: self.cold, lambda: (self.cold is None, {}), lambda: NOW)
        self.app = ExtenderApp(self.desk, process, max_body)

    async def request(self, method: str, path: str, body: bytes = b"", chunk: int = 1 << 16) -> Answer:
        parts = [body[start : start + chunk] for start in range(0, len(body), chunk)] or [b""]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(message: Any) -> None:
            sent.append(message)

        path, _, query = path.partition("?")
        scope = {"type": "http", "method": method, "path": path, "query_string": query.encode()}
        await self.app(scope, receive, send)
        return Answer(sent[0]["status"], b"".join(m.get("body", b"") for m in sent[1:]))

    async def post(self, path: str, body: bytes | dict[str, Any]) -> Answer:
        raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return await self.request("POST", path, raw)


def gpu_node(view: FleetView, name: str, util: float = 0.0, free: int = 24564, boot: str = "boot") -> None:
    """One RTX 4090; another ``boot`` replaces what was told."""
    mint = EventMint.start("agent", name, boot, lambda: NOW)
    device = Device(
        index=0, uuid=f"GPU-{name}", vendor="NVIDIA", product="NVIDIA GeForce RTX 4090", arch="sm_89",
        memory_mib=24564, int4=True,
    )  # fmt: skip
    live = DeviceTelemetry(index=0, uuid=f"GPU-{name}", util_percent=util, memory_free_mib=free)
    fold(view, mint.mint(NodeHardware(node=name, devices=(device,))), NOW)
    fold(view, mint.mint(NodeTelemetry(node=name, interval_seconds=2.0, devices=(live,))), NOW)


@pytest.fixture
def view() -> FleetView:
    """The fleet of the captured requests: two GPU nodes, one without."""
    found = FleetView()
    gpu_node(found, "gpu-a", util=12.0)
    gpu_node(found, "gpu-b", util=80.0, free=12000)
    mint = EventMint.start("agent", "cpu-c", "boot", lambda: NOW)
    fold(found, mint.mint(NodeHardware(node="cpu-c")), NOW)
    return found


@pytest.fixture
def extender(view: FleetView) -> Asked:
    return Asked(view)


@pytest.fixture
def capture() -> Callable[[str], bytes]:
    return lambda name: (CAPTURES / name).read_bytes()
