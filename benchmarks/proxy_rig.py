"""The two ends of the proxy benchmark: an engine and a load generator on bare protocols, one process each.

    python benchmarks/proxy_rig.py engine PORT
    python benchmarks/proxy_rig.py load '<JSON of Load>'

The engine answers chat completions: a short JSON document at once, or a stream of ``max_tokens`` events of which
``rate`` per second are due (request field; 0: as fast as they can be written). The load generator checks every answer
and prints one JSON document.
"""

import asyncio
import json
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

import httptools
import uvloop

SHORT = (
    b'{"id":"fake-1","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":" fake fake fake fake"},"logprobs":null,"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":4,"completion_tokens":4,"total_tokens":8}}'
)
EVENT = (
    b'data: {"id":"fake-1","object":"chat.completion.chunk","created":0,"model":"m","choices":'
    b'[{"index":0,"delta":{"content":" fake"},"logprobs":null,"finish_reason":null}]}\n\n'
)
DONE = b"data: [DONE]\n\n"
TICK = 0.01


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


class Engine(asyncio.Protocol):
    """One connection of the engine."""

    def __init__(self, streams: set["Stream"]) -> None:
        self._streams = streams
        self._stream: Stream | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._parser = httptools.HttpRequestParser(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if self._stream:
            self._streams.discard(self._stream)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body = b""
        self._url = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        if b"/chat/completions" not in self._url:
            self._plain(
                b'{"object":"list","data":[{"id":"m","object":"model","created":0,"owned_by":"x"}],"status":"ok"}'
            )
        elif b'"stream":true' in self._body or b'"stream": true' in self._body:
            ask = json.loads(self._body)
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            self._stream = Stream(
                self.transport, int(ask.get("max_tokens", 16)), float(ask.get("user", "rate 0").split()[1])
            )
            self._streams.add(self._stream)
        else:
            self._plain(SHORT)

    def _plain(self, body: bytes) -> None:
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )


@dataclass(eq=False)
class Stream:
    """An answer on its way; ``rate`` tokens per second, 0 as fast as the reader takes them."""

    transport: Any
    left: int
    rate: float
    sent: int = 0
    began: float = field(default_factory=time.monotonic)

    def due(self, now: float) -> int:
        if self.rate <= 0:
            return min(self.left, 8) if self.transport.get_write_buffer_size() == 0 else 0
        return min(self.left, int((now - self.began) * self.rate) - self.sent)


async def pump(streams: set[Stream]) -> None:
    """Write what is due, one chunk and one write per token as engines do."""
    piece, end = chunk(EVENT), chunk(DONE) + b"0\r\n\r\n"
    while True:
        now = time.monotonic()
        for stream in tuple(streams):
            due = stream.due(now)
            for _ in range(due):
                stream.transport.write(piece)
            stream.sent += due
            stream.left -= due
            if not stream.left:
                stream.transport.write(end)
                streams.discard(stream)
        await asyncio.sleep(TICK if all(stream.rate > 0 for stream in streams) else 0)


async def run_engine(port: int) -> None:
    """Serve for ever."""
    streams: set[Stream] = set()
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Engine(streams), "127.0.0.1", port, backlog=4096)
    await pump(streams)


@dataclass
class Load:
    """What one generator does: ``requests`` 0 runs for ``seconds``; ``rate`` and ``tokens`` are of streams."""

    port: int
    connections: int = 1
    requests: int = 0
    seconds: float = 0.0
    stream: bool = False
    tokens: int = 0
    rate: float = 0.0
    model: str = "m"
    hold: bool = False  # streams: report once all are open, then on each line of standard input


class Client(asyncio.Protocol):
    """One connection that asks again as soon as it is answered."""

    def __init__(self, load: Load, tally: "Tally") -> None:
        body: dict[str, Any] = {"model": load.model, "messages": [{"role": "user", "content": "hello there"}]}
        if load.stream:
            body |= {"stream": True, "max_tokens": load.tokens, "user": f"rate {load.rate}"}
        raw = json.dumps(body).encode()
        self._ask = (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer sk-bench\r\nContent-Length: %d\r\n\r\n%s" % (len(raw), raw)
        )
        self._tally = tally
        self._load = load
        self.asking = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._parser = httptools.HttpResponseParser(self)
        self.ask()

    def ask(self) -> None:
        tally = self._tally
        if tally.left is not None:
            if tally.left <= 0:
                tally.finish(self)
                return
            tally.left -= 1
        elif time.perf_counter() >= tally.until:
            tally.finish(self)
            return
        self.asking = True
        self._body = 0
        self._events = 0
        self._began = time.perf_counter()
        self.transport.write(self._ask)

    def data_received(self, data: bytes) -> None:
        if self._load.stream:
            events = data.count(b"data: {")
            self._events += events
            self._tally.tokens += events
            if events:
                self._tally.seen(self, time.perf_counter())
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self._body += len(data)

    def on_message_complete(self) -> None:
        self.asking = False
        took = time.perf_counter() - self._began
        good = self._parser.get_status_code() == 200
        good = good and (self._events == self._load.tokens if self._load.stream else self._body > 100)
        if good:
            self._tally.times.append(took)
        else:
            self._tally.errors += 1
        if not self._parser.should_keep_alive():
            self.transport.close()
            return
        self.ask()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if self.asking:
            self._tally.errors += 1
            self.asking = False
        self._tally.lost(self)


class Tally:
    """Counts of all connections of one load."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self.times: list[float] = []
        self.errors = 0
        self.tokens = 0
        self.left = load.requests or None
        self.until = float("inf") if load.hold else time.perf_counter() + load.seconds
        self.done = asyncio.Event()
        self.gaps: deque[float] = deque(maxlen=200_000)
        self._last: dict[Client, float] = {}
        self._finished: set[Client] = set()
        self.clients: set[Client] = set()

    def seen(self, client: Client, now: float) -> None:
        last = self._last.get(client)
        if last is not None:
            self.gaps.append(now - last)
        self._last[client] = now

    def finish(self, client: Client) -> None:
        self._finished.add(client)
        if len(self._finished) >= self._load.connections:
            self.done.set()

    def lost(self, client: Client) -> None:
        self.clients.discard(client)
        if self.done.is_set():
            return
        asyncio.get_running_loop().create_task(self.connect())

    async def connect(self) -> None:
        """Open one connection; refusals count as errors and are tried again for a few seconds."""
        loop = asyncio.get_running_loop()
        for _ in range(500):
            if self.done.is_set():
                return
            try:
                _, client = await loop.create_connection(lambda: Client(self._load, self), "127.0.0.1", self._load.port)
            except OSError:
                self.errors += 1
                await asyncio.sleep(0.01)
            else:
                self.clients.add(client)
                return
        raise SystemExit(f"nobody listens on port {self._load.port}")


def quantile(values: list[float], share: float) -> float:
    """Of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


async def run_load(load: Load) -> dict[str, Any]:
    """The result of one load."""
    tally = Tally(load)
    began = time.perf_counter()
    for _ in range(load.connections):
        await tally.connect()
    if load.hold:
        await hold(tally)
    else:
        # Opening is not what is measured.
        began = time.perf_counter()
        tally.until, tally.tokens = began + load.seconds, 0
        tally.gaps.clear()
        async with asyncio.timeout(load.seconds + 120):
            if load.stream and not load.requests:
                await asyncio.sleep(load.seconds)
            else:
                await tally.done.wait()
    spent = time.perf_counter() - began
    tally.done.set()
    times, gaps = sorted(tally.times), sorted(tally.gaps)
    return {
        **{k: v for k, v in asdict(load).items() if k in {"connections", "tokens", "rate"}},
        "requests": len(times),
        "errors": tally.errors,
        "seconds": spent,
        "requests_per_second": len(times) / spent,
        "tokens_per_second": tally.tokens / spent,
        "p50_ms": 1000 * quantile(times, 0.5),
        "p95_ms": 1000 * quantile(times, 0.95),
        "p99_ms": 1000 * quantile(times, 0.99),
        "gap_p50_ms": 1000 * quantile(gaps, 0.5),
        "gap_p99_ms": 1000 * quantile(gaps, 0.99),
    }


async def hold(tally: Tally) -> None:
    """Keep streams open; answer each line of standard input with the state, end at its end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        print(json.dumps({"open": len(tally.clients), "errors": tally.errors, "tokens": tally.tokens}), flush=True)


def main() -> None:
    if sys.argv[1] == "engine":
        uvloop.run(run_engine(int(sys.argv[2])))
    else:
        print(json.dumps(uvloop.run(run_load(Load(**json.loads(sys.argv[2]))))), flush=True)


if __name__ == "__main__":
    main()
