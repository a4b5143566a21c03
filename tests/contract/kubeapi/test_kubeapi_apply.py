"""Server-side apply: creation, ownership, removal, conflicts."""

import pytest


def config_map(name="a", labels=None, **data):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    if labels:
        body["metadata"]["labels"] = labels
    return body


def managers(obj):
    return {entry["manager"]: entry for entry in obj["metadata"]["managedFields"]}


async def test_apply_creates_what_is_missing(http, core):
    answer = await http.apply(core("configmaps", "a"), config_map(k="v"))
    assert answer.status == 201
    entry = managers(answer.body)["tests"]
    assert entry["operation"] == "Apply"
    assert entry["fieldsType"] == "FieldsV1"
    assert entry["fieldsV1"] == {"f:data": {"f:k": {}}}


async def test_applying_the_same_again_changes_nothing(http, core):
    first = await http.apply(core("configmaps", "a"), config_map(k="v"))
    second = await http.apply(core("configmaps", "a"), config_map(k="v"))
    assert second.status == 200
    assert second.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]


async def test_a_field_dropped_from_the_configuration_is_removed(http, core):
    await http.apply(core("configmaps", "a"), config_map(k="v", l="w"))
    answer = await http.apply(core("configmaps", "a"), config_map(k="v"))
    assert answer.body["data"] == {"k": "v"}


async def test_a_field_somebody_else_owns_too_stays(http, core):
    await http.apply(core("configmaps", "a"), config_map(k="v", l="w"), "one")
    await http.apply(core("configmaps", "a"), config_map(l="w"), "two")
    answer = await http.apply(core("configmaps", "a"), config_map(k="v"), "one")
    assert answer.body["data"] == {"k": "v", "l": "w"}
    answer = await http.apply(core("configmaps", "a"), config_map(), "two")
    assert answer.body["data"] == {"k": "v"}


async def test_another_value_for_an_owned_field_is_a_conflict(http, core):
    await http.apply(core("configmaps", "a"), config_map(k="v"), "one")
    answer = await http.apply(core("configmaps", "a"), config_map(k="w"), "two")
    assert (answer.status, answer.reason) == (409, "Conflict")
    cause = answer.body["details"]["causes"][0]
    assert cause["reason"] == "FieldManagerConflict"
    assert cause["field"] == ".data.k"
    assert '"one"' in cause["message"]
    assert answer.message == 'Apply failed with 1 conflict: conflict with "one": .data.k'


async def test_several_conflicts_are_listed(http, core):
    await http.apply(core("configmaps", "a"), config_map(k="v", l="v"), "one")
    answer = await http.apply(core("configmaps", "a"), config_map(k="w", l="w"), "two")
    assert answer.message == 'Apply failed with 2 conflicts: conflicts with "one":\n- .data.k\n- .data.l'


async def test_kubectl_goes_over_to_the_server_side_without_conflicts(http, core):
    body = config_map(k="v")
    applied = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}'
    body["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": applied}
    await http.post(core("configmaps"), body, fieldManager="kubectl-client-side-apply")
    answer = await http.apply(core("configmaps", "a"), config_map(k="w"), "kubectl")
    assert answer.status == 200, answer.raw
    assert '"k":"w"' in answer.body["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]


async def test_force_takes_the_field_over(http, core):
    await http.apply(core("configmaps", "a"), config_map(k="v", l="x"), "one")
    answer = await http.apply(core("configmaps", "a"), config_map(k="w"), "two", force="true")
    assert answer.body["data"] == {"k": "w", "l": "x"}
    owners = managers(answer.body)
    assert owners["one"]["fieldsV1"] == {"f:data": {"f:l": {}}}
    assert owners["two"]["fieldsV1"] == {"f:data": {"f:k": {}}}


async def test_the_same_value_is_shared(http, core):
    await http.apply(core("configmaps", "a"), config_map(k="v"), "one")
    answer = await http.apply(core("configmaps", "a"), config_map(k="v"), "two")
    assert answer.status == 200
    assert set(managers(answer.body)) == {"one", "two"}


async def test_an_update_takes_ownership(http, core):
    await http.apply(core("configmaps", "a"), config_map(k="v"), "one")
    await http.patch(core("configmaps", "a"), {"data": {"k": "w"}}, fieldManager="editor")
    answer = await http.apply(core("configmaps", "a"), config_map(k="v"), "one")
    assert answer.status == 409
    assert '"editor" using v1: .data.k' in answer.message


async def test_the_first_apply_does_not_win_silently(http, core):
    await http.post(core("configmaps"), config_map(k="v"), fieldManager="creator")
    assert (await http.apply(core("configmaps", "a"), config_map(k="w"))).status == 409
    assert (await http.apply(core("configmaps", "a"), config_map(k="v"))).status == 200


async def test_lists_that_are_maps_are_owned_by_element(http, apps):
    def body(*containers):
        template = {
            "metadata": {"labels": {"app": "d"}},
            "spec": {"containers": [{"name": name, "image": image} for name, image in containers]},
        }
        spec = {"replicas": 0, "selector": {"matchLabels": {"app": "d"}}, "template": template}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}

    path = apps("deployments", "d")
    assert (await http.apply(path, body(("a", "example/a:1"), ("b", "example/b:1")))).status == 201
    answer = await http.apply(path, body(("a", "example/a:2")))
    containers = answer.body["spec"]["template"]["spec"]["containers"]
    assert [(item["name"], item["image"]) for item in containers] == [("a", "example/a:2")]


async def test_an_element_of_another_manager_stays(http, apps):
    base = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "d"}},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {"containers": [{"name": "a", "image": "example/a:1", "env": [{"name": "X", "value": "1"}]}]},
            },
        },
    }
    path = apps("deployments", "d")
    await http.apply(path, base, "one")
    extra = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"template": {"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}}},
    }
    answer = await http.apply(path, extra, "two")
    assert answer.status == 200, answer.raw
    env = answer.body["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {item["name"] for item in env} == {"X", "Y"}
    answer = await http.apply(path, base, "one")
    env = answer.body["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {item["name"] for item in env} == {"X", "Y"}


async def test_labels_and_finalizers_are_owned_one_by_one(http, core):
    body = config_map(labels={"a": "1", "b": "2"})
    body["metadata"]["finalizers"] = ["x.io/a"]
    await http.apply(core("configmaps", "a"), body)
    await http.patch(core("configmaps", "a"), {"metadata": {"labels": {"c": "3"}}}, fieldManager="other")
    answer = await http.apply(core("configmaps", "a"), config_map(labels={"a": "1"}))
    assert answer.body["metadata"]["labels"] == {"a": "1", "c": "3"}
    assert not answer.body["metadata"].get("finalizers")


async def test_custom_resources_are_applied_with_defaults(http, widgets):
    body = widgets.body("w", ports=[{"name": "a", "port": 1}])
    answer = await http.apply(widgets.path("w"), body)
    assert answer.status == 201, answer.raw
    assert answer.body["spec"]["replicas"] == 1
    owned = managers(answer.body)["tests"]["fieldsV1"]
    assert owned == {
        "f:spec": {
            "f:backend": {},
            "f:ports": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:port": {}}},
        }
    }
    other = {**widgets.body("w"), "spec": {"ports": [{"name": "b", "port": 2}]}}
    answer = await http.apply(widgets.path("w"), other, "two")
    assert [item["name"] for item in answer.body["spec"]["ports"]] == ["a", "b"]
    again = await http.apply(widgets.path("w"), body)
    assert again.body["metadata"]["resourceVersion"] == answer.body["metadata"]["resourceVersion"]


async def test_the_status_is_applied_on_its_own(http, widgets):
    await http.apply(widgets.path("w"), widgets.body("w"))
    status = {**widgets.body("w"), "status": {"phase": "Up"}}
    del status["spec"]
    answer = await http.apply(widgets.path("w", "status"), status, "controller")
    assert answer.status == 200, answer.raw
    assert answer.body["status"] == {"phase": "Up"}
    entry = managers(answer.body)["controller"]
    assert entry["subresource"] == "status"
    assert entry["fieldsV1"] == {"f:status": {"f:phase": {}}}
    again = await http.apply(widgets.path("w"), widgets.body("w"))
    assert again.body["status"] == {"phase": "Up"}


async def test_yaml_is_accepted(http, core):
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n"
    headers = {"Content-Type": "application/apply-patch+yaml"}
    answer = await http.call("PATCH", core("configmaps", "a"), text, headers=headers, fieldManager="tests")
    assert answer.status == 201


async def test_a_manager_is_required(http, core):
    answer = await http.patch(core("configmaps", "a"), config_map(), "apply")
    assert answer.status in (400, 422)
    assert "fieldManager" in answer.message


@pytest.mark.parametrize("missing", ["apiVersion", "kind"])
async def test_the_type_is_required(http, core, missing):
    body = config_map()
    del body[missing]
    assert (await http.apply(core("configmaps", "a"), body)).status == 400


async def test_managed_fields_may_not_be_applied(http, core):
    first = await http.apply(core("configmaps", "a"), config_map(k="v"))
    answer = await http.apply(core("configmaps", "a"), first.body)
    assert answer.status in (400, 422)


async def test_a_dry_run_applies_nothing(http, core):
    answer = await http.apply(core("configmaps", "a"), config_map(k="v"), dryRun="All")
    assert answer.status == 201
    assert (await http.get(core("configmaps", "a"))).status == 404
