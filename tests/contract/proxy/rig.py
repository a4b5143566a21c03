"""A proxy on a real socket, a bus in memory, engines that misbehave on cue."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from flexinfer.adapters.bus.memory import MemoryBroker, MemoryBus
from flexinfer.apps.proxy import Proxy
from flexinfer.config.proxy import ProxySettings
from flexinfer.contracts.envelope import Event, EventMint
from flexinfer.contracts.events import Endpoint, EventData, ModelEndpoint
from flexinfer.runtime.clock import SystemClock
from flexinfer.testing.fake_engine import FakeEngine

DEADLINE = 60.0  # nothing is measured by it: a machine may be busy


@dataclass
class Answer:
    """What came back, to the byte."""

    status: int
    headers: dict[str, str]
    body: bytes
    raw: bytes
    clean: bool = True  # the framing was complete

    def error(self) -> dict[str, Any]:
        return msgspec.json.decode(self.body)["error"]


async def until(check: Any, why: str = "") -> None:
    """Wait for a condition with a deadline."""
    async with asyncio.timeout(DEADLINE):
        while not check():  # noqa: ASYNC110 - the conditions are state of many objects, none of which tells
            await asyncio.sleep(0.005)


class Wire:
    """A client connection spoken by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, port: int) -> "Wire":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 26))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, *, head_only: bool = False) -> Answer:
        async with asyncio.timeout(DEADLINE):
            return await self._answer(head_only=head_only)

    async def _answer(self, *, head_only: bool) -> Answer:
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        status = int(first.split(" ")[1])
        if head_only or status == 100:
            return Answer(status, headers, b"", head)
        if headers.get("transfer-encoding") == "chunked":
            body, raw, clean = await self._chunked()
        elif "content-length" in headers:
            body = raw = await self.reader.readexactly(int(headers["content-length"]))
            clean = True
        else:
            body = raw = await self.reader.read()
            clean = True
        return Answer(status, headers, body, head + raw, clean)

    async def _chunked(self) -> tuple[bytes, bytes, bool]:
        body = raw = b""
        try:
            while True:
                line = await self.reader.readuntil(b"\r\n")
                raw += line
                size = int(line.split(b";")[0], 16)
                if not size:
                    break
                piece = await self.reader.readexactly(size + 2)
                raw += piece
                body += piece[:-2]
            while (line := await self.reader.readuntil(b"\r\n")) != b"\r\n":
                raw += line
            return body, raw + line, True
        except (asyncio.IncompleteReadError, ConnectionError):
            return body, raw, False

    async def closed(self) -> bool:
        """The other side ended the connection."""
        try:
            async with asyncio.timeout(DEADLINE):
                return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


def post(path: str, body: bytes, *headers: str, length: bool = True) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: proxy", "Content-Type: application/json", *headers]
    if length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chat(model: str = "m", *, stream: bool = False, tokens: int = 4, extra: str = "") -> bytes:
    flag = "true" if stream else "false"
    return (
        f'{{"model": "{model}", "stream": {flag}, "max_tokens": {tokens}{extra}, '
        '"messages": [{"role": "user", "content": "hi"}]}'
    ).encode()


@dataclass
class Rig:
    """The proxy under test and its surroundings."""

    broker: MemoryBroker
    bus: MemoryBus
    mint: EventMint
    proxies: list[Proxy] = field(default_factory=list)
    engines: list[FakeEngine] = field(default_factory=list)
    heard: list[Event] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)

    @property
    def proxy(self) -> Proxy:
        return self.proxies[0]

    async def engine(self, **options: Any) -> FakeEngine:
        engine = await FakeEngine(**options).start()
        self.engines.append(engine)
        return engine

    async def start(self, **options: Any) -> Proxy:
        settings = ProxySettings(
            host="127.0.0.1",
            port=0,
            **{"instance": f"p{len(self.proxies)}", "drain_timeout": 2, "accept_timeout": 0, **options},
        )
        proxy = await Proxy(settings, MemoryBus(self.broker)).start()
        self.proxies.append(proxy)
        await until(lambda: proxy.directory.warm)
        return proxy

    async def tell(self, data: EventData) -> None:
        await self.bus.publish(self.mint.mint(data))

    async def route(self, *engines: FakeEngine | str, **options: Any) -> ModelEndpoint:
        """Publish a model served by these engines (or URLs) and wait until every proxy routes it."""
        speeds = options.pop("speeds", ())
        spec = ModelEndpoint(
            **{
                "namespace": "default",
                "model": "m",
                "backend": "llamacpp",
                "endpoints": tuple(
                    Endpoint(
                        url=engine if isinstance(engine, str) else engine.url,
                        pod=f"pod-{i}",
                        tokens_per_second=speeds[i] if i < len(speeds) else None,
                    )
                    for i, engine in enumerate(engines)
                ),
                **options,
            }
        )
        await self.tell(spec)
        key = f"{spec.namespace}/{spec.model}"
        for proxy in self.proxies:
            await until(lambda proxy=proxy: proxy.directory.table.routes.get(key) == (None if spec.gone else spec))
        return spec

    async def wire(self, proxy: Proxy | None = None) -> Wire:
        wire = await Wire.to((proxy or self.proxy).port)
        self.wires.append(wire)
        return wire

    async def ask(self, data: bytes, proxy: Proxy | None = None) -> Answer:
        wire = await self.wire(proxy)
        wire.send(data)
        return await wire.answer()

    def events(self, kind: type) -> list[Any]:
        return [event.data for event in self.heard if isinstance(event.data, kind)]


@asynccontextmanager
async def rig_of() -> AsyncIterator[Rig]:
    broker = MemoryBroker()
    bus = MemoryBus(broker)
    await bus.ensure()
    rig = Rig(broker, bus, EventMint.start("manager", "test", "boot-1", SystemClock().now))
    try:
        yield rig
    finally:
        for wire in rig.wires:
            await wire.close()
        for proxy in rig.proxies:
            await proxy.stop()
        for engine in rig.engines:
            await engine.stop()
        await bus.close()
