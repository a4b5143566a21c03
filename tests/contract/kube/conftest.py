"""A Kubernetes API behind a link that can fail, and a scripted server for answers no real one gives.

The suites know the API server only through ``server``; another implementation needs another fixture of that name.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import yaml

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.adapters.kube.credentials import Access
from flexinfer.contracts.kubernetes import Object
from flexinfer.local.kubeapi import EmbeddedApi
from flexinfer.ports import KubeFact, Relisted
from flexinfer.runtime.tasks import Supervisor

NAMESPACE = "default"


class Link:
    """A TCP relay. ``mode``: pass bytes, hang (take everything, deliver nothing), refuse new connections."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> "Link":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def set(self, mode: Literal["pass", "hang", "refuse"]) -> None:
        self._refusing = mode == "refuse"
        if mode == "hang":
            self._flowing.clear()
        else:
            self._flowing.set()
        if mode == "refuse":
            self.cut()

    def cut(self) -> None:
        """Break every connection."""
        for writer in list(self._open):
            writer.transport.abort()

    async def stop(self) -> None:
        assert self._server
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._refusing:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self._open |= {writer, far_writer}
        try:
            # asyncio's server logs a cancelled connection as an error; at the end of a test it is none.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        finally:
            for each in (writer, far_writer):
                self._open.discard(each)
                each.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                await self._flowing.wait()
                sink.write(data)
                await sink.drain()
        sink.transport.abort() if sink.is_closing() else sink.close()


@dataclass
class Server:
    """The API server of the suites: where it is, and what can be done to it."""

    embedded: EmbeddedApi
    folder: Path

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.embedded.port

    def kubeconfig(self, port: int | None = None, token: str | None = None) -> Path:
        """A kubeconfig, for another port or with another token if one is given."""
        config = self.embedded.kubeconfig()
        host, own = self.address
        config["clusters"] = [{"name": "flexinfer", "cluster": {"server": f"http://{host}:{port or own}"}}]
        if token is not None:
            config["users"] = [{"name": "flexinfer", "user": {"token": token}}]
        path = self.folder / f"kubeconfig-{port}-{token}"
        path.write_text(yaml.safe_dump(config))
        return path

    def forget_history(self) -> None:
        """Old resourceVersions and continue tokens get 410 from now on."""
        self.embedded.expire()

    def end_watches(self) -> None:
        self.embedded.end_watches()

    async def restart(self) -> None:
        await self.embedded.stop()
        await self.embedded.start()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    embedded = await EmbeddedApi(controllers=False).start()
    yield Server(embedded, tmp_path)
    await embedded.stop()


@pytest.fixture
async def link(server: Server) -> AsyncIterator[Link]:
    relay = await Link(*server.address).start()
    yield relay
    await relay.stop()


@pytest.fixture
async def api(server: Server, link: Link) -> AsyncIterator[KubeClient]:
    """A client whose link can fail."""
    client = await KubeClient.connect(server.kubeconfig(link.port), timeout=2.0)
    yield client
    await client.aclose()


@pytest.fixture
async def direct(server: Server) -> AsyncIterator[KubeClient]:
    """A client whose link cannot."""
    client = await KubeClient.connect(server.kubeconfig())
    yield client
    await client.aclose()


@pytest.fixture
async def tasks() -> AsyncIterator[Supervisor]:
    supervisor = Supervisor("test")
    yield supervisor
    await supervisor.close()


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    async def wait(condition: Callable[[], object], seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - what is waited for is on the other side of a socket
                await asyncio.sleep(0.005)

    return wait


@dataclass
class Facts:
    """A sink that remembers."""

    seen: list[KubeFact] = field(default_factory=list)

    def __call__(self, fact: KubeFact) -> None:
        self.seen.append(fact)

    @property
    def told(self) -> list[str]:
        """``LIST a,b`` and ``ADDED a`` in the order of delivery."""
        return [
            "LIST " + ",".join(sorted(item["metadata"]["name"] for item in fact.objects))
            if isinstance(fact, Relisted)
            else f"{fact.action} {fact.name}"
            for fact in self.seen
        ]


@pytest.fixture
def facts() -> Facts:
    return Facts()


Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


class Scripted:
    """An HTTP server that hands each request line to the next answer; the last one stays."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.answers: list[Answer] = []
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def start(self) -> "Scripted":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def client(self, *, timeout: float = 2.0, idle: float = 60.0) -> KubeClient:
        return KubeClient(Access(f"http://127.0.0.1:{self.port}"), timeout=timeout, idle=idle)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests.append(head.split(b"\r\n")[0].decode())
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            await answer(head, writer)
            await writer.drain()
        writer.close()
        self._writers.discard(writer)

    async def stop(self) -> None:
        assert self._server
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()


def reply(status: int, body: bytes | Object | str, headers: str = "") -> Answer:
    """A complete answer that closes the connection."""
    import json  # noqa: PLC0415 - only for dictionaries

    payload = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()

    async def answer(_head: bytes, writer: asyncio.StreamWriter) -> None:
        start = f"HTTP/1.1 {status} X\r\nContent-Length: {len(payload)}\r\nConnection: close\r\n{headers}\r\n"
        writer.write(start.encode() + payload)

    return answer


def stream(*chunks: bytes, stay: bool = False) -> Answer:
    """A watch answer in chunks; ``stay`` keeps the connection open, silent."""

    async def answer(_head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for chunk in chunks:
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            await writer.drain()
        if stay:
            await asyncio.Event().wait()
        writer.write(b"0\r\n\r\n")

    return answer


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    running = await Scripted().start()
    yield running
    await running.stop()


@pytest.fixture
def answers() -> type:
    """The two makers of answers, for tests that cannot import a conftest."""

    class Makers:
        reply = staticmethod(reply)
        stream = staticmethod(stream)

    return Makers


def make(name: str, **data: str) -> Object:
    return {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data,
    }  # fmt: skip


@pytest.fixture
def configmap() -> Callable[..., Object]:
    return make
