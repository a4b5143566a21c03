"""One watch: its events, its end, and everything that can be wrong with its bytes."""

import asyncio
import json

import pytest

from flexinfer.contracts.kubernetes import CONFIGMAPS
from flexinfer.ports import Expired, KubeError, KubeUnavailable

NS = "default"


async def collect(client, version: str, count: int) -> list[tuple[str, str]]:
    found = []
    events = client.watch(CONFIGMAPS, version, NS)
    async for action, item in events:
        if action != "BOOKMARK":
            found.append((action, item["metadata"]["name"]))
        if len(found) == count:
            break
    await events.aclose()
    return found


async def test_changes_since_the_version_arrive_in_order(api, direct, configmap):
    version = (await api.list(CONFIGMAPS, NS)).resource_version
    await direct.create(CONFIGMAPS, configmap("a"), NS)
    await direct.patch(CONFIGMAPS, "a", {"data": {"k": "1"}}, NS)
    await direct.delete(CONFIGMAPS, "a", NS)

    assert await collect(api, version, 3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_version_that_is_too_old_expires(api, direct, server, configmap):
    version = (await api.list(CONFIGMAPS, NS)).resource_version
    await direct.create(CONFIGMAPS, configmap("a"), NS)
    server.forget_history()

    with pytest.raises(Expired):
        await collect(api, version, 1)


async def test_a_broken_link_is_unavailable(api, link, direct, configmap):
    version = (await api.list(CONFIGMAPS, NS)).resource_version
    await direct.create(CONFIGMAPS, configmap("a"), NS)
    events = api.watch(CONFIGMAPS, version, NS)
    assert (await anext(events))[0] == "ADDED"
    link.cut()

    with pytest.raises(KubeUnavailable):
        await anext(events)


async def test_the_server_ends_it_when_its_time_is_up(api):
    version = (await api.list(CONFIGMAPS, NS)).resource_version

    events = [event async for event in api.watch(CONFIGMAPS, version, NS, timeout_seconds=1)]

    assert {action for action, _ in events} <= {"BOOKMARK"}


# --- a server that fails -----------------------------------------------------------------------------------------


def line(action: str, content: object) -> bytes:
    return json.dumps({"type": action, "object": content}).encode() + b"\n"


async def watch_all(client) -> list[tuple[str, object]]:
    return [event async for event in client.watch(CONFIGMAPS, "1", NS)]


async def test_a_line_of_five_mebibytes_survives(scripted, answers):
    big = {"metadata": {"name": "a"}, "data": {"k": "x" * (5 << 20)}}
    text = line("ADDED", big) + line("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    chunks = [text[start : start + 50_000] for start in range(0, len(text), 50_000)]
    scripted.answers = [answers.stream(*chunks)]
    client = scripted.client()

    events = await watch_all(client)
    await client.aclose()

    assert [action for action, _ in events] == ["ADDED", "BOOKMARK"]
    assert events[0][1] == big


@pytest.mark.parametrize("size", [1, 2, 7])
async def test_lines_are_found_wherever_the_chunks_break(scripted, answers, size):
    text = line("ADDED", {"metadata": {"name": "ä"}}) + b"\n" + line("DELETED", {"metadata": {"name": "b"}})
    scripted.answers = [answers.stream(*(text[start : start + size] for start in range(0, len(text), size)))]
    client = scripted.client()

    events = await watch_all(client)
    await client.aclose()

    assert [(action, item["metadata"]["name"]) for action, item in events] == [("ADDED", "ä"), ("DELETED", "b")]


async def test_an_error_event_is_the_error_of_its_code(scripted, answers):
    client = scripted.client()
    for code, error in ((410, Expired), (500, KubeUnavailable), (429, KubeUnavailable)):
        scripted.answers = [answers.stream(line("ERROR", {"kind": "Status", "code": code, "message": "m"}))]
        with pytest.raises(error):
            await watch_all(client)
    await client.aclose()


@pytest.mark.parametrize(
    "bad", [b"{\n", b"[]\n", b'{"type":"ADDED"}\n', b'{"type":1,"object":{}}\n', b'"x"\n', b"\xff\n"]
)
async def test_an_unreadable_line_is_told_as_such(scripted, answers, bad):
    scripted.answers = [answers.stream(bad)]
    client = scripted.client()

    with pytest.raises(KubeError) as refused:
        await watch_all(client)
    await client.aclose()

    assert refused.value.reason == "MalformedWatch"


async def test_a_watch_that_falls_silent_ends(scripted, answers):
    scripted.answers = [answers.stream(line("ADDED", {"metadata": {"name": "a"}}), stay=True)]
    client = scripted.client(idle=0.2)

    events = await watch_all(client)
    await client.aclose()

    assert [action for action, _ in events] == ["ADDED"]


async def test_a_watch_that_is_never_answered_is_unavailable(scripted):
    async def nothing(_head, _writer):
        await asyncio.Event().wait()

    scripted.answers = [nothing]
    client = scripted.client(idle=0.2)

    with pytest.raises(KubeUnavailable, match="no answer in time"):
        await watch_all(client)
    await client.aclose()


async def test_a_stream_cut_in_a_line_is_unavailable(scripted, answers):
    async def cut(_head, writer):
        writer.write(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"typ\r\n')
        await writer.drain()
        writer.transport.abort()

    scripted.answers = [cut]
    client = scripted.client()

    with pytest.raises(KubeUnavailable):
        await watch_all(client)
    await client.aclose()
