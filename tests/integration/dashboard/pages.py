"""The dashboard served to a browser, and what tests do on its page."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from flexinfer.adapters.web.dashboard.app import dashboard_app
from flexinfer.adapters.web.dashboard.state import Board
from flexinfer.adapters.web.dashboard.viewers import Broadcast
from flexinfer.adapters.web.serve import WebServer, listen
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.tasks import Supervisor
from tests.integration.dashboard.browser import Browser


@asynccontextmanager
async def live_site(board: Board) -> AsyncIterator[str]:
    """The page of a board, live; its URL."""
    tasks, source = Supervisor("test"), Broadcast(board, SystemClock(), list)
    server = WebServer(dashboard_app(source, lambda: (True, {})), listen("127.0.0.1", 0), drain=1)
    await server.start()
    tasks.forever("batches", source.run)
    try:
        yield f"http://127.0.0.1:{server.port}/"
    finally:
        await tasks.close()
        await server.stop()


def text(view: str) -> str:
    """An expression: what a view says."""
    return f"document.getElementById('{view}').innerText"


async def show(page: Browser, view: str) -> str:
    """Open a view; what it says."""
    await page.run(f"document.getElementById('tab-{view}').click()")
    await page.until(f"!document.getElementById('{view}').hidden && {text(view)}.length > 40")
    return str(await page.run(text(view)))


async def write(page: Browser, field: str, words: str) -> None:
    """Type into a field."""
    found = f"document.getElementById('{field}')"
    await page.run(f"{found}.value = '{words}'; {found}.dispatchEvent(new Event('input'))")
