"""The examples of docs/events.md, run: from Python, and in a browser over a WebSocket listener."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flexinfer.adapters.bus.nats import NatsBus
from flexinfer.local.nats_server import NatsServer
from flexinfer.local.ports import free_port
from flexinfer.runtime.clock import SystemClock
from tests.contract.dashboard.mixed_day import Day, phase, placed
from tests.integration.dashboard.browser import CHROMIUM, browser
from tests.integration.people.conftest import DEADLINE, Typed

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[str, int]]:
    port = free_port("127.0.0.1")
    found = NatsServer(tmp_path / "nats", options=f"websocket {{ listen: 127.0.0.1:{port}, no_tls: true }}")
    await found.start(timeout=DEADLINE)
    yield found.url, port
    await found.stop()


@pytest.fixture
async def bus(server: tuple[str, int]) -> AsyncIterator[NatsBus]:
    found = await NatsBus.start(server[0], name="test", clock=SystemClock())
    up = asyncio.Event()
    found.on_connect(up.set)
    async with asyncio.timeout(DEADLINE):
        await up.wait()
        await found.ensure()
    yield found
    await found.close()


async def test_from_python(server: tuple[str, int], bus: NatsBus) -> None:
    day = Day()
    await bus.publish(day.say("manager/m", phase("p", None)), durable=True)
    script = str(EXAMPLES / "subscribe.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable, script, server[0], "flexinfer.v1.*.model.*.*.phase", "1",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    typed = Typed(process)
    state = await typed.says("state")
    assert '"phase": "Pending"' in state
    await typed.says("listening")
    await bus.publish(day.say("manager/m", phase("r", "Pending")), durable=True)
    code, out, err = await typed.end()
    assert (code, err) == (0, "")
    assert '"phase": "Running"' in out


async def test_in_a_browser(server: tuple[str, int], bus: NatsBus, tmp_path: Path) -> None:
    if CHROMIUM is None:
        pytest.skip("no chromium on PATH: the browser example was not tried")
    async with browser(tmp_path / "profile") as page:
        page_url = f"{(EXAMPLES / 'browser.html').as_uri()}?ws://127.0.0.1:{server[1]}"
        await page.call("Page.navigate", url=page_url)
        await page.until("document.getElementById('state')?.textContent.startsWith('listening')")
        await bus.publish(Day().say("scheduler/s", placed("llama3-8b-1")), durable=True)
        line = await page.until("document.querySelector('li')?.textContent")
        assert line.endswith("default/llama3-8b-1: mi300x, sum 67.0")
        assert page.complaints == []
