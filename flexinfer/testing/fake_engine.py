"""An OpenAI-compatible engine with exact token timing and faults on cue, for tests of clients and proxies.

It answers as llama.cpp's server does (paths, stream events, ``usage``, ``timings``, metric names) but its text is
made up: everything it says about itself carries ``fake``. It is a plain asyncio server that speaks HTTP/1.1 by
hand, because resets, truncated bodies and keep-alive lies cannot be told through a web framework.
"""

import asyncio
import contextlib
import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import msgspec

from flexinfer.testing.fake_answer import CLEAN, Answer, Ask, Fault, Speeds, Style, Totals
from flexinfer.testing.fake_wire import Broken, Exchange, Request, read_request

__all__ = ["CLEAN", "FakeEngine", "Fault", "Request", "Speeds", "Totals"]


@dataclass(slots=True)
class FakeEngine:
    """``await start()``, then ``url``; ``await stop()`` cuts what is open. Every field may be changed while it runs.

    ``close_after_stream`` repeats llama.cpp's habit of announcing keep-alive and closing all the same.
    ``eos_after`` ends an answer early unless the request says ``ignore_eos``.
    """

    models: tuple[str, ...] = ("fake-model",)
    speeds: Speeds = field(default_factory=Speeds)
    slots: int = 64  # requests decoded at once; the others wait
    host: str = "127.0.0.1"
    port: int = 0
    loading: bool = False  # true: 503 everywhere, as while a model loads
    strict_model: bool = False  # true: 404 for a name it does not have
    close_after_stream: bool = True
    timings: bool = True
    eos_after: int | None = None
    fault: Fault = CLEAN  # of every request without a scripted one
    ssl: Any = None
    totals: Totals = field(default_factory=Totals)
    seen: list[Request] = field(default_factory=list)
    _script: deque[Fault] = field(default_factory=deque)
    _ids: Any = field(default_factory=itertools.count)
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _gate: asyncio.Semaphore | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _serving: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Base URL without a path."""
        return f"{'https' if self.ssl else 'http'}://{self.host}:{self.port}"

    def then(self, *faults: Fault) -> None:
        """The next inference requests are answered so, one each, before ``fault`` applies again."""
        self._script.extend(faults)

    async def start(self) -> "FakeEngine":
        """Listen; ``port`` 0 becomes the port that was free."""
        self._gate = asyncio.Semaphore(self.slots)
        self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self.ssl, limit=1 << 22)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Stop listening and cut open connections."""
        if self._server is None:
            return
        self._server.close()
        for writer in tuple(self._open):
            writer.transport.abort()
        await self._server.wait_closed()
        if self._serving:
            await asyncio.wait(self._serving)
        self._server = None

    async def idle(self) -> None:
        """Wait until no request is being decoded."""
        if self.totals.active:
            await self._idle.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.totals.connections += 1
        self._open.add(writer)
        task = asyncio.current_task()
        if task:
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        try:
            while (request := await read_request(reader)) is not None:
                self.seen.append(request)
                if not await self._answer(request, Exchange(reader, writer)):
                    break
        except (Broken, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open.discard(writer)
            with contextlib.suppress(ConnectionError):
                writer.close()

    async def _answer(self, request: Request, out: Exchange) -> bool:
        """Answer one request; tells whether the connection may be used again."""
        path = request.path.partition("?")[0]
        if path == "/metrics":
            await out.respond(200, self._metrics(), "text/plain; version=0.0.4")
        elif self.loading:
            await out.respond(503, _error(503, "Loading model", "unavailable_error"))
        elif path == "/health":
            await out.respond(200, b'{"status":"ok"}')
        elif path == "/v1/models":
            rows = [{"id": name, "object": "model", "owned_by": "fake"} for name in self.models]
            await out.respond(200, msgspec.json.encode({"object": "list", "data": rows}))
        elif path == "/slots":
            await out.respond(200, self._slots())
        elif path == "/v1/embeddings" and request.method == "POST":
            await out.respond(200, _embedding(self.models[0]))
        elif path in {"/v1/chat/completions", "/v1/completions"} and request.method == "POST":
            return await self._infer(request, out, chat="chat" in path)
        else:
            await out.respond(404, _error(404, "File Not Found", "not_found_error"))
        return True

    async def _infer(self, request: Request, out: Exchange, *, chat: bool) -> bool:
        fault = self._script.popleft() if self._script else self.fault
        self.totals.requests += 1
        try:
            ask = Ask.read(request.body, chat=chat)
        except ValueError as err:
            await out.respond(400, _error(400, str(err), "invalid_request_error"))
            return True
        if self.strict_model and ask.model not in self.models:
            await out.respond(404, _error(404, f"model {ask.model!r} not found", "not_found_error"))
            return True
        await out.pause(fault.first_byte_delay)
        if fault.drop:
            out.reset()
            return False
        if fault.status is not None:
            extra = () if fault.retry_after is None else (f"Retry-After: {fault.retry_after}",)
            await out.respond(fault.status, _error(fault.status, "fault on cue", "server_error"), headers=extra)
            return True
        return await self._decode(ask, fault, out)

    async def _decode(self, ask: Ask, fault: Fault, out: Exchange) -> bool:
        if self._gate is None:
            raise RuntimeError("start() first")
        self.totals.waiting += 1
        try:
            await self._gate.acquire()
        finally:
            self.totals.waiting -= 1
        self.totals.active += 1
        self._idle.clear()
        self.totals.peak_active = max(self.totals.peak_active, self.totals.active)
        try:
            style = Style(self.speeds, self.models[0], self.timings, self.eos_after)
            answer = Answer(ask, fault, style, self.totals, next(self._ids))
            reusable = await (answer.stream(out) if ask.stream else answer.whole(out))
            self.totals.finished += 1
            return reusable and not (ask.stream and self.close_after_stream)
        except (Broken, ConnectionError):
            self.totals.cancelled += 1
            raise
        finally:
            self.totals.active -= 1
            self._gate.release()
            if not self.totals.active:
                self._idle.set()

    def _metrics(self) -> bytes:
        rows = {
            "prompt_tokens_total": self.totals.prompt_tokens,
            "tokens_predicted_total": self.totals.completion_tokens,
            "predicted_tokens_seconds": self.speeds.tokens_per_second,
            "requests_processing": self.totals.active,
            "requests_deferred": self.totals.waiting,
            "n_busy_slots_per_decode": self.totals.active,
        }
        lines = []
        for name, value in rows.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP llamacpp:{name} fake", f"# TYPE llamacpp:{name} {kind}", f"llamacpp:{name} {value}"]
        return ("\n".join(lines) + "\n").encode()

    def _slots(self) -> bytes:
        rows = [
            {"id": i, "n_ctx": 4096, "is_processing": i < self.totals.active, "n_prompt_tokens": 0,
             "next_token": [{"n_decoded": 0}]}
            for i in range(self.slots)
        ]  # fmt: skip
        return msgspec.json.encode(rows)


def _error(code: int, message: str, kind: str) -> bytes:
    return msgspec.json.encode({"error": {"code": code, "message": message, "type": kind}})


def _embedding(model: str) -> bytes:
    row = {"object": "embedding", "index": 0, "embedding": [0.0, 1.0]}
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return msgspec.json.encode({"object": "list", "model": model, "data": [row], "usage": usage})
