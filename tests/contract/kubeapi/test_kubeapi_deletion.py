"""Deletion: finalizers, grace, owners, namespaces, preconditions."""

import uuid

import pytest


def config_map(name, **metadata):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def owned_by(owner, **extra):
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        **extra,
    }
    return {"ownerReferences": [reference]}


async def test_a_deletion_answers_success(http, core):
    made = await http.made(core("configmaps"), config_map("a"))
    answer = await http.delete(core("configmaps", "a"))
    assert answer.status == 200
    assert answer.body["kind"] == "Status"
    assert answer.body["status"] == "Success"
    assert answer.body["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}


async def test_finalizers_hold_an_object_back(http, core):
    await http.made(core("configmaps"), config_map("a", finalizers=["x.io/a", "x.io/b"]))
    answer = await http.delete(core("configmaps", "a"))
    assert answer.status == 200
    assert answer.body["metadata"]["deletionTimestamp"]
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 0
    first = (await http.get(core("configmaps", "a"))).body
    await http.delete(core("configmaps", "a"))
    again = (await http.get(core("configmaps", "a"))).body
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    await http.patch(core("configmaps", "a"), {"metadata": {"finalizers": ["x.io/a"]}})
    assert (await http.get(core("configmaps", "a"))).status == 200
    await http.patch(core("configmaps", "a"), {"metadata": {"finalizers": None}})
    assert (await http.get(core("configmaps", "a"))).status == 404


async def test_no_finalizer_is_added_to_what_is_going(http, core):
    await http.made(core("configmaps"), config_map("a", finalizers=["x.io/a"]))
    await http.delete(core("configmaps", "a"))
    answer = await http.patch(core("configmaps", "a"), {"metadata": {"finalizers": ["x.io/a", "x.io/b"]}})
    assert answer.status == 422
    assert "no new finalizers can be added if the object is being deleted" in answer.message
    await http.patch(core("configmaps", "a"), {"metadata": {"finalizers": None}})


async def test_watchers_see_the_mark_and_the_removal(http, core):
    made = await http.made(core("configmaps"), config_map("a", finalizers=["x.io/a"]))
    start = made["metadata"]["resourceVersion"]
    async with http.watch(core("configmaps"), resourceVersion=start, fieldSelector="metadata.name=a") as watch:
        await http.delete(core("configmaps", "a"))
        await http.patch(core("configmaps", "a"), {"metadata": {"finalizers": None}})
        kinds = []
        while "DELETED" not in kinds:
            kind, _ = await watch.next()
            kinds.append(kind)
    assert kinds[0] == "MODIFIED"


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_preconditions(http, core, field):
    made = await http.made(core("configmaps"), config_map("a"))
    wrong = {"uid": str(uuid.uuid4()), "resourceVersion": "1"}[field]
    answer = await http.delete(core("configmaps", "a"), {"preconditions": {field: wrong}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    answer = await http.delete(core("configmaps", "a"), {"preconditions": {field: made["metadata"][field]}})
    assert answer.status == 200


async def test_a_pod_without_a_node_goes_at_once(http, core, pod):
    await http.made(core("pods"), pod("p"))
    assert (await http.delete(core("pods", "p"))).status == 200
    assert (await http.get(core("pods", "p"))).status == 404


async def test_a_pod_on_a_node_waits_for_its_runner(http, core, pod):
    await http.made(core("pods"), pod("p", nodeName="n1", terminationGracePeriodSeconds=20))
    answer = await http.delete(core("pods", "p"))
    assert answer.status == 200
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 20
    assert answer.body["metadata"]["deletionTimestamp"]
    shorter = await http.delete(core("pods", "p"), {"gracePeriodSeconds": 5})
    assert shorter.body["metadata"]["deletionGracePeriodSeconds"] == 5
    longer = await http.delete(core("pods", "p"), {"gracePeriodSeconds": 60})
    assert longer.body["metadata"]["deletionGracePeriodSeconds"] == 5
    assert (await http.get(core("pods", "p"))).status == 200
    assert (await http.delete(core("pods", "p"), {"gracePeriodSeconds": 0})).status == 200
    assert (await http.get(core("pods", "p"))).status == 404


async def test_a_finished_pod_goes_at_once(http, core, pod):
    await http.made(core("pods"), pod("p", nodeName="n1"))
    await http.patch(core("pods", "p", "status"), {"status": {"phase": "Succeeded"}})
    await http.delete(core("pods", "p"))
    assert (await http.get(core("pods", "p"))).status == 404


async def test_dependents_go_after_their_owner(http, core):
    owner = await http.made(core("configmaps"), config_map("owner"))
    await http.made(core("secrets"), {**config_map("child", **owned_by(owner)), "kind": "Secret"})
    child = (await http.get(core("secrets", "child"))).body
    await http.made(core("configmaps"), config_map("grandchild", **owned_by(child)))
    await http.delete(core("configmaps", "owner"), {"propagationPolicy": "Background"})
    assert (await http.get(core("configmaps", "owner"))).status == 404
    await http.gone(core("secrets", "child"))
    await http.gone(core("configmaps", "grandchild"))


async def test_dependents_go_before_their_owner_in_the_foreground(http, core):
    owner = await http.made(core("configmaps"), config_map("owner"))
    child = config_map("child", finalizers=["x.io/hold"], **owned_by(owner, blockOwnerDeletion=True))
    await http.made(core("configmaps"), child)
    answer = await http.delete(core("configmaps", "owner"), {"propagationPolicy": "Foreground"})
    assert answer.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    await http.eventually(core("configmaps", "child"), lambda a: "deletionTimestamp" in a.body["metadata"])
    assert (await http.get(core("configmaps", "owner"))).status == 200
    await http.patch(core("configmaps", "child"), {"metadata": {"finalizers": None}})
    await http.gone(core("configmaps", "owner"))


async def test_orphans_stay(http, core):
    owner = await http.made(core("configmaps"), config_map("owner"))
    await http.made(core("configmaps"), config_map("child", **owned_by(owner)))
    await http.delete(core("configmaps", "owner"), {"propagationPolicy": "Orphan"})
    await http.gone(core("configmaps", "owner"))
    child = (await http.get(core("configmaps", "child"))).body
    assert "ownerReferences" not in child["metadata"]


async def test_a_dependent_with_another_living_owner_stays(http, core):
    first = await http.made(core("configmaps"), config_map("first"))
    second = await http.made(core("configmaps"), config_map("second"))
    references = owned_by(first)["ownerReferences"] + owned_by(second)["ownerReferences"]
    await http.made(core("configmaps"), config_map("child", ownerReferences=references))
    await http.delete(core("configmaps", "first"), {"propagationPolicy": "Background"})
    left = await http.eventually(
        core("configmaps", "child"), lambda a: len(a.body["metadata"].get("ownerReferences", ())) == 1
    )
    assert left.body["metadata"]["ownerReferences"][0]["name"] == "second"


async def test_a_dependent_of_nobody_is_collected(http, core):
    stranger = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "never", "uid": str(uuid.uuid4())}}
    await http.made(core("configmaps"), config_map("child", **owned_by(stranger)))
    await http.gone(core("configmaps", "child"))


async def test_a_namespace_takes_everything_with_it(http):
    name = f"t-{uuid.uuid4().hex[:10]}"
    made = await http.made("/api/v1/namespaces", {"metadata": {"name": name}})
    assert made["status"]["phase"] == "Active"
    assert made["spec"]["finalizers"] == ["kubernetes"]
    assert made["metadata"]["labels"]["kubernetes.io/metadata.name"] == name
    path = f"/api/v1/namespaces/{name}"
    await http.made(f"{path}/configmaps", config_map("a", finalizers=["x.io/a"]))
    answer = await http.delete(path)
    assert answer.status == 200
    assert answer.body["status"]["phase"] == "Terminating"
    refused = await http.post(f"{path}/configmaps", config_map("b"))
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert refused.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    await http.eventually(f"{path}/configmaps/a", lambda a: "deletionTimestamp" in a.body["metadata"])
    await http.patch(f"{path}/configmaps/a", {"metadata": {"finalizers": None}})
    await http.gone(path)


@pytest.mark.parametrize("name", ["default", "kube-system"])
async def test_some_namespaces_are_permanent(http, name):
    answer = await http.delete(f"/api/v1/namespaces/{name}")
    assert (answer.status, answer.reason) == (403, "Forbidden")
