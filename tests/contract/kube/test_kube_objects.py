"""Reading and writing objects: what is asked for arrives, and each failure is its own error."""

import time

import pytest

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.contracts.kubernetes import CONFIGMAPS, DEPLOYMENTS, LEASES, NODES, PODS
from flexinfer.ports import Conflict, Expired, Forbidden, Invalid, KubeUnavailable, NotFound

NS = "default"


async def test_an_object_is_created_read_replaced_and_deleted(api, configmap):
    made = await api.create(CONFIGMAPS, configmap("a", k="1"), NS)
    assert made["metadata"]["uid"]

    read = await api.get(CONFIGMAPS, "a", NS)
    assert read["data"] == {"k": "1"}

    replaced = await api.replace(CONFIGMAPS, {**read, "data": {"k": "2"}}, NS)
    assert replaced["metadata"]["resourceVersion"] != read["metadata"]["resourceVersion"]

    await api.delete(CONFIGMAPS, "a", NS)
    with pytest.raises(NotFound):
        await api.get(CONFIGMAPS, "a", NS)


async def test_a_second_object_of_the_name_conflicts(api, configmap):
    await api.create(CONFIGMAPS, configmap("a"), NS)

    with pytest.raises(Conflict) as refused:
        await api.create(CONFIGMAPS, configmap("a"), NS)
    assert refused.value.reason == "AlreadyExists"


async def test_a_stale_replace_conflicts(api, configmap):
    old = await api.create(CONFIGMAPS, configmap("a", k="1"), NS)
    await api.patch(CONFIGMAPS, "a", {"data": {"k": "2"}}, NS)

    with pytest.raises(Conflict):
        await api.replace(CONFIGMAPS, {**old, "data": {"k": "3"}}, NS)


async def test_merge_patch_removes_with_null(api, configmap):
    await api.create(CONFIGMAPS, configmap("a", k="1", l="2"), NS)

    patched = await api.patch(CONFIGMAPS, "a", {"data": {"k": None}}, NS)

    assert patched["data"] == {"l": "2"}


async def test_json_patch(api, configmap):
    await api.create(CONFIGMAPS, configmap("a", k="1"), NS)

    patched = await api.patch(CONFIGMAPS, "a", [{"op": "replace", "path": "/data/k", "value": "9"}], NS, kind="json")

    assert patched["data"] == {"k": "9"}


async def test_strategic_patch_merges_lists_by_their_key(api):
    await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    for kind in ("Ready", "Other"):
        condition = {"type": kind, "status": "True", "reason": "R", "message": "m"}
        body = {"status": {"conditions": [condition]}}
        found = await api.patch(NODES, "n", body, kind="strategic", subresource="status")

    assert {entry["type"] for entry in found["status"]["conditions"]} == {"Ready", "Other"}


async def test_apply_creates_and_a_second_one_changes_nothing(api, configmap):
    body = configmap("a", k="1")
    first = await api.patch(CONFIGMAPS, "a", body, NS, kind="apply", field_manager="test")
    second = await api.patch(CONFIGMAPS, "a", body, NS, kind="apply", field_manager="test")

    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]


async def test_apply_takes_a_field_over_from_another_manager(api, configmap):
    await api.patch(CONFIGMAPS, "a", configmap("a", k="1"), NS, kind="apply", field_manager="one")

    taken = await api.patch(CONFIGMAPS, "a", configmap("a", k="2"), NS, kind="apply", field_manager="two")

    assert taken["data"] == {"k": "2"}


async def test_status_is_written_apart(api):
    await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})

    await api.patch(NODES, "n", {"spec": {"unschedulable": True}, "status": {"phase": "Running"}}, subresource="status")
    found = await api.get(NODES, "n")

    assert "unschedulable" not in found.get("spec", {})
    assert found["status"]["phase"] == "Running"


async def test_a_pod_is_bound_through_its_subresource(api):
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": NS},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }  # fmt: skip
    await api.create(PODS, pod, NS)
    binding = {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
    }  # fmt: skip
    await api.create(PODS, binding, NS, subresource="binding")

    assert (await api.get(PODS, "p", NS))["spec"]["nodeName"] == "n"


async def test_lists_follow_pages_and_name_the_kind_of_items(api, configmap, monkeypatch):
    for number in range(5):
        await api.create(CONFIGMAPS, configmap(f"a{number}"), NS)
    monkeypatch.setattr("flexinfer.adapters.kube.client.PAGE", 2)

    page = await api.list(CONFIGMAPS, NS)

    names = [item["metadata"]["name"] for item in page.items]
    assert [name for name in names if name.startswith("a")] == ["a0", "a1", "a2", "a3", "a4"]
    assert {(item["apiVersion"], item["kind"]) for item in page.items} == {("v1", "ConfigMap")}
    assert page.resource_version


async def test_lists_select_by_label_and_field(api, configmap):
    await api.create(CONFIGMAPS, configmap("a") | {"metadata": {"name": "a", "labels": {"app": "x"}}}, NS)
    await api.create(CONFIGMAPS, configmap("b"), NS)

    by_label = await api.list(CONFIGMAPS, NS, labels="app in (x, y)")
    by_field = await api.list(CONFIGMAPS, NS, fields="metadata.name=b")

    assert [item["metadata"]["name"] for item in by_label.items] == ["a"]
    assert [item["metadata"]["name"] for item in by_field.items] == ["b"]


async def test_lists_of_all_namespaces(api, configmap):
    await api.create(CONFIGMAPS, configmap("a"), NS)

    found = await api.list(CONFIGMAPS)

    assert (NS, "a") in {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in found.items}


async def test_delete_keeps_to_the_uid(api, configmap):
    made = await api.create(CONFIGMAPS, configmap("a"), NS)

    with pytest.raises(Conflict):
        await api.delete(CONFIGMAPS, "a", NS, uid="another")
    await api.delete(CONFIGMAPS, "a", NS, uid=made["metadata"]["uid"])
    with pytest.raises(NotFound):
        await api.delete(CONFIGMAPS, "a", NS)


async def test_a_wrong_object_is_invalid(api):
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": NS}, "spec": {}}

    with pytest.raises(Invalid) as refused:
        await api.create(DEPLOYMENTS, body, NS)
    assert "spec" in refused.value.message


async def test_a_name_cannot_reach_another_path(api):
    with pytest.raises(NotFound):
        await api.get(CONFIGMAPS, "../../../../version", NS)


async def test_a_wrong_token_is_forbidden(server):
    client = await KubeClient.connect(server.kubeconfig(token="wrong"))
    with pytest.raises(Forbidden) as refused:
        await client.list(LEASES, NS)
    await client.aclose()

    assert refused.value.status == 401


# --- a server that fails -----------------------------------------------------------------------------------------


async def test_a_hanging_server_is_given_up_in_time(server, link):
    client = await KubeClient.connect(server.kubeconfig(link.port), timeout=0.3)
    link.set("hang")
    began = time.monotonic()

    with pytest.raises(KubeUnavailable, match="no answer in time"):
        await client.get(CONFIGMAPS, "a", NS)
    await client.aclose()

    assert time.monotonic() - began < 2


async def test_a_server_that_is_not_there_is_unavailable(api, link):
    link.set("refuse")
    with pytest.raises(KubeUnavailable):
        await api.get(CONFIGMAPS, "a", NS)

    link.set("pass")
    with pytest.raises(NotFound):
        await api.get(CONFIGMAPS, "a", NS)


async def test_a_closed_client_is_unavailable(server):
    client = await KubeClient.connect(server.kubeconfig())
    await client.aclose()

    with pytest.raises(KubeUnavailable):
        await client.get(CONFIGMAPS, "a", NS)


STATUS = {"kind": "Status", "status": "Failure", "message": "m", "reason": "R"}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (400, Invalid), (401, Forbidden), (403, Forbidden), (404, NotFound), (409, Conflict), (410, Expired),
        (415, Invalid), (422, Invalid), (429, KubeUnavailable), (500, KubeUnavailable), (503, KubeUnavailable),
    ],
)  # fmt: skip
async def test_each_status_is_its_own_error(scripted, answers, code, error):
    scripted.answers = [answers.reply(code, STATUS, "Retry-After: 7\r\n")]
    client = scripted.client()

    with pytest.raises(error) as refused:
        await client.get(CONFIGMAPS, "a", NS)
    await client.aclose()

    assert refused.value.retry_after == 7


@pytest.mark.parametrize("body", [b"", b"<html>gateway</html>", b"[1]", b"\xff\xfe"])
async def test_an_answer_that_is_no_object_is_unavailable(scripted, answers, body):
    scripted.answers = [answers.reply(200, body)]
    client = scripted.client()

    with pytest.raises(KubeUnavailable):
        await client.get(CONFIGMAPS, "a", NS)
    await client.aclose()


async def test_a_list_that_expires_between_pages_starts_again(scripted, answers):
    first = {"items": [{"metadata": {"name": "a"}}], "metadata": {"resourceVersion": "1", "continue": "t"}}
    whole = {"items": [{"metadata": {"name": "b"}}], "metadata": {"resourceVersion": "2"}}
    scripted.answers = [answers.reply(200, first), answers.reply(410, STATUS), answers.reply(200, whole)]
    client = scripted.client()

    page = await client.list(CONFIGMAPS, NS)
    await client.aclose()

    assert [item["metadata"]["name"] for item in page.items] == ["b"]
    assert "continue=t" in scripted.requests[1]
    assert "continue" not in scripted.requests[2]


async def test_a_list_that_always_expires_says_so(scripted, answers):
    scripted.answers = [answers.reply(410, STATUS)]
    client = scripted.client()

    with pytest.raises(Expired):
        await client.list(CONFIGMAPS, NS)
    await client.aclose()

    assert len(scripted.requests) == 3
