"""HTTP as model hubs and registries speak it: redirects, bearer challenges, rate limits, and answers that break off."""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

import aiohttp
import orjson

from flexinfer.core.lifecycle.fetching.failures import FetchFailed
from flexinfer.core.lifecycle.fetching.registry import challenge
from flexinfer.ports import Clock

REDIRECTS = {301, 302, 303, 307, 308}
MAX_REDIRECTS = 10
MAX_DOCUMENT = 64 << 20
CHUNK_BYTES = 1 << 18
CONNECT_SECONDS, SILENCE_SECONDS = 20.0, 60.0
FIRST_WAIT, LONGEST_WAIT = 0.5, 120.0
BROKEN = (aiohttp.ClientError, TimeoutError, ConnectionError, OSError)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the Secret holds. ``token``: sent to the hub; ``logins``: registry host → (user, password)."""

    token: str = field(default="", repr=False)
    logins: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)

    @property
    def empty(self) -> bool:
        """Nothing is known."""
        return not self.token and not self.logins


class Again(Exception):
    """Worth another try. ``wait``: what the server asked for, in seconds; None: it did not say."""

    def __init__(self, reason: str, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.wait = wait


class Patience:
    """How often something is tried before it counts as failed; the count begins anew with progress."""

    def __init__(self, attempts: int, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._attempts = attempts
        self._pause = pause
        self._failed = 0
        self._furthest: dict[str, int] = {}

    def reached(self, what: str, size: int) -> None:
        """So much of something is here; only more than ever before counts as progress."""
        if size > self._furthest.get(what, 0):
            self._furthest[what] = size
            self._failed = 0

    async def keep(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of the first attempt that is not Again. Raises FetchFailed."""
        while True:
            try:
                return await attempt()
            except Again as err:
                self._failed += 1
                if self._failed >= self._attempts:
                    raise FetchFailed(err.reason, err.message) from err
                wait = FIRST_WAIT * 2 ** (self._failed - 1) if err.wait is None else err.wait
                await self._pause(min(wait, LONGEST_WAIT))


class Web:
    """One session. Made on the running loop, ended with ``aclose``. ``hub``: the host a token belongs to."""

    def __init__(self, credentials: Credentials, hub: str, patience: Patience, clock: Clock) -> None:
        self.patience = patience
        self._credentials = credentials
        self._hub = urlsplit(hub).netloc
        self._clock = clock
        self._tokens: dict[str, str] = {}  # of registries, by host
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS),
            headers={"Accept-Encoding": "identity", "User-Agent": "flexinfer-fetch"},
            auto_decompress=False,
            trust_env=True,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def document(self, url: str, accept: str = "application/json") -> tuple[bytes, Mapping[str, str]]:
        """A small body with its headers. Raises FetchFailed."""

        async def attempt() -> tuple[bytes, Mapping[str, str]]:
            async with self.open(url, {"Accept": accept}) as answer:
                try:
                    body = await answer.content.read(-1) if answer.content_length is None else await answer.read()
                except BROKEN as err:
                    raise Again(
                        "SourceUnavailable", f"{host_of(url)} broke off: {str(err) or type(err).__name__}"
                    ) from err
                if len(body) > MAX_DOCUMENT:
                    raise FetchFailed("BadArtifact", f"{host_of(url)} answers with {len(body)} bytes")
                return body, answer.headers

        return await self.patience.keep(attempt)

    async def json(self, url: str, accept: str = "application/json") -> tuple[Any, Mapping[str, str]]:
        """A JSON body with its headers. Raises FetchFailed."""
        body, headers = await self.document(url, accept)
        return decoded(body, url), headers

    @asynccontextmanager
    async def open(self, url: str, headers: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer of 200, 206 or 416 after redirects and authorisation. Raises Again and FetchFailed."""
        answer = await self._follow(url, headers)
        try:
            if answer.status not in {200, 206, 416}:
                raise self._refusal(answer, url)
            yield answer
        finally:
            answer.close()

    async def _follow(self, url: str, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        asked = False
        for _ in range(MAX_REDIRECTS + 1):
            answer = await self._get(url, headers)
            if answer.status in REDIRECTS and answer.headers.get("Location"):
                url = urljoin(url, answer.headers["Location"])
                answer.close()
                if urlsplit(url).scheme not in {"http", "https"}:
                    raise FetchFailed("SourceNotFound", f"redirected to {urlsplit(url).scheme}://")
            elif answer.status == 401 and not asked:
                asked = True
                if not await self._authorise(url, answer.headers.get("WWW-Authenticate", "")):
                    return answer
                answer.close()
            else:
                return answer
        raise FetchFailed("SourceNotFound", f"{host_of(url)} redirects without end")

    async def _get(self, url: str, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        try:
            return await self._session.get(url, headers={**headers, **self._authority(url)}, allow_redirects=False)
        except BROKEN as err:
            raise Again(
                "SourceUnavailable", f"{host_of(url)} cannot be reached: {str(err) or type(err).__name__}"
            ) from err

    def _authority(self, url: str) -> dict[str, str]:
        """The credential of exactly this host; a redirect to another one carries none."""
        host = urlsplit(url).netloc
        token = self._tokens.get(host) or (self._credentials.token if host == self._hub else "")
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def _authorise(self, url: str, header: str) -> bool:
        """Get a token where the challenge says; False if there is nothing to try."""
        asked = challenge(header)
        if asked is None:
            return False
        host = urlsplit(url).netloc
        query = {name: asked[name] for name in ("service", "scope") if asked.get(name)}
        login = self._credentials.logins.get(host)
        headers = {}
        if login:
            headers["Authorization"] = "Basic " + base64.b64encode(":".join(login).encode()).decode()
        realm = urljoin(url, asked["realm"])
        try:
            async with self._session.get(f"{realm}?{urlencode(query)}", headers=headers) as answer:
                if answer.status != 200:
                    raise self._refusal(answer, realm)
                found = decoded(await answer.read(), realm)
        except BROKEN as err:
            raise Again(
                "SourceUnavailable", f"{host_of(realm)} gives no token: {str(err) or type(err).__name__}"
            ) from err
        token = found.get("token") or found.get("access_token") if isinstance(found, dict) else None
        if not isinstance(token, str) or not token:
            return False
        self._tokens[host] = token
        return True

    def _refusal(self, answer: aiohttp.ClientResponse, url: str) -> Exception:
        said = f"{host_of(url)} answers {answer.status}"
        if answer.status in {401, 403}:
            return FetchFailed(
                "AccessDenied", said + ("" if self._credentials.empty else " with the given credentials")
            )
        if answer.status in {404, 410}:
            return FetchFailed("SourceNotFound", f"{said} for {urlsplit(url).path}")
        wait = retry_after(answer.headers.get("Retry-After", ""), self._clock.now())
        if answer.status == 429:
            return Again("RateLimited", f"{said}: too many requests", wait)
        return Again("SourceUnavailable", said, wait)


def decoded(body: bytes, url: str) -> Any:
    """JSON. Raises FetchFailed."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as err:
        raise FetchFailed("BadArtifact", f"{host_of(url)} answers with something that is not JSON") from err


def retry_after(text: str, now: float) -> float | None:
    """Seconds to wait, from a number or a date; None for anything else.

    >>> retry_after("7", 0.0), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 50.0), retry_after("soon", 0.0)
    (7.0, 10.0, None)
    """
    if text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, IndexError):
        return None


def host_of(url: str) -> str:
    """For messages: never the query, where signed URLs have their signature."""
    return urlsplit(url).netloc
