"""The behaviour suite of a Kubernetes API, run on the embedded server.

A real kube-apiserver (with its controller-manager) is put in its place with CONTRACT_KUBE_URL and
CONTRACT_KUBE_TOKEN: a URL and a bearer token of a cluster administrator. Its certificate is not checked.
"""

import asyncio
import io
import json
import os
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from flexinfer.local.kubeapi import EmbeddedApi

Json = dict[str, Any]
DEADLINE = 90.0


@dataclass(frozen=True)
class ApiServer:
    """Where the server under test is."""

    url: str
    token: str
    real: bool


@dataclass
class Answer:
    status: int
    headers: Any
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def reason(self) -> str:
        return str(self.body.get("reason"))

    @property
    def message(self) -> str:
        return str(self.body.get("message"))


class Watch:
    """Lines of one watch response."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status

    async def next(self, deadline: float = DEADLINE) -> tuple[str, Json]:
        async with asyncio.timeout(deadline):
            line = await self._response.content.readline()
        if not line:
            raise EOFError("the watch ended")
        event = json.loads(line)
        return event["type"], event["object"]

    async def names(self, count: int) -> list[tuple[str, str]]:
        found = []
        while len(found) < count:
            kind, obj = await self.next()
            if kind != "BOOKMARK":
                found.append((kind, obj["metadata"]["name"]))
        return found

    async def rest(self, deadline: float = DEADLINE) -> list[tuple[str, Json]]:
        found = []
        while True:
            try:
                found.append(await self.next(deadline))
            except EOFError:
                return found


PATCH = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


@dataclass
class Http:
    """Requests to the server under test."""

    server: ApiServer
    session: aiohttp.ClientSession
    watches: list[aiohttp.ClientResponse] = field(default_factory=list)

    async def call(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None, **query: Any
    ) -> Answer:
        head = {"Authorization": f"Bearer {self.server.token}", "Accept": "application/json"}
        data: Any = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            data = io.BytesIO(data)
            head["Content-Type"] = "application/json"
        head |= headers or {}
        params = {key: str(value) for key, value in query.items()}
        async with self.session.request(
            method, self.server.url + path, data=data, headers=head, params=params, ssl=False
        ) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str, **query: Any) -> Answer:
        return await self.call("GET", path, **query)

    async def post(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.call("POST", path, body, **query)

    async def put(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.call("PUT", path, body, **query)

    async def delete(self, path: str, body: Any = None, **query: Any) -> Answer:
        return await self.call("DELETE", path, body, **query)

    async def patch(self, path: str, body: Any, kind: str = "merge", **query: Any) -> Answer:
        return await self.call("PATCH", path, body, headers={"Content-Type": PATCH[kind]}, **query)

    async def apply(self, path: str, body: Any, manager: str = "tests", **query: Any) -> Answer:
        return await self.patch(path, body, "apply", fieldManager=manager, **query)

    @asynccontextmanager
    async def watch(self, path: str, **query: Any) -> AsyncIterator[Watch]:
        params = {"watch": "true", **{key: str(value) for key, value in query.items()}}
        head = {"Authorization": f"Bearer {self.server.token}"}
        async with self.session.get(self.server.url + path, params=params, headers=head, ssl=False) as response:
            yield Watch(response)

    async def made(self, path: str, body: Any) -> Json:
        """Create and return, or fail with the server's message."""
        answer = await self.post(path, body)
        assert answer.status == 201, answer.raw
        result: Json = answer.body
        return result

    async def eventually(self, path: str, condition: Callable[[Answer], Any]) -> Answer:
        """The first answer that satisfies ``condition``; controllers work on their own time."""
        loop = asyncio.get_running_loop()
        end = loop.time() + DEADLINE
        while True:
            answer = await self.get(path)
            if condition(answer):
                return answer
            assert loop.time() < end, f"{path} never satisfied the condition: {answer.raw[:2000]!r}"
            await asyncio.sleep(0.05)

    async def gone(self, path: str) -> None:
        await self.eventually(path, lambda answer: answer.status == 404)


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """One server for all tests, as a cluster is: each test has its own namespace and its own API group."""
    url = os.environ.get("CONTRACT_KUBE_URL")
    if url:
        yield ApiServer(url.rstrip("/"), os.environ["CONTRACT_KUBE_TOKEN"], real=True)
        return
    # A loop of its own in a thread: the loops of single tests come and go.
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="embedded-api", daemon=True)
    thread.start()

    async def begin() -> EmbeddedApi:
        return await EmbeddedApi(logs=canned_logs).start()

    api = asyncio.run_coroutine_threadsafe(begin(), loop).result(DEADLINE)
    yield ApiServer(api.url, api.token, real=False)
    asyncio.run_coroutine_threadsafe(api.stop(), loop).result(DEADLINE)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(DEADLINE)
    loop.close()


async def canned_logs(namespace: str, pod: str, container: str, options: Mapping[str, str]) -> bytes:
    return f"log of {namespace}/{pod}/{container} {sorted(options.items())}\n".encode()


@pytest.fixture
async def http(api_server: ApiServer) -> AsyncIterator[Http]:
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(timeout=timeout, read_bufsize=1 << 22) as session:
        yield Http(api_server, session)


@pytest.fixture
async def namespace(http: Http) -> AsyncIterator[str]:
    """A fresh namespace in which pods can be created."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    await http.made("/api/v1/namespaces", {"metadata": {"name": name}})
    await http.eventually(f"/api/v1/namespaces/{name}/serviceaccounts/default", lambda answer: answer.status == 200)
    yield name
    await http.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def core(namespace: str) -> Callable[..., str]:
    """Paths below the fresh namespace: ``core("pods", "p", "status")``."""
    return lambda *parts: f"/api/v1/namespaces/{namespace}/" + "/".join(parts)


@pytest.fixture
def apps(namespace: str) -> Callable[..., str]:
    return lambda *parts: f"/apis/apps/v1/namespaces/{namespace}/" + "/".join(parts)


WIDGET_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["backend"],
            "x-kubernetes-validations": [
                {
                    "rule": "self.minReplicas <= self.replicas",
                    "message": "minReplicas must not be larger than replicas",
                },
                {"rule": "self.backend == oldSelf.backend", "message": "backend is immutable"},
            ],
            "properties": {
                "backend": {"type": "string", "enum": ["vllm", "llamacpp"], "description": "The engine to run."},
                "replicas": {"type": "integer", "minimum": 0, "maximum": 10, "default": 1},
                "minReplicas": {"type": "integer", "default": 0},
                "image": {"type": "string", "maxLength": 8, "pattern": "^[a-z:]+$"},
                "limit": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "source": {
                    "type": "object",
                    "properties": {"url": {"type": "string"}, "path": {"type": "string"}},
                    "oneOf": [{"required": ["url"]}, {"required": ["path"]}],
                },
                "args": {"type": "array", "maxItems": 3, "items": {"type": "string"}},
                "gpu": {
                    "type": "object",
                    "default": {},
                    "properties": {"vendor": {"type": "string", "default": "auto"}, "count": {"type": "integer"}},
                },
                "ports": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
                    },
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "phase": {"type": "string"},
                "replicas": {"type": "integer"},
                "conditions": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                    },
                },
            },
        },
    },
}


@dataclass(frozen=True)
class Widgets:
    """A custom resource of its own group, so that tests do not meet."""

    group: str
    namespace: str
    crd: Json

    def path(self, *parts: str) -> str:
        return f"/apis/{self.group}/v1/namespaces/{self.namespace}/" + "/".join(("widgets", *parts))

    def body(self, name: str, **spec: Any) -> Json:
        return {
            "apiVersion": f"{self.group}/v1",
            "kind": "Widget",
            "metadata": {"name": name},
            "spec": {"backend": "vllm", **spec},
        }


@pytest.fixture
async def widgets(http: Http, namespace: str) -> AsyncIterator[Widgets]:
    group = f"{uuid.uuid4().hex[:8]}.example.com"
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": WIDGET_SCHEMA},
                    "subresources": {
                        "status": {},
                        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                    },
                    "additionalPrinterColumns": [
                        {"name": "Backend", "type": "string", "jsonPath": ".spec.backend"},
                        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
                        {
                            "name": "Ready",
                            "type": "string",
                            "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
                            "priority": 1,
                        },
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    ],
                }
            ],
        },
    }
    made = await http.made("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    place = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{made['metadata']['name']}"
    await http.eventually(place, lambda answer: _established(answer.body))
    found = Widgets(group, namespace, made)
    await http.eventually(found.path(), lambda answer: answer.status == 200)
    yield found
    await http.delete(place)


def _established(crd: Json) -> bool:
    conditions = crd.get("status", {}).get("conditions") or ()
    return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)


@pytest.fixture
def pod() -> Callable[..., Json]:
    """A minimal pod manifest."""

    def make(name: str = "", **spec: Any) -> Json:
        container = {"name": "c", "image": "example/image:1"}
        metadata = {"name": name} if name else {"generateName": "p-"}
        body = {"containers": [container], "automountServiceAccountToken": False, **spec}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}

    return make
