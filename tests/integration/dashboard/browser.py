"""Headless Chromium driven over its DevTools protocol, with nothing but a WebSocket client."""

import asyncio
import base64
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

DEADLINE = 90.0
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--remote-debugging-port=0", "--remote-allow-origins=*", "about:blank",
)  # fmt: skip


class PageError(AssertionError):
    """The page or the browser refused a command, for example because it is just loading another document."""


class Browser:
    """One page. Every wait has a deadline and says what it waited for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.complaints: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol and its answer."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        async with asyncio.timeout(DEADLINE):
            while True:
                message = await self._socket.receive_json()
                self._note(message)
                if message.get("id") == self._number:
                    if "error" in message:
                        raise PageError(f"{method}: {message['error']}")
                    return dict(message["result"])

    def _note(self, message: dict[str, Any]) -> None:
        if message.get("method") == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.complaints.append(str(details.get("exception", {}).get("description") or details["text"]))
        elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.complaints.append(message["params"]["entry"]["text"])

    async def run(self, script: str) -> Any:
        """The value of an expression, promises awaited."""
        found = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise PageError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    async def traced(self, script: str, categories: Sequence[str]) -> tuple[Any, list[dict[str, Any]]]:
        """The value of an expression, and what the browser traced of itself meanwhile."""
        config = {"recordMode": "recordAsMuchAsPossible", "includedCategories": list(categories)}
        await self.call("Tracing.start", transferMode="ReportEvents", traceConfig=config)
        value = await self.run(script)
        await self._socket.send_json({"id": (ending := self._number + 1), "method": "Tracing.end", "params": {}})
        self._number = ending
        events: list[dict[str, Any]] = []
        async with asyncio.timeout(DEADLINE):
            while True:
                message = await self._socket.receive_json()
                self._note(message)
                if message.get("method") == "Tracing.dataCollected":
                    events += message["params"]["value"]
                if message.get("method") == "Tracing.tracingComplete":
                    return value, events

    async def until(self, script: str) -> Any:
        """Wait until an expression is truthy; its value."""
        refused = ""
        try:
            async with asyncio.timeout(DEADLINE):
                while True:
                    try:
                        if value := await self.run(script):
                            return value
                    except PageError as err:
                        refused = str(err)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"never true: {script}; complaints: {self.complaints}; {refused}") from None

    async def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page in a window of this size."""
        await self.size(width, height)
        await self.dark(on=dark)
        await self.call("Page.navigate", url="about:blank")
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.protocol === 'http:'")

    async def size(self, width: int, height: int) -> None:
        """Resize the window."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def dark(self, *, on: bool) -> None:
        """What the system prefers."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def press(self, key: str, code: int = 0) -> None:
        """One key, down and up, on what has the focus."""
        text = {"Enter": "\r", " ": " "}.get(key)
        for kind in ("keyDown", "keyUp"):
            extra = {"text": text} if text and kind == "keyDown" else {}
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **extra)

    async def picture(self, path: Path) -> None:
        """A PNG of the window."""
        found = await self.call("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(found["data"]))


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Browser]:
    """Started with its profile in ``folder``, ended with all its processes."""
    assert CHROMIUM
    process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
        [CHROMIUM, *_FLAGS[:-1], f"--user-data-dir={folder}", _FLAGS[-1]],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)},
    )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as session, session.ws_connect(
            await _page(session, folder / "DevToolsActivePort"), max_msg_size=0, heartbeat=None
        ) as socket:  # fmt: skip
            page = Browser(socket)
            for domain in ("Page", "Runtime", "Log"):
                await page.call(f"{domain}.enable")
            yield page
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def _page(session: aiohttp.ClientSession, note: Path) -> str:
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                port = (await asyncio.to_thread(note.read_text)).splitlines()[0]
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    pages = [found for found in await answer.json(content_type=None) if found["type"] == "page"]
                    return str(pages[0]["webSocketDebuggerUrl"])
            except (OSError, IndexError, ValueError, aiohttp.ClientError):
                await asyncio.sleep(0.1)
