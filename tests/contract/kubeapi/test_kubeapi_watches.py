"""Watches: what is seen, from where, and how they end."""

import asyncio

import pytest


def config_map(name, labels=None, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels or {}}, "data": data}


async def version_now(http, core):
    return (await http.get(core("configmaps"))).body["metadata"]["resourceVersion"]


async def test_changes_arrive_in_order_with_whole_objects(http, core):
    start = await version_now(http, core)
    async with http.watch(core("configmaps"), resourceVersion=start) as watch:
        made = await http.made(core("configmaps"), config_map("a", k="1"))
        await http.patch(core("configmaps", "a"), {"data": {"k": "2"}})
        await http.delete(core("configmaps", "a"))
        events = [await watch.next() for _ in range(3)]
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert events[0][1]["metadata"] == made["metadata"]
    assert events[0][1]["kind"] == "ConfigMap"
    assert events[1][1]["data"] == {"k": "2"}
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in events]
    assert versions == sorted(set(versions))


async def test_a_watch_from_an_older_version_replays(http, core):
    start = await version_now(http, core)
    await http.made(core("configmaps"), config_map("a"))
    await http.made(core("configmaps"), config_map("b"))
    async with http.watch(core("configmaps"), resourceVersion=start) as watch:
        assert await watch.names(2) == [("ADDED", "a"), ("ADDED", "b")]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
async def test_a_watch_without_version_starts_with_what_is_there(http, core, query):
    await http.made(core("configmaps"), config_map("a", labels={"x": "y"}))
    async with http.watch(core("configmaps"), labelSelector="x=y", **query) as watch:
        assert await watch.names(1) == [("ADDED", "a")]
        await http.made(core("configmaps"), config_map("b", labels={"x": "y"}))
        assert await watch.names(1) == [("ADDED", "b")]


async def test_objects_enter_and_leave_a_selection(http, core):
    start = await version_now(http, core)
    async with http.watch(core("configmaps"), resourceVersion=start, labelSelector="x=y") as watch:
        await http.made(core("configmaps"), config_map("a"))
        await http.patch(core("configmaps", "a"), {"metadata": {"labels": {"x": "y"}}})
        await http.patch(core("configmaps", "a"), {"data": {"k": "v"}})
        left = await http.patch(core("configmaps", "a"), {"metadata": {"labels": {"x": None}}})
        events = [await watch.next() for _ in range(3)]
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert events[2][1]["metadata"]["labels"] == {"x": "y"}
    assert events[2][1]["metadata"]["resourceVersion"] == left.body["metadata"]["resourceVersion"]


async def test_objects_enter_and_leave_a_field_selection(http, core, pod):
    await http.made(core("pods"), pod("a"))
    async with http.watch(core("pods"), fieldSelector="spec.nodeName=") as watch:
        assert await watch.names(1) == [("ADDED", "a")]
        body = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}
        assert (await http.post(core("pods", "a", "binding"), body)).status == 201
        assert await watch.names(1) == [("DELETED", "a")]


async def test_one_object_is_watched_by_name(http, core):
    await http.made(core("configmaps"), config_map("a"))
    await http.made(core("configmaps"), config_map("b"))
    async with http.watch(core("configmaps"), fieldSelector="metadata.name=b") as watch:
        assert await watch.names(1) == [("ADDED", "b")]
        await http.patch(core("configmaps", "a"), {"data": {"k": "v"}})
        await http.patch(core("configmaps", "b"), {"data": {"k": "v"}})
        assert await watch.names(1) == [("MODIFIED", "b")]


@pytest.mark.parametrize("flag", ["true", "True", "1", "t", "TRUE"])
async def test_the_flag_is_read_as_go_does(http, core, flag):
    await http.made(core("configmaps"), config_map("a"))
    async with http.watch(core("configmaps"), watch=flag, timeoutSeconds=1, labelSelector="!none") as watch:
        kind, _ = await watch.next()
        assert kind == "ADDED"


@pytest.mark.parametrize("flag", ["false", "0", "False"])
async def test_a_false_flag_lists(http, core, flag):
    answer = await http.get(core("configmaps"), watch=flag)
    assert answer.body["kind"] == "ConfigMapList"


async def test_the_time_limit_ends_a_watch_cleanly(http, core):
    loop = asyncio.get_running_loop()
    began = loop.time()
    start = await version_now(http, core)
    async with http.watch(core("configmaps"), resourceVersion=start, timeoutSeconds=1) as watch:
        assert await watch.rest() == []
    assert 0.5 < loop.time() - began < 10


async def test_initial_events_end_with_a_bookmark(http, core):
    await http.made(core("configmaps"), config_map("a", labels={"x": "y"}))
    query = {"sendInitialEvents": "true", "allowWatchBookmarks": "true", "resourceVersionMatch": "NotOlderThan"}
    async with http.watch(core("configmaps"), labelSelector="x=y", **query) as watch:
        assert await watch.names(1) == [("ADDED", "a")]
        kind, obj = await watch.next()
        assert kind == "BOOKMARK"
        assert obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert obj["kind"] == "ConfigMap"
        assert int(obj["metadata"]["resourceVersion"]) > 0


async def test_a_watch_of_all_namespaces(http, core, namespace):
    start = await version_now(http, core)
    async with http.watch("/api/v1/configmaps", resourceVersion=start, labelSelector=f"ns={namespace}") as watch:
        await http.made(core("configmaps"), config_map("a", labels={"ns": namespace}))
        assert await watch.names(1) == [("ADDED", "a")]


async def test_a_slow_watcher_sees_every_change(http, core):
    start = await version_now(http, core)
    await http.made(core("configmaps"), config_map("a"))
    async with http.watch(core("configmaps"), resourceVersion=start, fieldSelector="metadata.name=a") as watch:
        for number in range(100):
            await http.patch(core("configmaps", "a"), {"data": {"n": str(number)}})
        events = [await watch.next() for _ in range(101)]
    assert [obj.get("data", {}).get("n") for _, obj in events[1:]] == [str(number) for number in range(100)]


async def test_lines_may_be_long(http, core):
    start = await version_now(http, core)
    async with http.watch(core("configmaps"), resourceVersion=start) as watch:
        await http.made(core("configmaps"), config_map("big", k="x" * 900_000))
        _, obj = await watch.next()
    assert len(obj["data"]["k"]) == 900_000
