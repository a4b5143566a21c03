"""Create, read, replace, delete: identity, versions, namespaces."""

import pytest


def config_map(name="", **data):
    metadata = {"name": name} if name else {"generateName": "cm-"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def test_a_created_object_gets_its_identity(http, core):
    answer = await http.post(core("configmaps"), config_map("a", k="v"))
    assert answer.status == 201
    made = answer.body
    assert made["apiVersion"] == "v1"
    assert made["kind"] == "ConfigMap"
    assert len(made["metadata"]["uid"]) == 36
    assert made["metadata"]["creationTimestamp"].endswith("Z")
    assert int(made["metadata"]["resourceVersion"]) > 0
    assert (await http.get(core("configmaps", "a"))).body["data"] == {"k": "v"}


async def test_generate_name_appends_five_characters(http, core):
    first = await http.made(core("configmaps"), config_map())
    second = await http.made(core("configmaps"), config_map())
    names = {first["metadata"]["name"], second["metadata"]["name"]}
    assert len(names) == 2
    assert all(name.startswith("cm-") and len(name) == 8 for name in names)


async def test_a_second_create_of_the_same_name_is_a_conflict(http, core):
    await http.made(core("configmaps"), config_map("a"))
    answer = await http.post(core("configmaps"), config_map("a"))
    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert answer.message == 'configmaps "a" already exists'
    assert answer.body["kind"] == "Status"


async def test_what_is_missing_is_not_found(http, core):
    answer = await http.get(core("configmaps", "nope"))
    assert (answer.status, answer.reason) == (404, "NotFound")
    assert answer.message == 'configmaps "nope" not found'
    assert answer.body["details"] == {"name": "nope", "kind": "configmaps"}
    assert (await http.delete(core("configmaps", "nope"))).status == 404


async def test_nothing_can_be_created_in_a_missing_namespace(http):
    answer = await http.post("/api/v1/namespaces/no-such-namespace/configmaps", config_map("a"))
    assert (answer.status, answer.reason) == (404, "NotFound")
    assert answer.message == 'namespaces "no-such-namespace" not found'


async def test_the_namespace_of_body_and_url_must_agree(http, core):
    body = config_map("a")
    body["metadata"]["namespace"] = "elsewhere"
    answer = await http.post(core("configmaps"), body)
    assert (answer.status, answer.reason) == (400, "BadRequest")


async def test_a_replace_moves_the_version_and_keeps_the_identity(http, core):
    made = await http.made(core("configmaps"), config_map("a", k="v"))
    changed = {**made, "data": {"k": "w"}}
    changed["metadata"] = {**made["metadata"], "labels": {"x": "y"}}
    answer = await http.put(core("configmaps", "a"), changed)
    assert answer.status == 200
    assert answer.body["metadata"]["uid"] == made["metadata"]["uid"]
    assert answer.body["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert int(answer.body["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


async def test_a_replace_with_an_old_version_is_a_conflict(http, core):
    made = await http.made(core("configmaps"), config_map("a", k="v"))
    assert (await http.put(core("configmaps", "a"), {**made, "data": {"k": "w"}})).status == 200
    answer = await http.put(core("configmaps", "a"), {**made, "data": {"k": "x"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "the object has been modified" in answer.message


async def test_a_replace_without_version_is_allowed_for_built_in_kinds(http, core):
    await http.made(core("configmaps"), config_map("a", k="v"))
    assert (await http.put(core("configmaps", "a"), config_map("a", k="w"))).status == 200


async def test_a_write_that_changes_nothing_keeps_the_version(http, core):
    made = await http.made(core("configmaps"), config_map("a", k="v"))
    again = await http.put(core("configmaps", "a"), made)
    assert again.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_replace_under_another_name_is_refused(http, core):
    await http.made(core("configmaps"), config_map("a"))
    assert (await http.put(core("configmaps", "a"), config_map("b"))).status == 400


async def test_a_replace_of_nothing_is_not_found(http, core):
    assert (await http.put(core("configmaps", "a"), config_map("a"))).status == 404


async def test_a_dry_run_answers_like_the_write_and_stores_nothing(http, core):
    answer = await http.post(core("configmaps"), config_map("a"), dryRun="All")
    assert answer.status == 201
    assert answer.body["metadata"]["uid"]
    assert (await http.get(core("configmaps", "a"))).status == 404
    await http.made(core("configmaps"), config_map("a", k="v"))
    assert (await http.put(core("configmaps", "a"), config_map("a", k="w"), dryRun="All")).body["data"] == {"k": "w"}
    assert (await http.get(core("configmaps", "a"))).body["data"] == {"k": "v"}
    assert (await http.delete(core("configmaps", "a"), dryRun="All")).status == 200
    assert (await http.get(core("configmaps", "a"))).status == 200


@pytest.mark.parametrize(
    ("name", "field"), [("Upper", "metadata.name"), ("-a", "metadata.name"), ("a" * 254, "metadata.name")]
)
async def test_names_follow_the_rules(http, core, name, field):
    answer = await http.post(core("configmaps"), config_map(name))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.body["details"]["causes"][0]["field"] == field


async def test_labels_follow_the_rules(http, core):
    body = config_map("a")
    body["metadata"]["labels"] = {"k": "not a label"}
    answer = await http.post(core("configmaps"), body)
    assert answer.status == 422
    assert "metadata.labels" in answer.message


async def test_a_name_is_required(http, core):
    answer = await http.post(core("configmaps"), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})
    assert answer.status == 422
    assert "name or generateName is required" in answer.message


async def test_the_wrong_kind_is_refused(http, core):
    answer = await http.post(core("configmaps"), {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})
    assert answer.status == 400


async def test_the_generation_counts_changes_of_the_spec_only(http, apps):
    body = deployment("d", replicas=0)
    made = await http.made(apps("deployments"), body)
    assert made["metadata"]["generation"] == 1
    labelled = await http.patch(apps("deployments", "d"), {"metadata": {"labels": {"a": "b"}}})
    assert labelled.body["metadata"]["generation"] == 1
    paused = await http.patch(apps("deployments", "d"), {"spec": {"paused": True}})
    assert paused.body["metadata"]["generation"] == 2
    status = await http.patch(apps("deployments", "d", "status"), {"status": {"collisionCount": 3}})
    assert status.body["metadata"]["generation"] == 2


def deployment(name, replicas=1):
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "example/image:1"}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


async def test_the_status_is_written_apart_from_the_rest(http, apps):
    body = deployment("d", replicas=0) | {"status": {"replicas": 7}}
    made = await http.made(apps("deployments"), body)
    assert made.get("status", {}).get("replicas", 0) == 0
    answer = await http.patch(
        apps("deployments", "d", "status"), {"spec": {"replicas": 9}, "status": {"collisionCount": 1}}
    )
    assert answer.status == 200
    assert answer.body["spec"]["replicas"] == 0
    assert answer.body["status"]["collisionCount"] == 1
    answer = await http.patch(apps("deployments", "d"), {"status": {"collisionCount": 5}})
    assert answer.body["status"]["collisionCount"] == 1


async def test_leases_must_be_replaced_with_their_version(http, namespace):
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"},
    }
    made = await http.made(path, body)
    assert made["spec"]["holderIdentity"] == "a"
    assert (await http.put(f"{path}/l", body)).status == 422
    made["spec"]["holderIdentity"] = "b"
    assert (await http.put(f"{path}/l", made)).status == 200
    made["spec"]["holderIdentity"] = "c"
    assert (await http.put(f"{path}/l", made)).status == 409


async def test_secrets_take_plain_strings(http, core):
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}}
    made = await http.made(core("secrets"), body)
    assert made["data"] == {"k": "dg=="}
    assert made["type"] == "Opaque"
    assert "stringData" not in made


async def test_events_are_the_same_objects_in_both_groups(http, core, namespace):
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": namespace},
        "reason": "Tested",
        "action": "Testing",
        "note": "it works",
        "type": "Normal",
        "reportingController": "tests",
        "reportingInstance": "t-1",
        "eventTime": "2026-01-01T00:00:00.000000Z",
    }
    await http.made(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", body)
    core_event = (await http.get(core("events", "e"))).body
    assert core_event["involvedObject"]["name"] == "p"
    assert core_event["message"] == "it works"
    assert core_event["reportingComponent"] == "tests"
    found = await http.get(core("events"), fieldSelector=f"involvedObject.name=p,involvedObject.namespace={namespace}")
    assert [item["metadata"]["name"] for item in found.body["items"]] == ["e"]
