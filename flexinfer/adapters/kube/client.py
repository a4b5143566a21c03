"""ports.KubeApi over HTTP: plain dictionaries, a time limit on every call, every failure one of the ports errors."""

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode

import aiohttp
import orjson
from yarl import URL

from flexinfer import __version__
from flexinfer.adapters.kube.credentials import Access, find_access
from flexinfer.adapters.kube.wire import CONTENT_TYPES, error_of, event_of, lines, typed
from flexinfer.contracts.kubernetes import Object, Resource
from flexinfer.contracts.labels import FIELD_MANAGER
from flexinfer.ports import Expired, KubeUnavailable, ListPage, PatchKind
from flexinfer.telemetry import metrics

_REQUESTS = metrics.counter(
    "flexinfer_kube_requests_total", "Requests to the Kubernetes API; code 0: no answer.", ("verb", "code")
)

PAGE = 500
IDLE_SECONDS = 60.0  # a watch without a byte for this long may be half-open and is started anew


class KubeClient:
    """One connection pool to one API server. Make it with ``connect`` on the running loop, end it with ``aclose``."""

    def __init__(self, access: Access, *, timeout: float = 10.0, idle: float = IDLE_SECONDS) -> None:
        self._access = access
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._idle = idle
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=256, ttl_dns_cache=60),
            headers={
                "User-Agent": f"flexinfer/{__version__}",
                "Accept": "application/json",
                # The API server is one hop away: compressing costs both sides more than it saves.
                "Accept-Encoding": "identity",
            },
            auto_decompress=True,
        )

    @classmethod
    async def connect(cls, kubeconfig: Path | None = None, *, timeout: float = 10.0) -> "KubeClient":  # noqa: ASYNC109 - the default of later calls
        """Read the configuration; the server itself is not contacted yet. Raises credentials.KubeconfigError."""
        return cls(await find_access(kubeconfig), timeout=timeout)

    @property
    def server(self) -> str:
        """Base URL, for logs and messages."""
        return self._access.server

    async def aclose(self) -> None:
        """Close every connection; running watches end with KubeUnavailable."""
        await self._session.close()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        return await self._call("GET", _path(resource, namespace, name))

    async def list(
        self, resource: Resource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> ListPage:
        query = {"limit": str(PAGE)} | _selectors(labels, fields)
        for attempt in (1, 2, 3):
            try:
                return await self._pages(resource, _path(resource, namespace), query)
            except Expired:
                # The snapshot behind the continue token was compacted while we paged.
                if attempt == 3:
                    raise
        raise AssertionError("unreachable")

    async def _pages(self, resource: Resource, path: str, query: Mapping[str, str]) -> ListPage:
        items: list[Object] = []
        token = ""
        while True:
            page = await self._call("GET", path, query={**query, "continue": token} if token else query)
            items.extend(typed(item, resource) for item in page.get("items") or ())
            meta = page.get("metadata") or {}
            token = meta.get("continue") or ""
            if not token:
                return ListPage(items=tuple(items), resource_version=str(meta.get("resourceVersion") or ""))

    async def create(
        self, resource: Resource, body: Object, namespace: str | None = None, subresource: str | None = None
    ) -> Object:
        name = body["metadata"]["name"] if subresource else None
        return await self._call("POST", _path(resource, namespace, name, subresource), body=body)

    async def replace(
        self, resource: Resource, body: Object, namespace: str | None = None, subresource: str | None = None
    ) -> Object:
        return await self._call("PUT", _path(resource, namespace, body["metadata"]["name"], subresource), body=body)

    async def patch(  # noqa: PLR0913 - mirrors ports.KubeApi
        self,
        resource: Resource,
        name: str,
        body: Object | Sequence[Object],
        namespace: str | None = None,
        *,
        kind: PatchKind = "merge",
        subresource: str | None = None,
        field_manager: str | None = None,
    ) -> Object:
        query: dict[str, str] = {}
        if field_manager or kind == "apply":
            query["fieldManager"] = field_manager or FIELD_MANAGER
        if kind == "apply":
            query["force"] = "true"
        path = _path(resource, namespace, name, subresource)
        return await self._call("PATCH", path, query=query, body=body, content_type=CONTENT_TYPES[kind])

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        await self._call("DELETE", _path(resource, namespace, name), body=options)

    async def logs(self, namespace: str, pod: str, container: str | None = None, tail: int | None = None) -> str:
        query = {} if container is None else {"container": container}
        if tail is not None:
            query["tailLines"] = str(tail)
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/log"
        return (await self._raw("GET", path, query=query)).decode(errors="replace")

    async def websocket(self, path: str, protocol: str) -> aiohttp.ClientWebSocketResponse:
        """A WebSocket to a subresource, for ports and streams. Raises KubeError, KubeUnavailable."""
        options = await self._transport()
        del options["allow_redirects"]
        try:
            socket: aiohttp.ClientWebSocketResponse = await self._session.ws_connect(
                self._url(path, None), protocols=(protocol,), autoping=True, max_msg_size=0, **options
            )
        except aiohttp.WSServerHandshakeError as err:
            raise error_of(err.status, b"", None) from err
        except (aiohttp.ClientError, TimeoutError, OSError) as err:
            raise KubeUnavailable(f"GET {self.server}{path}: {_text(err)}") from err
        return socket

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        timeout_seconds: int = 300,
    ) -> AsyncIterator[tuple[str, Object]]:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
        } | _selectors(labels, fields)
        # The total is a backstop against a server that ignores timeoutSeconds.
        limit = aiohttp.ClientTimeout(
            total=timeout_seconds + self._idle, sock_connect=self._timeout.total, sock_read=self._idle
        )
        url = self._url(_path(resource, namespace), query)
        try:
            async with self._session.get(url, timeout=limit, **await self._transport()) as answer:
                if answer.status != 200:
                    self._refuse("WATCH", answer, await answer.read())
                _REQUESTS.labels(verb="WATCH", code="200").inc()
                async for line in lines(_until_silent(answer.content.iter_any())):
                    yield event_of(line)
        except (aiohttp.ClientError, TimeoutError, OSError) as err:
            _REQUESTS.labels(verb="WATCH", code="0").inc()
            raise KubeUnavailable(f"the watch of {resource.plural} broke: {_text(err)}") from err

    async def _call(
        self,
        verb: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | Sequence[Object] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        payload = await self._raw(verb, path, query=query, body=body, content_type=content_type)
        try:
            content = orjson.loads(payload)
        except orjson.JSONDecodeError as err:
            raise KubeUnavailable(f"{verb} {path}: the answer is not JSON: {payload[:80]!r}") from err
        if not isinstance(content, dict):
            raise KubeUnavailable(f"{verb} {path}: the answer is not an object")
        return content

    async def _raw(
        self,
        verb: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | Sequence[Object] | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        data = None if body is None else orjson.dumps(body)
        headers = {} if data is None else {"Content-Type": content_type}
        url = self._url(path, query)
        for attempt in (1, 2):
            try:
                transport = await self._transport(headers)
                async with self._session.request(verb, url, data=data, timeout=self._timeout, **transport) as answer:
                    payload = await answer.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as err:
                _REQUESTS.labels(verb=verb, code="0").inc()
                raise KubeUnavailable(f"{verb} {self.server}{path}: {_text(err)}") from err
            if answer.status == 401 and attempt == 1:
                # A token that ended between two reads; fetching it again is what every client library does.
                self._access.authorization.rejected()
                continue
            if answer.status >= 300:
                self._refuse(verb, answer, payload)
            _REQUESTS.labels(verb=verb, code=str(answer.status)).inc()
            return payload
        raise AssertionError("unreachable")

    def _refuse(self, verb: str, answer: aiohttp.ClientResponse, payload: bytes) -> None:
        _REQUESTS.labels(verb=verb, code=str(answer.status)).inc()
        if answer.status == 401:
            self._access.authorization.rejected()
        raise error_of(answer.status, payload, answer.headers.get("Retry-After"))

    async def _transport(self, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Keyword arguments of every request: identity, TLS, proxy."""
        if self._session.closed:
            raise KubeUnavailable("the client is closed")
        value = await self._access.authorization.header()
        sent = dict(headers or {})
        if value:
            sent["Authorization"] = value
        options: dict[str, Any] = {"headers": sent, "allow_redirects": False}
        if self._access.tls is not None:
            options["ssl"] = self._access.tls
            options["server_hostname"] = self._access.tls_server_name
        if self._access.proxy:
            options["proxy"] = self._access.proxy
        return options

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        tail = f"?{urlencode(query, quote_via=quote)}" if query else ""
        return URL(f"{self._access.server}{path}{tail}", encoded=True)


async def _until_silent(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The chunks, ended as the server would end them when none came for IDLE_SECONDS.

    kube-apiserver's first bookmark takes up to two minutes, so on a quiet kind this is the usual end of a watch. On a
    half-open link it is how the fault is found: the watch that follows cannot connect.
    """
    try:
        async for chunk in chunks:
            yield chunk
    except aiohttp.SocketTimeoutError:
        return


def _path(resource: Resource, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
    # A name is one path segment whatever it holds: "../.." must not reach another resource.
    return resource.path(
        quote(namespace, safe="") if namespace else None, quote(name, safe="") if name else None, subresource
    )


def _selectors(labels: str, fields: str) -> dict[str, str]:
    chosen = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in chosen.items() if value}


def _text(err: BaseException) -> str:
    if isinstance(err, TimeoutError):
        return "no answer in time"
    return str(err) or type(err).__name__
