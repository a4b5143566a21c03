"""Every view of the page in a real browser, on a tape: what is shown, by keyboard too, at both widths, dark and light.

With ``FLEXINFER_SCREENSHOTS=DIR`` the pictures of docs/screenshots are taken.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flexinfer.adapters.web.dashboard.app import dashboard_app
from flexinfer.adapters.web.dashboard.state import Board
from flexinfer.adapters.web.dashboard.timeline import Timeline
from flexinfer.adapters.web.serve import WebServer, listen
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.tapes import bus_facts, tapes_of
from tests.contract.dashboard.mixed_day import Day, hardware, phase, write_tape
from tests.integration.dashboard.browser import Browser
from tests.integration.dashboard.pages import live_site, show, text, write

VIEWS = ("fleet", "models", "bench", "placements", "events")
PICTURES = os.environ.get("FLEXINFER_SCREENSHOTS")
CONTRAST = Path(__file__).with_name("contrast.js")
ARROW_LEFT, ARROW_RIGHT, END, HOME = 37, 39, 35, 36


@pytest.fixture
async def tape(tmp_path: Path) -> AsyncIterator[str]:
    [(_, found)] = tapes_of(write_tape(tmp_path / "day.jsonl"))
    travelled = Timeline("a mixed day", list(bus_facts(found)))
    server = WebServer(dashboard_app(travelled, lambda: (True, {})), listen("127.0.0.1", 0), drain=1)
    await server.start()
    yield f"http://127.0.0.1:{server.port}/"
    await server.stop()


async def picture(page: Browser, name: str) -> None:
    if PICTURES:
        await page.picture(Path(PICTURES) / f"{name}.png")


async def test_every_view_on_a_tape(page: Browser, tape: str) -> None:
    await page.open(tape, width=1280, height=800)
    await page.until("document.getElementById('n-fleet').textContent === '4'")

    fleet = await show(page, "fleet")
    for words in ("mi300x", "Instinct MI300X", "86 °C", "degraded", "3 uncorrected memory errors", "stale", "GiB"):
        assert words in fleet, words
    assert await page.run("document.getElementById('banner').textContent") == (
        "1 of 4 nodes are silent, their figures are stale: l4. "
        "Placement is degraded: the scheduler decides from labels, without live figures."
    )
    await picture(page, "fleet")

    models = await show(page, "models")
    for words in ("default/llama3-8b", "Running", "Pending 08:02:00, 20 s", "212.5 tokens/s", "mi300x-x1"):
        assert words in models, words
    await picture(page, "models")

    bench = await show(page, "bench")
    for words in ("110.0 best", "± 3.0 %", "0.220", "EngineFailed: the engine ended with code 1", "done, 110.0"):
        assert words in bench, words
    curves = await page.run(
        "[...document.querySelectorAll('#bench svg[role=img]')].map(s => s.getAttribute('aria-label'))"
    )
    assert "curve: 110 tokens/s at 1 streams, 333 tokens/s at 4 streams" in curves[2]
    await picture(page, "benchmarks")

    placements = await show(page, "placements")
    assert "mi300x is 6.3 ahead of the runner-up a100: speed +9.8, load −2.0, KV cache −1.5" in placements
    bars = await page.run("[...document.querySelectorAll('#placements .stack')].map(s => s.getAttribute('aria-label'))")
    assert bars[0] == "speed +70.0, load −4.0, cost −4.0, KV cache −3.0, free memory +8.0"
    await picture(page, "placements")

    assert "node.telemetry.v1" in await show(page, "events")
    await write(page, "filter", "placement -llama3-8b-1")
    await page.until("document.querySelectorAll('#stream li').length === 1")
    await page.run("document.querySelector('#stream summary').click()")
    shown = await page.until("document.querySelector('#stream pre')?.innerText")
    assert '"podUid": "uid-llama3-8b-2"' in shown
    await picture(page, "events")
    assert page.complaints == []


async def test_time_travel_by_mouse_and_by_keyboard(page: Browser, tape: str) -> None:
    await page.open(f"{tape}#models")
    await page.until(f"{text('models')}.includes('Running')")

    await page.run("const s = document.getElementById('slider'); s.value = 150; s.dispatchEvent(new Event('input'))")
    await page.until(f"{text('models')}.includes('measuring 2 device classes')")
    assert "2027-01-15 08:02:30 UTC" in await page.run(
        "document.getElementById('slider').getAttribute('aria-valuetext')"
    )

    await page.run("document.getElementById('slider').focus()")
    await page.press("PageUp", 33)
    await page.until("Number(document.getElementById('slider').value) > 500")
    await page.until(f"{text('models')}.includes('Running')")

    await page.run("document.getElementById('earlier').click()")
    await page.until("document.getElementById('mark').textContent.startsWith('default/llama3-8b Running')")
    await page.run("document.getElementById('slider').value = 0; document.getElementById('play').click()")
    await page.until("document.getElementById('play').textContent === 'Stop'")
    await page.until("Number(document.getElementById('slider').value) > 3")
    await page.run("document.getElementById('play').click()")
    assert page.complaints == []


async def test_tabs_go_by_arrow_keys(page: Browser, tape: str) -> None:
    await page.open(tape)
    await page.until("document.getElementById('n-fleet').textContent === '4'")
    await page.run("document.getElementById('tab-fleet').focus()")
    chosen = "document.querySelector('[aria-selected=true]').id + ' ' + document.activeElement.id"

    for key, code, expected in (
        ("ArrowRight", ARROW_RIGHT, "models"), ("ArrowLeft", ARROW_LEFT, "fleet"), ("ArrowLeft", ARROW_LEFT, "events"),
        ("Home", HOME, "fleet"), ("End", END, "events"),
    ):  # fmt: skip
        await page.press(key, code)
        await page.until(f"{chosen} === 'tab-{expected} tab-{expected}'")

    nameless = await page.run(
        "[...document.querySelectorAll('button, input, select, [role=img], [role=region]')].filter(n => "
        "!(n.innerText || n.labels?.length || n.getAttribute('aria-label'))).length"
    )
    assert nameless == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_nothing_sticks_out_and_everything_can_be_read(page: Browser, tape: str, dark: bool) -> None:
    await page.open(tape, dark=dark)
    await page.until("document.getElementById('n-fleet').textContent === '4'")

    for width, height in ((360, 740), (1920, 1080)):
        await page.size(width, height)
        for view in VIEWS:
            await show(page, view)
            assert await page.run("document.documentElement.scrollWidth") <= width, (view, width)
            if (view, width, dark) in {("fleet", 360, False), ("placements", 1920, True)}:
                await picture(page, f"{view}-{width}")
    assert await page.run(CONTRAST.read_text()) == []


async def test_live_updates_pause_and_a_server_that_goes_away(page: Browser) -> None:
    clock, day, board = SystemClock(), Day(), Board()
    async with live_site(board) as url:
        await page.open(url)
        await page.until("document.getElementById('pulse-text').textContent === 'live'")

        day.now = clock.now()
        board.take(hardware(day, "l4"), day.now)
        board.take(day.figures("l4", 5), day.now)
        await page.until(f"{text('fleet')}.includes('NVIDIA L4')")
        assert "heard " in await page.run(text("fleet"))

        await page.run("document.getElementById('tab-events').click(); document.getElementById('pause').click()")
        board.take(day.say("manager/m", phase("p", None)), day.now)
        await page.until("document.getElementById('held').textContent === 'paused, 1 held back'")
        await page.until("document.getElementById('n-models').textContent === '1'")
    await page.until("document.getElementById('banner').textContent.startsWith('The dashboard server does not answer')")
