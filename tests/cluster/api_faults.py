"""A loopback proxy in front of the API server that breaks what a test asks it to break."""

import asyncio
import re
import selectors
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import orjson
import yaml
from aiohttp import web

from flexinfer.local.ports import free_port

HEADERS = ("Authorization", "Content-Type", "Accept", "User-Agent")


@dataclass(frozen=True)
class Call:
    """One request of the client: ``line`` is ``METHOD /path?query``."""

    line: str
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        found = orjson.loads(self.body) if self.body else {}
        return found if isinstance(found, dict) else {}


@dataclass
class Fault:
    """What happens to requests whose line matches ``pattern``; exactly one of the ways is set.

    ``status``: answered so without asking the server. ``before``: done first, then the server is asked. ``twice``:
    the server is asked twice and the second answer counts. ``error``: a watch begins with this ERROR event.
    """

    pattern: str
    times: int = 1
    status: int = 0
    retry_after: int = 0
    before: Callable[[Call], None] | None = None
    twice: bool = False
    error: int = 0
    struck: int = 0
    answers: list[int] = field(default_factory=list)  # what the client was told

    def takes(self, call: Call) -> bool:
        if self.struck >= self.times or not re.search(self.pattern, call.line):
            return False
        self.struck += 1
        return True


def _refusal(status: int) -> bytes:
    reason = {409: "Conflict", 410: "Expired", 429: "TooManyRequests"}.get(status, "InternalError")
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason,
            "message": f"made by a test: {reason}"}  # fmt: skip
    return orjson.dumps(body)


def nothing(_call: Call, _status: int) -> None:
    """What happens after a write unless a test says more."""


class ApiProxy:
    """Runs on a loop of its own in a thread. ``after`` is called with each answered write, and may kill the client."""

    def __init__(self, target: str, ca: Path) -> None:
        self._target = target
        self._tls = ssl.create_default_context(cafile=str(ca))
        self.port = free_port()
        self.faults: list[Fault] = []
        self.after: Callable[[Call, int], None] = nothing
        self._after = threading.Lock()
        self._watches: set[asyncio.Transport] = set()
        self._selector = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._threads = ThreadPoolExecutor(2)
        self._up = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> "ApiProxy":
        self._thread.start()
        assert self._up.wait(30)
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        self._threads.shutdown()

    def kubeconfig(self, path: Path, token: str) -> Path:
        path.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "faults",
            "clusters": [{"name": "faults", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "faults", "user": {"token": token}}],
            "contexts": [{"name": "faults", "context": {"cluster": "faults", "user": "faults"}}],
        }))  # fmt: skip
        return path

    def add(self, fault: Fault) -> Fault:
        self.faults.append(fault)
        return fault

    def calm(self) -> None:
        """No more faults; when this returns ``after`` is not called any more, not even for a request under way."""
        with self._after:
            self.after = nothing
        self.faults.clear()

    def drop_watches(self) -> int:
        """Cut every open watch as a broken link would; how many there were."""
        found = list(self._watches)
        for transport in found:
            self._loop.call_soon_threadsafe(transport.abort)
        return len(found)

    def _tell(self, call: Call, status: int) -> None:
        with self._after:
            self.after(call, status)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        async with aiohttp.ClientSession(auto_decompress=False) as self._session:
            await web.TCPSite(runner, "127.0.0.1", self.port).start()
            self._up.set()
            await self._stop.wait()
            self.drop_watches()
            await runner.cleanup()
            # watches of clients that were killed wait for news that nobody would read
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
        # TLS says goodbye in its own time; a loop that is closed before leaves the sockets to the garbage collector.
        async with asyncio.timeout(60):
            while len(self._selector.get_map()) > 1:  # noqa: ASYNC110 - the loop's own wake-up is the one
                await asyncio.sleep(0.02)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        call = Call(f"{request.method} {request.path_qs}", await request.read())
        fault = next((fault for fault in self.faults if fault.takes(call)), None)
        if fault is not None and fault.status:
            headers = {"Retry-After": str(fault.retry_after)} if fault.retry_after else {}
            fault.answers.append(fault.status)
            return web.Response(
                status=fault.status, body=_refusal(fault.status), content_type="application/json", headers=headers
            )
        if fault is not None and fault.before:
            await self._loop.run_in_executor(self._threads, fault.before, call)
        if "watch=true" in call.line:
            return await self._watch(request, call, fault)
        status, body = await self._ask(request, call)
        if fault is not None and fault.twice:
            status, body = await self._ask(request, call)
        if fault is not None:
            fault.answers.append(status)
        if request.method != "GET":
            await self._loop.run_in_executor(self._threads, self._tell, call, status)
        return web.Response(status=status, body=body, content_type="application/json")

    async def _ask(self, request: web.Request, call: Call) -> tuple[int, bytes]:
        async with self._open(request, call) as answer:
            return answer.status, await answer.read()

    def _open(self, request: web.Request, call: Call) -> "aiohttp.client._RequestContextManager":
        headers = {name: request.headers[name] for name in HEADERS if name in request.headers}
        return self._session.request(
            request.method, f"{self._target}{request.path_qs}", data=call.body or None, headers=headers, ssl=self._tls,
            timeout=aiohttp.ClientTimeout(total=None),
        )  # fmt: skip

    async def _watch(self, request: web.Request, call: Call, fault: Fault | None) -> web.StreamResponse:
        async with self._open(request, call) as answer:
            response = web.StreamResponse(status=answer.status)
            response.content_type = "application/json"
            await response.prepare(request)
            transport = request.transport
            if transport is None:
                return response
            self._watches.add(transport)
            try:
                if fault is not None and fault.error:
                    fault.answers.append(fault.error)
                    await response.write(b'{"type":"ERROR","object":' + _refusal(fault.error) + b"}\n")
                    return response
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            except ConnectionError:  # cut by a test, or the client was killed
                return response
            finally:
                self._watches.discard(transport)
            return response
