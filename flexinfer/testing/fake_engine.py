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

from flexinfer.testing.fake_wire import Broken, Exchange, Request, read_request

FOREVER = 1e9
_WORD = " fake"


@dataclass(frozen=True, slots=True)
class Fault:
    """How one request is answered wrongly; counts are in completion tokens, times in seconds.

    The default is a correct answer. ``*_after`` happen once that many tokens were sent.
    """

    status: int | None = None  # answer with this error at once
    retry_after: int | None = None  # with the error, as a header
    first_byte_delay: float = 0.0  # silence before the response head
    first_token_delay: float = 0.0  # silence after the head of a stream
    stall_after: int | None = None
    stall_for: float = FOREVER
    reset_after: int | None = None  # TCP reset
    truncate_after: int | None = None  # FIN without the end of the chunked body
    malformed_after: int | None = None  # one event whose data is not JSON
    error_after: int | None = None  # an error event inside the stream, then its end
    no_usage: bool = False
    no_done: bool = False  # the stream ends without ``[DONE]``
    tokens: int | None = None  # this many tokens whatever was asked; 0: none
    model: str | None = None  # the model name in the answer
    drop: bool = False  # close the connection without an answer


CLEAN = Fault()


@dataclass(slots=True)
class Totals:
    """Counters since start."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    active: int = 0
    waiting: int = 0
    peak_active: int = 0
    finished: int = 0
    cancelled: int = 0  # the client left before the end
    connections: int = 0


@dataclass(frozen=True, slots=True)
class Speeds:
    """Declared speed. Token k of a stream is due at start + prompt time + (k + 1) / ``tokens_per_second``."""

    tokens_per_second: float = 1000.0
    prompt_tokens_per_second: float = FOREVER


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

    async def _decode(self, ask: "Ask", fault: Fault, out: Exchange) -> bool:
        if self._gate is None:
            raise RuntimeError("start() first")
        self.totals.waiting += 1
        try:
            await self._gate.acquire()
        finally:
            self.totals.waiting -= 1
        began = asyncio.get_running_loop().time()
        self.totals.active += 1
        self.totals.peak_active = max(self.totals.peak_active, self.totals.active)
        try:
            answer = Answer(self, ask, fault, next(self._ids), began)
            reusable = await (answer.stream(out) if ask.stream else answer.whole(out))
            self.totals.finished += 1
            return reusable and not (ask.stream and self.close_after_stream)
        except (Broken, ConnectionError):
            self.totals.cancelled += 1
            raise
        finally:
            self.totals.active -= 1
            self._gate.release()

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


@dataclass(frozen=True, slots=True)
class Ask:
    """What an inference request wants; a prompt counts one token per word, a chat message three more."""

    model: str
    chat: bool
    stream: bool
    include_usage: bool
    max_tokens: int
    ignore_eos: bool
    prompt_tokens: int

    @classmethod
    def read(cls, body: bytes, *, chat: bool) -> "Ask":
        """Raises ValueError for what is no request."""
        try:
            raw = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as err:
            raise ValueError(f"not JSON: {err}") from err
        if not isinstance(raw, dict):
            raise ValueError("the body is not an object")  # noqa: TRY004 - one error type for every bad body
        if chat:
            messages = raw.get("messages")
            if not isinstance(messages, list) or not messages:
                raise ValueError("'messages' is required")
            prompt_tokens = sum(len(str(m.get("content", "")).split()) + 3 for m in messages if isinstance(m, dict))
        else:
            prompt = raw.get("prompt", "")
            prompt_tokens = len(prompt) if isinstance(prompt, list) else len(str(prompt).split())
        limit = raw.get("max_completion_tokens", raw.get("max_tokens", 16))
        options = raw.get("stream_options") or {}
        return cls(
            str(raw.get("model", "")),
            chat,
            bool(raw.get("stream")),
            bool(options.get("include_usage")),
            limit if isinstance(limit, int) and limit >= 0 else 16,
            bool(raw.get("ignore_eos")),
            prompt_tokens,
        )


class Answer:
    """One completion on its way out."""

    def __init__(self, engine: FakeEngine, ask: Ask, fault: Fault, number: int, began: float) -> None:
        self._engine = engine
        self._ask = ask
        self._fault = fault
        self._total = _length(engine, ask, fault)
        self._finish = "length" if self._total >= ask.max_tokens else "stop"
        self._head = {
            "id": f"fake-{number}",
            "created": 0,
            "model": fault.model or ask.model or engine.models[0],
            "object": "chat.completion" if ask.chat else "text_completion",
        }
        self._loop_time = asyncio.get_running_loop().time
        self._began = began
        self._prompt_seconds = ask.prompt_tokens / engine.speeds.prompt_tokens_per_second
        self._step = 1.0 / engine.speeds.tokens_per_second
        engine.totals.prompt_tokens += ask.prompt_tokens

    async def whole(self, out: Exchange) -> bool:
        """The answer as one JSON document."""
        await out.pause(self._prompt_seconds + self._total * self._step)
        self._engine.totals.completion_tokens += self._total
        text = _WORD * self._total
        said = {"message": {"role": "assistant", "content": text}} if self._ask.chat else {"text": text}
        choice = {"index": 0, "finish_reason": self._finish, **said}
        await out.respond(200, msgspec.json.encode({**self._head, "choices": [choice], **self._closing(usage=True)}))
        return True

    async def stream(self, out: Exchange) -> bool:
        """The answer as server-sent events in chunks."""
        if self._ask.chat:
            self._head["object"] = "chat.completion.chunk"
        await out.begin_stream()
        if self._ask.chat:
            out.chunk(self._event({"delta": {"role": "assistant", "content": None}}))
        await out.pause(self._fault.first_token_delay)
        if not await self._tokens(out):
            return False
        if self._ask.chat:
            out.chunk(self._event({"delta": {}}, self._finish))
        else:
            out.chunk(self._event({"text": ""}, self._finish))
        if self._ask.include_usage and not self._fault.no_usage:
            out.chunk(_data({**self._head, "choices": [], **self._closing(usage=True)}))
        elif self._engine.timings and not self._fault.no_usage:
            out.chunk(_data({**self._head, "choices": [], **self._closing(usage=False)}))
        if not self._fault.no_done:
            out.chunk(b"data: [DONE]\n\n")
        await out.end_stream()
        return True

    async def _tokens(self, out: Exchange) -> bool:
        """Send each token when it is due; False when a fault ended the stream."""
        piece = self._event({"delta": {"content": _WORD}} if self._ask.chat else {"text": _WORD})
        fault = self._fault
        cues = {fault.stall_after, fault.reset_after, fault.truncate_after, fault.malformed_after, fault.error_after}
        cues.discard(None)
        start = self._loop_time() + self._prompt_seconds
        sent = 0
        while True:
            if sent in cues:
                cues.discard(sent)
                if not await self._misbehave(sent, out):
                    return False
                start = max(start, self._loop_time() - sent * self._step)
            if sent >= self._total:
                return True
            now = self._loop_time()
            due = min(self._total, int((now - start) / self._step + 1e-6)) if now > start else 0
            if due <= sent:
                await out.pause(start + (sent + 1) * self._step - now)
                continue
            due = min([due, *(cue for cue in cues if cue is not None and cue > sent)])
            out.chunk(piece, due - sent)
            self._engine.totals.completion_tokens += due - sent
            sent = due
            await out.flush()

    async def _misbehave(self, sent: int, out: Exchange) -> bool:
        fault = self._fault
        await out.flush()
        if sent == fault.malformed_after:
            out.chunk(b'data: {"choices": [{"text": \n\n')
        if sent == fault.error_after:
            out.chunk(_data({"error": {"code": 500, "message": "fault on cue", "type": "server_error"}}))
            await out.end_stream()
            return False
        if sent == fault.reset_after:
            out.reset()
            return False
        if sent == fault.truncate_after:
            out.truncate()
            return False
        if sent == fault.stall_after:
            await out.pause(fault.stall_for)
        return True

    def _event(self, said: dict[str, Any], finish: str | None = None) -> bytes:
        return _data({**self._head, "choices": [{"index": 0, "finish_reason": finish, **said}]})

    def _closing(self, *, usage: bool) -> dict[str, Any]:
        extra: dict[str, Any] = {}
        if usage and not self._fault.no_usage:
            extra["usage"] = {
                "prompt_tokens": self._ask.prompt_tokens,
                "completion_tokens": self._total,
                "total_tokens": self._ask.prompt_tokens + self._total,
            }
        if self._engine.timings:
            predicted = max(0.0, self._loop_time() - self._began - self._prompt_seconds)
            extra["timings"] = {
                "cache_n": 0,
                "prompt_n": self._ask.prompt_tokens,
                "prompt_ms": self._prompt_seconds * 1000,
                "predicted_n": self._total,
                "predicted_ms": predicted * 1000,
            }
        return extra


def _length(engine: FakeEngine, ask: Ask, fault: Fault) -> int:
    if fault.tokens is not None:
        return fault.tokens
    if engine.eos_after is not None and not ask.ignore_eos:
        return min(engine.eos_after, ask.max_tokens)
    return ask.max_tokens


def _data(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def _error(code: int, message: str, kind: str) -> bytes:
    return msgspec.json.encode({"error": {"code": code, "message": message, "type": kind}})


def _embedding(model: str) -> bytes:
    row = {"object": "embedding", "index": 0, "embedding": [0.0, 1.0]}
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return msgspec.json.encode({"object": "list", "model": model, "data": [row], "usage": usage})
