"""Resources that CustomResourceDefinitions add: serving, defaults, pruning, validation, rules."""

import pytest

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def test_a_definition_is_established_and_served(http, widgets):
    crd = (await http.get(f"{CRDS}/widgets.{widgets.group}")).body
    conditions = {entry["type"]: entry["status"] for entry in crd["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert crd["status"]["acceptedNames"]["singular"] == "widget"
    assert crd["status"]["acceptedNames"]["listKind"] == "WidgetList"
    assert crd["status"]["storedVersions"] == ["v1"]
    empty = (await http.get(widgets.path())).body
    assert (empty["kind"], empty["apiVersion"], empty["items"]) == ("WidgetList", f"{widgets.group}/v1", [])


async def test_defaults_are_filled_in(http, widgets):
    made = await http.made(widgets.path(), widgets.body("w"))
    assert made["spec"] == {"backend": "vllm", "replicas": 1, "minReplicas": 0, "gpu": {"vendor": "auto"}}
    assert made["metadata"]["generation"] == 1


async def test_list_items_say_their_kind(http, widgets):
    await http.made(widgets.path(), widgets.body("w"))
    item = (await http.get(widgets.path())).body["items"][0]
    assert (item["kind"], item["apiVersion"]) == ("Widget", f"{widgets.group}/v1")


async def test_unknown_fields_are_pruned_except_where_kept(http, widgets):
    body = widgets.body("w", color="red", gpu={"vendor": "amd", "x": 1}, free={"any": {"thing": [1]}})
    made = await http.made(widgets.path(), body)
    assert "color" not in made["spec"]
    assert made["spec"]["gpu"] == {"vendor": "amd"}
    assert made["spec"]["free"] == {"any": {"thing": [1]}}


async def test_strict_validation_names_unknown_fields(http, widgets):
    answer = await http.post(widgets.path(), widgets.body("w", color="red"), fieldValidation="Strict")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert 'unknown field "spec.color"' in answer.message
    answer = await http.post(widgets.path(), widgets.body("w", color="red"), fieldValidation="Warn")
    assert answer.status == 201
    assert 'unknown field \\"spec.color\\"' in answer.headers["Warning"]


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        (
            {"replicas": "many"},
            "FieldValueTypeInvalid",
            'spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string"',
        ),
        (
            {"replicas": -1},
            "FieldValueInvalid",
            "spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0",
        ),
        (
            {"replicas": 11},
            "FieldValueInvalid",
            "spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10",
        ),
        (
            {"backend": "other"},
            "FieldValueNotSupported",
            'spec.backend: Unsupported value: "other": supported values: "vllm", "llamacpp"',
        ),
        (
            {"image": "UPPER"},
            "FieldValueInvalid",
            "spec.image: Invalid value: \"UPPER\": spec.image in body should match '^[a-z:]+$'",
        ),
        ({"image": "abcdefghi"}, "FieldValueTooLong", "spec.image: Too long: may not be more than 8 bytes"),
        (
            {"args": ["a", "b", "c", "d"]},
            "FieldValueTooMany",
            "spec.args: Too many: 4: must have at most 3 items",
        ),
        (
            {"args": [1]},
            "FieldValueTypeInvalid",
            'spec.args[0]: Invalid value: "integer": spec.args[0] in body must be of type string: "integer"',
        ),
        ({"ports": [{"port": 1}]}, "FieldValueRequired", "spec.ports[0].name: Required value"),
    ],
)
async def test_values_are_validated(http, widgets, spec, reason, message):
    answer = await http.post(widgets.path(), widgets.body("w", **spec))
    assert (answer.status, answer.reason) == (422, "Invalid")
    causes = answer.body["details"]["causes"]
    assert message in [f"{cause['field']}: {cause['message']}" for cause in causes]
    assert reason in [cause["reason"] for cause in causes]
    assert answer.message.startswith(f'Widget.{widgets.group} "w" is invalid: ')
    assert answer.body["details"]["kind"] == "Widget"


async def test_required_fields_are_required(http, widgets):
    body = widgets.body("w")
    del body["spec"]["backend"]
    answer = await http.post(widgets.path(), body)
    assert answer.status == 422
    assert "spec.backend: Required value" in answer.message


async def test_several_errors_are_reported_together(http, widgets):
    answer = await http.post(widgets.path(), widgets.body("w", replicas=-1, image="abcdefghi"))
    fields = {cause["field"] for cause in answer.body["details"]["causes"]}
    assert {"spec.replicas", "spec.image"} <= fields
    assert "<nil>" in fields  # rules were not checked
    assert "is invalid: [" in answer.message


async def test_duplicate_keys_of_map_lists_are_refused(http, widgets):
    answer = await http.post(widgets.path(), widgets.body("w", ports=[{"name": "a"}, {"name": "a"}]))
    assert answer.status == 422
    assert 'spec.ports[1]: Duplicate value: {"name":"a"}' in answer.message


@pytest.mark.parametrize("limit", [5, "50%"])
async def test_int_or_string_takes_both(http, widgets, limit):
    made = await http.made(widgets.path(), widgets.body("w", limit=limit))
    assert made["spec"]["limit"] == limit


@pytest.mark.parametrize("limit", [True, [1]])
async def test_int_or_string_takes_nothing_else(http, widgets, limit):
    assert (await http.post(widgets.path(), widgets.body("w", limit=limit))).status == 422


@pytest.mark.parametrize(("source", "status"), [({"url": "x"}, 201), ({}, 422), ({"url": "x", "path": "y"}, 422)])
async def test_alternatives_are_checked(http, widgets, source, status):
    assert (await http.post(widgets.path(), widgets.body("w", source=source))).status == status


async def test_rules_are_enforced(http, widgets):
    answer = await http.post(widgets.path(), widgets.body("w", minReplicas=3, replicas=2))
    assert (answer.status, answer.reason) == (422, "Invalid")
    cause = answer.body["details"]["causes"][0]
    assert cause["field"] == "spec"
    assert cause["reason"] == "FieldValueInvalid"
    assert "minReplicas must not be larger than replicas" in cause["message"]


async def test_transition_rules_compare_with_the_old_object(http, widgets):
    await http.made(widgets.path(), widgets.body("w"))
    answer = await http.patch(widgets.path("w"), {"spec": {"backend": "llamacpp"}})
    assert answer.status == 422
    assert "backend is immutable" in answer.message
    assert (await http.patch(widgets.path("w"), {"spec": {"replicas": 2}})).status == 200


async def test_the_status_is_isolated(http, widgets):
    made = await http.made(widgets.path(), widgets.body("w") | {"status": {"phase": "Early"}})
    assert "status" not in made
    answer = await http.patch(widgets.path("w", "status"), {"spec": {"replicas": 9}, "status": {"phase": "Up"}})
    assert answer.body["spec"]["replicas"] == 1
    assert answer.body["status"] == {"phase": "Up"}
    assert answer.body["metadata"]["generation"] == 1
    answer = await http.patch(widgets.path("w"), {"spec": {"replicas": 2}, "status": {"phase": "Down"}})
    assert answer.body["status"] == {"phase": "Up"}
    assert answer.body["metadata"]["generation"] == 2
    replaced = {**answer.body, "status": {"phase": "Replaced"}, "spec": {"backend": "vllm", "replicas": 7}}
    answer = await http.put(widgets.path("w", "status"), replaced)
    assert answer.body["status"] == {"phase": "Replaced"}
    assert answer.body["spec"]["replicas"] == 2


async def test_a_replace_needs_the_version(http, widgets):
    made = await http.made(widgets.path(), widgets.body("w"))
    answer = await http.put(widgets.path("w"), widgets.body("w", replicas=2))
    assert answer.status == 422
    assert "metadata.resourceVersion: Invalid value" in answer.message
    made["spec"]["replicas"] = 2
    assert (await http.put(widgets.path("w"), made)).status == 200


async def test_custom_resources_are_watched(http, widgets):
    start = (await http.get(widgets.path())).body["metadata"]["resourceVersion"]
    async with http.watch(widgets.path(), resourceVersion=start) as watch:
        await http.made(widgets.path(), widgets.body("w"))
        kind, obj = await watch.next()
    assert (kind, obj["kind"], obj["spec"]["replicas"]) == ("ADDED", "Widget", 1)


async def test_deleting_the_definition_deletes_the_objects(http, widgets):
    await http.made(widgets.path(), widgets.body("w"))
    answer = await http.delete(f"{CRDS}/widgets.{widgets.group}")
    assert answer.status == 200
    await http.gone(f"{CRDS}/widgets.{widgets.group}")
    await http.gone(widgets.path())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"names": {"plural": "others", "kind": "Other"}}, "metadata.name"),
        ({"versions": [{"name": "v1", "served": True, "storage": False}]}, "spec.versions"),
    ],
)
async def test_a_wrong_definition_is_refused(http, change, field):
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    spec = {
        "group": "wrong.example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [version],
        **change,
    }
    spec["versions"] = [{**version, **entry} for entry in spec["versions"]]
    body = {"metadata": {"name": "things.wrong.example.com"}, "spec": spec}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    answer = await http.post(CRDS, {**head, **body})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert field in [cause["field"] for cause in answer.body["details"]["causes"]]


async def test_a_rule_that_does_not_compile_is_refused(http):
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-validations": [{"rule": "self.("}]}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {
        "group": "rule.example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [version],
    }
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    answer = await http.post(CRDS, {**head, "metadata": {"name": "things.rule.example.com"}, "spec": spec})
    assert answer.status == 422
    assert "x-kubernetes-validations[0].rule" in answer.message


async def test_scale_of_a_custom_resource(http, widgets):
    await http.made(widgets.path(), widgets.body("w"))
    scale = (await http.get(widgets.path("w", "scale"))).body
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 1}
    answer = await http.patch(widgets.path("w", "scale"), {"spec": {"replicas": 3}})
    assert answer.status == 200
    assert (await http.get(widgets.path("w"))).body["spec"]["replicas"] == 3
    answer = await http.patch(widgets.path("w", "scale"), {"spec": {"replicas": 11}})
    assert answer.status == 422
