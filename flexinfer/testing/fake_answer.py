"""The fake engine's answers: what a request wants, what it gets and when, and what goes wrong on the way."""

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from flexinfer.testing.fake_wire import Exchange

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


@dataclass(frozen=True, slots=True)
class Style:
    """How an engine answers; see the fields of FakeEngine."""

    speeds: Speeds
    model: str
    timings: bool
    eos_after: int | None


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

    def __init__(self, ask: Ask, fault: Fault, style: Style, totals: Totals, number: int) -> None:
        self._style = style
        self._totals = totals
        self._ask = ask
        self._fault = fault
        self._total = ask.max_tokens
        if fault.tokens is not None:
            self._total = fault.tokens
        elif style.eos_after is not None and not ask.ignore_eos:
            self._total = min(style.eos_after, ask.max_tokens)
        self._finish = "length" if self._total >= ask.max_tokens else "stop"
        self._head = {
            "id": f"fake-{number}",
            "created": 0,
            "model": fault.model or ask.model or style.model,
            "object": "chat.completion" if ask.chat else "text_completion",
        }
        self._loop_time = asyncio.get_running_loop().time
        self._began = self._loop_time()
        self._prompt_seconds = ask.prompt_tokens / style.speeds.prompt_tokens_per_second
        self._step = 1.0 / style.speeds.tokens_per_second
        totals.prompt_tokens += ask.prompt_tokens

    async def whole(self, out: Exchange) -> bool:
        """The answer as one JSON document."""
        await out.pause(self._prompt_seconds + self._total * self._step)
        self._totals.completion_tokens += self._total
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
        elif self._style.timings and not self._fault.no_usage:
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
            self._totals.completion_tokens += due - sent
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
        if self._style.timings:
            predicted = max(0.0, self._loop_time() - self._began - self._prompt_seconds)
            extra["timings"] = {
                "cache_n": 0,
                "prompt_n": self._ask.prompt_tokens,
                "prompt_ms": self._prompt_seconds * 1000,
                "predicted_n": self._total,
                "predicted_ms": predicted * 1000,
            }
        return extra


def _data(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
