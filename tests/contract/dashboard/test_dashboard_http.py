"""The dashboard over HTTP: ops endpoints, token, stream, slow viewers, a tape."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest

from flexinfer.adapters.web.dashboard.app import Source, dashboard_app
from flexinfer.adapters.web.dashboard.state import Board
from flexinfer.adapters.web.dashboard.timeline import Timeline
from flexinfer.adapters.web.dashboard.viewers import VIEWER_QUEUE, Broadcast, Viewer
from flexinfer.adapters.web.serve import WebServer, listen
from flexinfer.testing.bus import ManualClock, until
from tests.contract.dashboard.mixed_day import START, Day, hardware, mixed_day

TOKEN = "s3cret token"


class Site:
    """A running dashboard on a clock moved by hand."""

    def __init__(self, source: Source, token: str = "") -> None:
        self.ready: tuple[bool, dict[str, str]] = (True, {"bus": "ok"})
        app = dashboard_app(source, lambda: self.ready, token)
        self.server = WebServer(app, listen("127.0.0.1", 0), drain=1)

    async def __aenter__(self) -> str:
        await self.server.start()
        return f"http://127.0.0.1:{self.server.port}"

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()


@pytest.fixture
async def web() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session


def live(notes: list[str] | None = None) -> Broadcast:
    return Broadcast(Board(), ManualClock(START), lambda: notes or [])


async def test_ops_endpoints_are_those_of_every_executable(web: aiohttp.ClientSession) -> None:
    site = Site(live(), token=TOKEN)
    async with site as url:
        async with web.get(f"{url}/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        site.ready = (False, {"bus": "the bus cannot be reached"})
        async with web.get(f"{url}/readyz") as answer:
            assert answer.status == 503
            assert await answer.json() == {"ready": False, "checks": {"bus": "the bus cannot be reached"}}
        async with web.get(f"{url}/metrics") as answer:
            assert "flexinfer_dashboard_viewers" in await answer.text()


async def test_without_the_token_nothing_is_shown(web: aiohttp.ClientSession) -> None:
    async with Site(live(), TOKEN) as url:
        for path in ("/", "/api/state", "/stream", "/app.js", "/?token=wrong"):
            async with web.get(url + path, allow_redirects=False) as answer:
                assert answer.status == 401, path
        async with web.get(f"{url}/api/state", headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
            assert answer.status == 200


async def test_the_token_moves_from_the_address_to_a_cookie(web: aiohttp.ClientSession) -> None:
    async with Site(live(), TOKEN) as url:
        async with web.get(f"{url}/", params={"token": TOKEN, "x": "1"}, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["location"]) == (303, "./?x=1")
            assert "HttpOnly; SameSite=Strict" in answer.headers["set-cookie"]
        async with web.get(f"{url}/", params={"token": TOKEN}) as answer:
            assert answer.status == 200
            assert "token" not in answer.url.query
            assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/nothing", "/../app.py", "/static/app.js", "/api/other"])
async def test_unknown_paths_are_404(web: aiohttp.ClientSession, path: str) -> None:
    async with Site(live()) as url, web.get(url + path) as answer:
        assert answer.status == 404


async def test_the_page_needs_no_other_host(web: aiohttp.ClientSession) -> None:
    async with Site(live()) as url, web.get(url) as answer:
        page = await answer.text()
        names = [part.split('"')[0] for part in page.split('src="')[1:]]
        assert names == ["app.js"]
        assert 'href="http' not in page


async def events_of(answer: aiohttp.ClientResponse, count: int) -> list[tuple[str, dict[str, object]]]:
    found = []
    async with asyncio.timeout(60):
        while len(found) < count:
            block = await answer.content.readuntil(b"\n\n")
            lines = dict(line.split(": ", 1) for line in block.decode().strip().splitlines())
            found.append((lines["event"], json.loads(lines["data"])))
    return found


async def test_a_viewer_gets_the_whole_and_then_what_is_new(web: aiohttp.ClientSession) -> None:
    source, day = live(["The bus cannot be reached."]), Day()
    source.board.take(hardware(day, "l4"), START)
    async with Site(source) as url, web.get(f"{url}/stream") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        [(kind, page)] = await events_of(answer, 1)
        assert kind == "snapshot"
        assert page["notes"] == ["The bus cannot be reached."]

        source.board.take(day.figures("l4", 1), START)
        source.step()
        kind, batch = (await events_of(answer, 1))[-1]
        assert kind == "batch"
        assert list(batch["telemetry"]) == ["l4.telemetry"] or "telemetry" in batch
    await until(lambda: not source.viewers, 60)


async def test_a_stream_ends_with_the_process(web: aiohttp.ClientSession) -> None:
    source = live()
    async with Site(source) as url, web.get(f"{url}/stream") as answer:
        await events_of(answer, 1)
        source.close()
        async with asyncio.timeout(60):
            assert await answer.content.read() == b""
    assert not source.viewers


async def test_a_viewer_that_leaves_is_forgotten(web: aiohttp.ClientSession) -> None:
    source = live()
    async with Site(source) as url:
        answer = await web.get(f"{url}/stream")
        await events_of(answer, 1)
        answer.close()

        def beat() -> bool:
            source.clock.at += 1  # type: ignore[attr-defined]
            source.step()
            return not source.viewers

        await until(beat, 60)


def test_a_viewer_that_falls_behind_is_told_to_start_again() -> None:
    viewer = Viewer()
    for number in range(VIEWER_QUEUE + 5):
        viewer.offer(b"%d" % number)

    assert viewer.behind
    assert viewer.queue.qsize() == 1


async def test_a_viewer_that_stops_reading_is_dropped() -> None:
    source, day = live(), Day()
    source.send_seconds = 0.2
    for _, event in mixed_day():
        source.board.take(event, START)
    async with Site(source) as url:
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(reader, ("127.0.0.1", int(url.rpartition(":")[2])))
        await loop.sock_sendall(reader, b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: bool(source.viewers), 60)
        steps = iter(range(10**6))

        def beat() -> bool:
            for _ in range(50):
                source.board.take(day.figures("l4", next(steps)), START)
            source.step()
            return not source.viewers

        await until(beat, 60)
        reader.close()


async def test_a_tape_answers_for_each_moment(web: aiohttp.ClientSession) -> None:
    async with Site(Timeline("a day", mixed_day(), ["day.jsonl: line 7: torn"])) as url:
        async with web.get(f"{url}/api/tape") as answer:
            about = await answer.json()
            assert (about["title"], about["notes"]) == ("a day", ["day.jsonl: line 7: torn"])
        async with web.get(f"{url}/api/state", params={"at": START + 150}) as answer:
            page = await answer.json()
            assert next(iter(page["phase"].values()))["data"]["phase"] == "Benchmarking"
        async with web.get(f"{url}/api/state", params={"at": "soon"}) as answer:
            assert answer.status == 422
        async with web.get(f"{url}/stream") as answer:
            assert answer.status == 404


async def test_live_has_no_tape(web: aiohttp.ClientSession) -> None:
    async with Site(live()) as url, web.get(f"{url}/api/tape") as answer:
        assert await answer.json() is None
