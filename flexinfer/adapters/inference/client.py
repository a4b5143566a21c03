"""An OpenAI-compatible server asked over HTTP, one streamed completion at a time, with its token times."""

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from flexinfer.adapters.inference.exchange import Address, Exchange, exchange
from flexinfer.core.benchmark.answers import Answer
from flexinfer.core.benchmark.sse import EventStream, StreamProblem
from flexinfer.ports import Completion, EngineError

Api = Literal["chat", "completions"]

_PATHS: Mapping[Api, str] = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
_SMALL_TIMEOUT = 30.0


class OpenAIClient:
    """ports.InferenceClient, after ``open`` or inside ``async with``.

    Every request gets its own connection: llama.cpp announces keep-alive after a stream and closes all the same,
    so a reused connection would fail the next request at random. Times count from the moment the request is
    written, when the connection stands: what setting it up costs is the network's, not the engine's.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api: Api = "completions",
        timeout: float = 300.0,
        api_key: str = "",
        ca: Path | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._base = base_url
        self._api: Api = api
        self._timeout = timeout
        self._key = api_key
        self._ca = ca
        self._trust: ssl.SSLContext | None = None
        self._clock = clock

    async def open(self) -> Self:
        """Read the CA file. Raises OSError if it cannot be used."""
        if self._ca is not None:
            self._trust = ssl.create_default_context(cafile=str(self._ca))
        return self

    async def __aenter__(self) -> Self:
        """``open``."""
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is kept open between requests."""

    async def complete(self, model: str, prompt: str, max_tokens: int, options: Mapping[str, Any]) -> Completion:
        """One streamed completion, read to its end. Raises EngineError."""
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **options,
        }
        if self._api == "chat":
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        answer = Answer()
        events = EventStream()

        def on_body(received: bytes, at: float) -> None:
            for data in events.feed(received):
                answer.fold(data, at)

        done = await self._exchange("POST", _PATHS[self._api], msgspec.json.encode(body), on_body, answer)
        if not done.headers.get("content-type", "").startswith("text/event-stream"):
            kind = done.headers.get("content-type", "of no type")
            raise EngineError("MalformedStream", f"the answer is {kind}, not text/event-stream")
        try:
            usage = answer.check_complete()
        except StreamProblem as err:
            raise EngineError(err.reason, str(err)) from err
        return Completion(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            duration=done.seconds,
            first_token=answer.token_times[0] if answer.token_times else None,
            token_times=tuple(answer.token_times),
            text="".join(answer.parts),
            endpoint=done.headers.get("x-flexinfer-endpoint"),
            engine_tokens_per_second=answer.engine_tokens_per_second,
            finish_reason=answer.finish_reason,
            model=answer.model,
            cached_tokens=answer.cached_tokens,
        )

    async def models(self) -> Sequence[str]:
        """Names the server lists. Raises EngineError."""
        parts: list[bytes] = []
        await self._exchange("GET", "/v1/models", b"", lambda received, _: parts.append(received), Answer())
        raw = b"".join(parts)
        try:
            rows = msgspec.json.decode(raw)["data"]
            return tuple(str(row["id"]) for row in rows)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError) as err:
            raise EngineError("Refused", f"/v1/models is no list of models: {raw[:80]!r}") from err

    async def _exchange(
        self, method: str, path: str, body: bytes, on_body: Callable[[bytes, float], None], answer: Answer
    ) -> Exchange:
        """A 200 answer, read to its end. Raises EngineError for everything else."""
        address = Address.of(self._base, self._trust)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        if not self._key.isprintable() or not self._key.isascii():
            raise EngineError("Denied", "the API key holds characters a header cannot carry")
        request = address.head(method, path, headers, len(body)) + body
        limit = self._timeout if method == "POST" else _SMALL_TIMEOUT
        try:
            async with asyncio.timeout(limit):
                done = await exchange(address, request, on_body, self._clock)
        except StreamProblem as err:
            raise EngineError(err.reason, str(err)) from err
        except (OSError, TimeoutError) as err:
            raise self._translated(err, answer, limit) from err
        if done.status != 200:
            raise _refusal(done.status, done.plain)
        return done

    def _translated(self, err: OSError | TimeoutError, answer: Answer, limit: float) -> EngineError:
        got = f" after {len(answer.token_times)} text events" if answer.token_times else ""
        match err:
            case ssl.SSLError():
                return EngineError("Tls", f"{self._base} is not trusted: {err}")
            case TimeoutError():
                return EngineError("Timeout", f"no end of the answer within {limit:g} s{got}")
            case _:
                said = str(err) or type(err).__name__
                return EngineError("Connection", f"{self._base} broke the connection{got}: {said}")


def _refusal(status: int, raw: bytes) -> EngineError:
    """An HTTP status as a reason; the message is the server's own where it speaks OpenAI's error shape."""
    kind, said = _error_of(raw)
    text = f"HTTP {status}: {said}" if said else f"HTTP {status}"
    by_status = {
        401: "Denied",
        403: "Denied",
        404: "WrongModel",
        413: "ContextTooLong",
        429: "Limited",
        502: "NotReady",
        503: "NotReady",
        504: "NotReady",
    }
    reason = by_status.get(status, "Http" if status >= 500 else "Refused")
    if status == 400 and ("exceed_context" in kind or "context length" in said or "context size" in said):
        reason = "ContextTooLong"
    return EngineError(reason, text, status)


def _error_of(raw: bytes) -> tuple[str, str]:
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", raw[:200].decode("utf-8", "replace").strip()
    error = found.get("error", found) if isinstance(found, dict) else found
    if isinstance(error, dict):
        return str(error.get("type") or error.get("code") or ""), str(error.get("message", ""))[:300]
    return "", str(error)[:300]
