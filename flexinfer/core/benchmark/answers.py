"""The events of one streamed completion, chat or text, folded into what a measurement needs.

OpenAI's stream format, with llama.cpp's ``timings`` beside ``usage``. Fields we do not know are ignored, a field
of the wrong type makes the stream malformed.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from flexinfer.core.benchmark.sse import StreamProblem

DONE = b"[DONE]"
_Count = Annotated[int, Meta(ge=0)]
_Amount = Annotated[float, Meta(ge=0)]


class _Delta(Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Details(Struct):
    cached_tokens: _Count | None = None


class Usage(Struct, frozen=True):
    """Token counts as the server billed them."""

    prompt_tokens: _Count
    completion_tokens: _Count
    prompt_tokens_details: _Details | None = None


class Timings(Struct, frozen=True):
    """llama.cpp's own clock of one request, in milliseconds."""

    prompt_n: _Count
    prompt_ms: _Amount
    predicted_n: _Count
    predicted_ms: _Amount
    cache_n: _Count = 0


class _Chunk(Struct):
    choices: list[_Choice] = []
    usage: Usage | None = None
    timings: Timings | None = None
    model: str | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Chunk)


class Answer:
    """Fold each event's data with the time it arrived; read the attributes at the end."""

    __slots__ = ("done", "finish_reason", "model", "parts", "timings", "token_times", "usage")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.token_times: list[float] = []
        self.usage: Usage | None = None
        self.timings: Timings | None = None
        self.finish_reason: str | None = None
        self.model: str | None = None
        self.done = False

    def fold(self, data: bytes, at: float) -> None:
        """One event. Raises StreamProblem: MalformedStream, or EngineFailed for an error event."""
        if self.done or data == DONE:
            self.done = True
            return
        try:
            chunk = _decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
            raise StreamProblem("MalformedStream", f"event {data[:80]!r} is no completion chunk: {err}") from err
        if chunk.error is not None:
            raise StreamProblem("EngineFailed", f"the stream carries an error: {_said(chunk.error)}")
        for choice in chunk.choices:
            self._choice(choice, at)
        self.usage = chunk.usage or self.usage
        self.timings = chunk.timings or self.timings
        self.model = self.model or chunk.model

    def _choice(self, choice: _Choice, at: float) -> None:
        text = choice.text
        if text is None and choice.delta is not None:
            text = choice.delta.content or choice.delta.reasoning_content or choice.delta.reasoning
        if text:
            self.parts.append(text)
            self.token_times.append(at)
        self.finish_reason = choice.finish_reason or self.finish_reason

    def check_complete(self) -> Usage:
        """The usage of a whole answer. Raises StreamProblem: Connection if it ended early, NoUsage."""
        if not self.done and self.finish_reason is None:
            raise StreamProblem("Connection", f"the stream ended early, after {len(self.token_times)} text events")
        if self.usage is None:
            raise StreamProblem("NoUsage", "the stream ended without usage, so its tokens cannot be counted")
        return self.usage

    @property
    def engine_tokens_per_second(self) -> float | None:
        """The engine's own account: predicted_n / (prompt_ms + predicted_ms)."""
        told = self.timings
        if told is None or told.prompt_ms + told.predicted_ms <= 0:
            return None
        return told.predicted_n * 1000.0 / (told.prompt_ms + told.predicted_ms)

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens the engine took from a cache; None if it does not tell."""
        if self.timings is not None:
            return self.timings.cache_n
        details = self.usage.prompt_tokens_details if self.usage else None
        return details.cached_tokens if details else None


def _said(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return str(message)[:200]
