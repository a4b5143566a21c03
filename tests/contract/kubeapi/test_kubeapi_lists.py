"""Lists: selectors, pages, versions."""

import pytest


async def fill(http, core, *names, labels=None):
    for name in names:
        body = {"metadata": {"name": name, "labels": (labels or {}).get(name, {})}}
        await http.made(core("configmaps"), {"apiVersion": "v1", "kind": "ConfigMap", **body})


def names(answer):
    assert answer.status == 200, answer.raw
    found = [item["metadata"]["name"] for item in answer.body["items"]]
    return [name for name in found if name != "kube-root-ca.crt"]  # a real cluster puts one into each namespace


async def test_a_list_is_sorted_by_name_and_carries_a_version(http, core):
    await fill(http, core, "b", "a", "c")
    answer = await http.get(core("configmaps"))
    assert names(answer) == ["a", "b", "c"]
    assert answer.body["kind"] == "ConfigMapList"
    assert answer.body["apiVersion"] == "v1"
    assert int(answer.body["metadata"]["resourceVersion"]) > 0


async def test_items_of_built_in_lists_leave_out_their_kind(http, core):
    await fill(http, core, "a")
    item = (await http.get(core("configmaps"))).body["items"][0]
    assert "kind" not in item
    assert "apiVersion" not in item


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=x", ["a", "b"]),
        ("app==x", ["a", "b"]),
        ("app!=x", ["c", "d"]),
        ("app in (x,y)", ["a", "b", "c"]),
        ("app notin (x)", ["c", "d"]),
        ("tier", ["a"]),
        ("!tier", ["b", "c", "d"]),
        ("app=x,tier=web", ["a"]),
        ("app=x,!tier", ["b"]),
        ("n>3", ["b"]),
        ("n<3", ["a"]),
        ("", ["a", "b", "c", "d"]),
    ],
)
async def test_label_selectors(http, core, selector, expected):
    labels = {"a": {"app": "x", "tier": "web", "n": "2"}, "b": {"app": "x", "n": "10"}, "c": {"app": "y"}, "d": {}}
    await fill(http, core, "a", "b", "c", "d", labels=labels)
    assert names(await http.get(core("configmaps"), labelSelector=selector)) == expected


@pytest.mark.parametrize("selector", ["a=b=c=", "=x", "a in x", "a in (x", "a b", "!"])
async def test_bad_label_selectors_are_refused(http, core, selector):
    answer = await http.get(core("configmaps"), labelSelector=selector)
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_field_selectors_of_metadata(http, core, namespace):
    await fill(http, core, "a", "b")
    assert names(await http.get(core("configmaps"), fieldSelector="metadata.name=a")) == ["a"]
    assert names(await http.get(core("configmaps"), fieldSelector="metadata.name!=a")) == ["b"]
    everywhere = await http.get("/api/v1/configmaps", fieldSelector=f"metadata.namespace={namespace}")
    assert names(everywhere) == ["a", "b"]


async def test_field_selectors_of_pods(http, core, pod):
    await http.made(core("pods"), pod("a", schedulerName="mine"))
    await http.made(core("pods"), pod("b", nodeName="n1"))
    assert names(await http.get(core("pods"), fieldSelector="spec.nodeName=n1")) == ["b"]
    assert names(await http.get(core("pods"), fieldSelector="spec.nodeName=")) == ["a"]
    assert names(await http.get(core("pods"), fieldSelector="spec.schedulerName=mine,status.phase=Pending")) == ["a"]
    assert names(await http.get(core("pods"), fieldSelector="status.phase!=Running")) == ["a", "b"]


async def test_unknown_field_selectors_are_refused(http, core):
    answer = await http.get(core("pods"), fieldSelector="spec.color=red")
    assert answer.status == 400
    assert "spec.color" in answer.message


async def test_pages_together_are_the_list_at_one_moment(http, core):
    await fill(http, core, "a", "b", "c", "d", "e")
    first = await http.get(core("configmaps"), limit=2, labelSelector="")
    assert first.body["metadata"]["remainingItemCount"] >= 3
    await http.delete(core("configmaps", "d"))
    await fill(http, core, "f")
    found, token, version = names(first), first.body["metadata"]["continue"], first.body["metadata"]["resourceVersion"]
    while token:
        page = await http.get(core("configmaps"), limit=2, **{"continue": token})
        found += names(page)
        assert page.body["metadata"]["resourceVersion"] == version
        token = page.body["metadata"].get("continue", "")
    assert found == ["a", "b", "c", "d", "e"]


async def test_any_version_is_good_enough_with_zero(http, core):
    await fill(http, core, "a")
    # A real server answers from its watch cache, which may be a moment behind.
    await http.eventually(core("configmaps") + "?resourceVersion=0", lambda answer: "a" in names(answer))


async def test_a_version_of_the_future_times_out(http, core):
    answer = await http.get(core("configmaps"), resourceVersion="99999999", resourceVersionMatch="NotOlderThan")
    assert answer.status == 504
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_collections_are_deleted_by_selector(http, core):
    await fill(http, core, "a", "b", labels={"a": {"x": "y"}})
    assert (await http.delete(core("configmaps"), labelSelector="x=y")).status == 200
    assert names(await http.get(core("configmaps"))) == ["b"]


async def test_lists_across_namespaces(http, core, namespace):
    await fill(http, core, "a")
    everywhere = await http.get("/api/v1/configmaps", labelSelector="!none")
    assert (namespace, "a") in [(i["metadata"]["namespace"], i["metadata"]["name"]) for i in everywhere.body["items"]]
