"""The one-machine scheduler's requests are those kube-scheduler sends, and it takes answers as kube-scheduler does."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from flexinfer.adapters.web.extender_client import ExtenderClient, ExtenderFailed, request_body
from flexinfer.adapters.web.serve import WebServer, listen, read_body, respond
from flexinfer.local.schedloop import best, summary


class Scripted:
    """A server with one answer for everything; remembers requests."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body
        self.requests: list[tuple[str, dict[bytes, bytes], bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.requests.append((scope["path"], dict(scope["headers"]), await read_body(receive, 1 << 20) or b""))
        await respond(send, self.status, self.body)


Answering = Callable[..., Any]


@pytest.fixture
async def answering() -> AsyncIterator[Answering]:
    """``client, server = await answering(status, body)``."""
    opened: list[Any] = []

    async def make(status: int, body: bytes) -> tuple[ExtenderClient, Scripted]:
        app = Scripted(status, body)
        server = await WebServer(app, listen("127.0.0.1", 0), drain=1.0).start()
        client = ExtenderClient(f"http://127.0.0.1:{server.port}/")
        opened.append((client, server))
        return client, app

    yield make
    for client, server in opened:
        await client.aclose()
        await server.stop()


def test_a_request_has_exactly_the_shape_of_a_captured_one(capture):
    captured = json.loads(capture("filter-names.json"))
    pod = {"apiVersion": "v1", "kind": "Pod"} | captured["Pod"]

    ours = json.loads(request_body(pod, captured["NodeNames"]))

    assert ours == captured
    assert list(ours) == list(captured)


async def test_the_headers_are_those_of_a_captured_request(answering, capture):
    client, server = await answering(200, b'{"NodeNames":[]}')

    await client.filter({"metadata": {"name": "p"}}, [])

    path, headers, _ = server.requests[0]
    assert path == "/filter"
    for line in capture("filter.headers.txt").decode().splitlines()[1:]:
        name, _, value = line.partition(": ")
        if name.lower() not in {"host", "content-length", ""}:
            assert headers[name.lower().encode()].decode() == value


async def test_an_answer_is_names_and_reasons(answering):
    client, _ = await answering(
        200, b'{"NodeNames":["a"],"FailedNodes":{"b":"x"},"FailedAndUnresolvableNodes":{"c":"y"}}'
    )

    found = await client.filter({}, ["a", "b", "c"])

    assert found.names == ("a",)
    assert found.reasons == {"b": "x", "c": "y"}


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (200, b'{"NodeNames":["a"],"Error":"not warm"}', "not warm"),
        (500, b"", "answered 500"),
        (204, b"", "answered 204"),
        (200, b"[]", "no filter result"),
        (200, b"{", "no filter result"),
        (200, b'{"NodeNames":["ghost"]}', "not asked about: ghost"),
    ],
)
async def test_what_fails_an_attempt(answering, status, body, text):
    client, _ = await answering(status, body)

    with pytest.raises(ExtenderFailed, match=text):
        await client.filter({}, ["a"])


@pytest.mark.parametrize("body", [b'[{"Host":"a","Score":10.5}]', b'{"a":10}', b'[{"Host":"a","Score":99}]'])
async def test_scores_that_are_no_integers_void_the_list(answering, body):
    client, _ = await answering(200, body)

    with pytest.raises(ExtenderFailed, match="no priority list"):
        await client.prioritize({}, ["a"])


async def test_an_extender_that_is_not_there_is_an_error_to_retry():
    client = ExtenderClient("http://127.0.0.1:9")

    with pytest.raises(ExtenderFailed, match="did not answer"):
        await client.filter({}, ["a"])
    await client.aclose()


def test_the_best_score_wins_and_ties_go_by_affinity_and_then_by_name():
    assert best(("c", "a", "b"), {"a": 5, "b": 10, "c": 10}, {"a": 100}) == "b"
    assert best(("c", "a", "b"), {"b": 10, "c": 10}, {"c": 1}) == "c"
    assert best(("c", "a", "b"), {}, {}) == "a"


def test_reasons_are_counted_as_kube_scheduler_words_them():
    assert summary(3, {"a": "y", "b": "x", "c": "y"}) == "0/3 nodes are available: 1 x, 2 y."
    assert summary(0, {}) == "0/0 nodes are available."
