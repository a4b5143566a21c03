"""The page of a large and busy fleet: only what is near the viewport is drawn, and what a person opened stays."""

from msgspec.structs import replace

from flexinfer.adapters.web.dashboard.state import Board
from flexinfer.contracts.events import Condition, EventData
from flexinfer.runtime.clock import SystemClock
from tests.contract.dashboard.mixed_day import Day, hardware, phase
from tests.integration.dashboard.browser import Browser
from tests.integration.dashboard.pages import live_site, write

CARDS = "document.querySelectorAll('#fleet .card')"
LAID_OUT = f"[...{CARDS}].filter(n => n.checkVisibility({{ contentVisibilityAuto: true }})).length"


async def test_a_thousand_nodes_are_drawn_where_one_looks(page: Browser) -> None:
    clock, day, board = SystemClock(), Day(), Board()
    day.now = clock.now()
    facts: list[EventData] = [hardware(day, "l4").data, day.figures("l4", 5).data]
    for number in range(1000):
        name = f"node-{number:04}"
        for data in facts:
            board.take(day.say(f"agent/{name}", replace(data, node=name)), day.now)
    async with live_site(board) as url:
        await page.open(url, width=1920, height=1080)
        await page.until(f"{CARDS}.length === 1000")
        await page.until("document.querySelectorAll('#fleet .card .device').length > 0")
        assert await page.run("document.querySelectorAll('#fleet .card .device').length") < 900
        assert await page.run("document.querySelectorAll('#fleet .card h3').length") == 1000
        await page.until(f"{LAID_OUT} < 200")

        await page.run("scrollTo(0, document.body.scrollHeight)")
        await page.until(f"[...{CARDS}].pop().querySelector('.device') !== null")
        assert await page.run(f"[...{CARDS}].map(n => n.querySelector('h3').textContent)") == [
            f"node-{number:04}" for number in range(1000)
        ]
        await write(page, "find", "node-0777")
        await page.until(f"{CARDS}.length === 1")
        assert "NVIDIA L4" in await page.run(f"{CARDS}[0].innerText")
    assert page.complaints == []


async def test_what_was_opened_stays_open_while_figures_change(page: Browser) -> None:
    clock, day, board = SystemClock(), Day(), Board()
    day.now = clock.now()

    def say(number: int) -> None:
        served = Condition(type="Ready", status="True", reason="Served")
        data = replace(phase("r", None, f"take {number}"), conditions=(served,))
        board.take(day.say("manager/m", data), day.now)

    async with live_site(board) as url:
        await page.open(f"{url}#models")
        say(1)
        await page.until("document.querySelector('#models')?.innerText.includes('take 1')")
        await page.run("document.querySelector('#models details').open = true")
        say(2)
        await page.until("document.querySelector('#models').innerText.includes('take 2')")
        assert await page.run("document.querySelector('#models details').open")
    assert page.complaints == []


async def test_a_torrent_of_events_goes_past_the_one_that_is_read(page: Browser) -> None:
    clock, day, board = SystemClock(), Day(), Board()
    day.now = clock.now()
    step = iter(range(10_000))

    def say(count: int) -> None:
        for _ in range(count):
            board.take(day.figures("l4", next(step)), day.now)

    first = "document.querySelector('#stream li:first-child')"
    async with live_site(board) as url:
        await page.open(f"{url}#events")
        await page.until("document.getElementById('pulse-text').textContent === 'live'")
        say(150)
        await page.until("document.getElementById('n-events').textContent === '150'")
        await page.until(f"{first}?.querySelector('summary') != null")
        await page.run(f"window.read = {first}; {first}.querySelector('summary').click()")
        text = await page.until("window.read.querySelector('pre')?.innerText")
        say(60)
        await page.until("document.getElementById('n-events').textContent === '210'")
        assert await page.run("window.read.querySelector('pre').innerText") == text
        assert await page.run("[...document.querySelectorAll('#stream li')].indexOf(window.read)") == 60

        say(199)
        await page.until("document.getElementById('n-events').textContent === '409'")
        await page.until("!window.read.isConnected")
        await page.run("scrollTo(0, 0)")  # the view had stayed where the opened one was
        await page.until(f"{first}?.querySelector('summary') != null")
        await page.run(f"{first}.querySelector('summary').click()")
        shown = await page.until(f"{first}.querySelector('pre')?.innerText")
        assert '"id": "agent-l4-boot-1-node.telemetry.v1-409"' in shown
        assert await page.run("document.querySelectorAll('#stream pre').length") == 1
    assert page.complaints == []
