"""An OpenAI-compatible server asked over HTTP, one streamed completion at a time, with its token times."""

import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import aiohttp
import msgspec

from flexinfer.core.benchmark.answers import Answer
from flexinfer.core.benchmark.sse import EventStream, StreamProblem
from flexinfer.ports import Completion, EngineError

Api = Literal["chat", "completions"]

_PATHS: Mapping[Api, str] = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
_CONNECT_SECONDS = 10.0
_SMALL_TIMEOUT = 30.0
_MAX_ERROR_BYTES = 4096


class OpenAIClient:
    """ports.InferenceClient over aiohttp, between ``open`` and ``close`` or inside ``async with``.

    Every request gets its own connection: llama.cpp announces keep-alive after a stream and closes all the same,
    so a reused connection would fail the next request at random.
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
        self._base = base_url.rstrip("/").removesuffix("/v1")
        self._api: Api = api
        self._timeout = timeout
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._ca = ca
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> Self:
        """Make the connection pool. Raises OSError if the CA file cannot be read."""
        trust: ssl.SSLContext | bool = True
        if self._ca is not None:
            trust = ssl.create_default_context(cafile=str(self._ca))
        connector = aiohttp.TCPConnector(force_close=True, limit=0, ssl=trust)
        self._session = aiohttp.ClientSession(
            connector=connector, headers=self._headers, json_serialize=lambda body: msgspec.json.encode(body).decode()
        )
        return self

    async def close(self) -> None:
        """Cut what is open."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __aenter__(self) -> Self:
        """``open``."""
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        """``close``."""
        await self.close()

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
        began = self._clock()
        try:
            endpoint = await self._stream(body, answer, began)
            duration = self._clock() - began
            usage = answer.check_complete()
        except StreamProblem as err:
            raise EngineError(err.reason, str(err)) from err
        except (aiohttp.ClientError, OSError, TimeoutError) as err:
            raise self._translated(err, answer) from err
        return Completion(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            duration=duration,
            first_token=answer.token_times[0] if answer.token_times else None,
            token_times=tuple(answer.token_times),
            text="".join(answer.parts),
            endpoint=endpoint,
            engine_tokens_per_second=answer.engine_tokens_per_second,
            finish_reason=answer.finish_reason,
            model=answer.model,
            cached_tokens=answer.cached_tokens,
        )

    async def _stream(self, body: Mapping[str, Any], answer: Answer, began: float) -> str | None:
        timeout = aiohttp.ClientTimeout(total=self._timeout, connect=_CONNECT_SECONDS)
        async with self._pool.post(self._base + _PATHS[self._api], json=body, timeout=timeout) as response:
            if response.status != 200:
                raise await _refusal(response)
            if response.content_type != "text/event-stream":
                raise EngineError(
                    "MalformedStream", f"the answer is {response.content_type or 'of no type'}, not text/event-stream"
                )
            events = EventStream()
            clock = self._clock
            while received := await response.content.readany():
                at = clock() - began
                for data in events.feed(received):
                    answer.fold(data, at)
            return response.headers.get("X-FlexInfer-Endpoint")

    async def models(self) -> Sequence[str]:
        """Names the server lists. Raises EngineError."""
        timeout = aiohttp.ClientTimeout(total=_SMALL_TIMEOUT, connect=_CONNECT_SECONDS)
        try:
            async with self._pool.get(self._base + "/v1/models", timeout=timeout) as response:
                if response.status != 200:
                    raise await _refusal(response)
                raw = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as err:
            raise self._translated(err, Answer()) from err
        try:
            rows = msgspec.json.decode(raw)["data"]
            return tuple(str(row["id"]) for row in rows)
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError) as err:
            raise EngineError("Refused", f"/v1/models is no list of models: {raw[:80]!r}") from err

    @property
    def _pool(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("OpenAIClient is used before open()")
        return self._session

    def _translated(self, err: Exception, answer: Answer) -> EngineError:
        got = f" after {len(answer.token_times)} text events" if answer.token_times else ""
        match err:
            case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError() | ssl.SSLError():
                return EngineError("Tls", f"{self._base} is not trusted: {err}")
            case aiohttp.InvalidURL():
                return EngineError("Refused", f"{self._base!r} is no URL; write http://host:port")
            case aiohttp.ServerTimeoutError() | TimeoutError():
                return EngineError("Timeout", f"no end of the answer within {self._timeout:g} s{got}")
            case _:
                return EngineError(
                    "Connection", f"{self._base} broke the connection{got}: {str(err) or type(err).__name__}"
                )


async def _refusal(response: aiohttp.ClientResponse) -> EngineError:
    """An HTTP status as a reason; the message is the server's own where it speaks OpenAI's error shape."""
    raw = await response.content.read(_MAX_ERROR_BYTES)
    kind, said = _error_of(raw)
    status = response.status
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
