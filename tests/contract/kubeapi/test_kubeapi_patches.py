"""The three patch types that change what is there."""

import pytest


@pytest.fixture
async def made(http, apps):
    containers = [
        {
            "name": "a",
            "image": "example/a:1",
            "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}],
            "ports": [{"containerPort": 80}, {"containerPort": 90}],
        },
        {"name": "b", "image": "example/b:1"},
    ]
    template = {
        "metadata": {"labels": {"app": "d"}},
        "spec": {
            "containers": containers,
            "volumes": [{"name": "v", "emptyDir": {}}],
            "tolerations": [{"key": "t", "operator": "Exists"}],
        },
    }
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "d"}}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    return await http.made(apps("deployments"), body)


def pod_spec(answer):
    assert answer.status == 200, answer.raw
    return answer.body["spec"]["template"]["spec"]


def in_template(spec):
    return {"spec": {"template": {"spec": spec}}}


async def test_a_merge_patch_replaces_lists_and_removes_nulls(http, core):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v", "l": "w"}}
    await http.made(core("configmaps"), body)
    patch = {"data": {"k": None, "m": "x"}, "metadata": {"labels": {"a": "b"}}}
    answer = await http.patch(core("configmaps", "a"), patch)
    assert answer.body["data"] == {"l": "w", "m": "x"}
    assert answer.body["metadata"]["labels"] == {"a": "b"}


async def test_a_json_patch_applies_its_operations(http, core):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v", "l": "c"}}
    await http.made(core("configmaps"), body)
    operations = [
        {"op": "test", "path": "/data/k", "value": "v"},
        {"op": "replace", "path": "/data/k", "value": "w"},
        {"op": "remove", "path": "/data/l"},
        {"op": "add", "path": "/metadata/labels", "value": {"x/y": "z", "b": "c"}},
        {"op": "remove", "path": "/metadata/labels/x~1y"},
        {"op": "copy", "from": "/data/k", "path": "/data/l"},
        {"op": "move", "from": "/data/l", "path": "/data/m"},
    ]
    answer = await http.patch(core("configmaps", "a"), operations, "json")
    assert answer.body["data"] == {"k": "w", "m": "w"}
    assert answer.body["metadata"]["labels"] == {"b": "c"}


@pytest.mark.parametrize(
    ("operations", "status"),
    [
        ([{"op": "test", "path": "/data/k", "value": "other"}], 422),
        ([{"op": "remove", "path": "/data/none"}], 422),
        ([{"op": "replace", "path": "/data/none/x", "value": 1}], 422),
        ({"op": "remove"}, 400),
    ],
)
async def test_a_json_patch_that_does_not_fit_changes_nothing(http, core, operations, status):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
    made = await http.made(core("configmaps"), body)
    assert (await http.patch(core("configmaps", "a"), operations, "json")).status == status
    after = (await http.get(core("configmaps", "a"))).body
    assert after["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_strategic_patch_merges_containers_by_name(http, apps, made):
    patch = in_template({"containers": [{"name": "b", "image": "example/b:2"}]})
    containers = pod_spec(await http.patch(apps("deployments", "d"), patch, "strategic"))["containers"]
    assert [(item["name"], item["image"]) for item in containers] == [("a", "example/a:1"), ("b", "example/b:2")]


async def test_a_strategic_patch_merges_env_and_ports(http, apps, made):
    patch = in_template(
        {
            "containers": [
                {
                    "name": "a",
                    "env": [{"name": "Y", "value": "3"}, {"name": "Z", "value": "4"}],
                    "ports": [{"containerPort": 90, "name": "web"}],
                }
            ]
        }
    )
    first = pod_spec(await http.patch(apps("deployments", "d"), patch, "strategic"))["containers"][0]
    assert {item["name"]: item["value"] for item in first["env"]} == {"X": "1", "Y": "3", "Z": "4"}
    assert {item["containerPort"]: item.get("name") for item in first["ports"]} == {80: None, 90: "web"}


async def test_a_strategic_patch_deletes_by_directive(http, apps, made):
    patch = in_template({"containers": [{"name": "b", "$patch": "delete"}], "volumes": [{"$patch": "replace"}]})
    spec = pod_spec(await http.patch(apps("deployments", "d"), patch, "strategic"))
    assert [item["name"] for item in spec["containers"]] == ["a"]
    assert not spec.get("volumes")


async def test_a_strategic_patch_orders_by_directive(http, apps, made):
    patch = in_template(
        {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
            "containers": [{"name": "a", "image": "example/a:2"}],
        }
    )
    containers = pod_spec(await http.patch(apps("deployments", "d"), patch, "strategic"))["containers"]
    assert [item["name"] for item in containers] == ["b", "a"]


async def test_a_strategic_patch_replaces_atomic_lists(http, apps, made):
    patch = in_template({"tolerations": [{"key": "u", "operator": "Exists"}]})
    spec = pod_spec(await http.patch(apps("deployments", "d"), patch, "strategic"))
    assert [item["key"] for item in spec["tolerations"]] == ["u"]


async def test_a_strategic_patch_removes_from_primitive_lists(http, core):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "finalizers": ["x.io/a", "x.io/b"]}}
    await http.made(core("configmaps"), body)
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/a"]}}
    answer = await http.patch(core("configmaps", "a"), patch, "strategic")
    assert answer.body["metadata"]["finalizers"] == ["x.io/b"]
    await http.patch(core("configmaps", "a"), {"metadata": {"finalizers": None}})


async def test_a_strategic_patch_merges_conditions_by_type(http, core, pod):
    await http.made(core("pods"), pod("p"))
    for kind in ("Ready", "ContainersReady"):
        patch = {"status": {"conditions": [{"type": kind, "status": "False"}]}}
        answer = await http.patch(core("pods", "p", "status"), patch, "strategic")
        assert answer.status == 200, answer.raw
    types = {entry["type"] for entry in answer.body["status"]["conditions"]}
    assert {"Ready", "ContainersReady"} <= types


async def test_a_strategic_patch_needs_the_merge_key(http, apps, made):
    patch = in_template({"containers": [{"image": "example/c"}]})
    assert (await http.patch(apps("deployments", "d"), patch, "strategic")).status in (400, 422, 500)


async def test_custom_resources_take_no_strategic_patch(http, widgets):
    await http.made(widgets.path(), widgets.body("w"))
    answer = await http.patch(widgets.path("w"), {"spec": {"replicas": 2}}, "strategic")
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")
    assert (await http.patch(widgets.path("w"), {"spec": {"replicas": 2}}, "merge")).body["spec"]["replicas"] == 2
    operation = [{"op": "replace", "path": "/spec/replicas", "value": 3}]
    assert (await http.patch(widgets.path("w"), operation, "json")).body["spec"]["replicas"] == 3


async def test_an_object_as_json_patch_is_refused(http, widgets):
    await http.made(widgets.path(), widgets.body("w"))
    assert (await http.patch(widgets.path("w"), {"spec": {"replicas": 2}}, "json")).status == 400


async def test_a_version_in_the_patch_is_a_precondition(http, core):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    made = await http.made(core("configmaps"), body)
    patch = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"k": "v"}}
    assert (await http.patch(core("configmaps", "a"), patch)).status == 200
    answer = await http.patch(core("configmaps", "a"), {**patch, "data": {"k": "w"}})
    assert (answer.status, answer.reason) == (409, "Conflict")


async def test_a_patch_of_nothing_is_not_found(http, core):
    assert (await http.patch(core("configmaps", "nope"), {"data": {}})).status == 404


async def test_an_unknown_patch_type_is_unsupported(http, core):
    await http.made(core("configmaps"), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    answer = await http.call(
        "PATCH", core("configmaps", "a"), {"data": {}}, headers={"Content-Type": "application/json"}
    )
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")
