"""HTTP: authentication, media types, discovery, OpenAPI, tables, the shape of errors."""

import pytest


async def test_a_token_is_required(http, api_server):
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic abc"}):
        answer = await http.call("GET", "/api/v1/pods", headers=headers)
        assert (answer.status, answer.reason) in ((401, "Unauthorized"), (403, "Forbidden"))
        assert answer.body["kind"] == "Status"


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
async def test_health(http, path):
    answer = await http.get(path)
    assert (answer.status, answer.raw) == (200, b"ok")


async def test_the_version(http):
    body = (await http.get("/version")).body
    assert body["major"] == "1"
    assert body["gitVersion"].startswith("v1.")


@pytest.mark.parametrize(
    "path", ["/nope", "/api/v2", "/apis/none.example.com/v1", "/apis/none.example.com/v1/things", "/api/v1/nothings"]
)
async def test_unknown_paths_are_not_found(http, path):
    answer = await http.get(path)
    assert answer.status == 404


async def test_errors_are_statuses(http, core):
    body = (await http.get(core("pods", "nope"))).body
    assert body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'pods "nope" not found',
        "reason": "NotFound",
        "details": {"name": "nope", "kind": "pods"},
        "code": 404,
    }


async def test_a_broken_body_is_a_bad_request(http, core):
    answer = await http.call("POST", core("configmaps"), b"{not json", headers={"Content-Type": "application/json"})
    assert answer.status == 400


async def test_an_unknown_body_type_is_unsupported(http, core):
    answer = await http.call("POST", core("configmaps"), b"abc", headers={"Content-Type": "application/x-thing"})
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


async def test_an_answer_nobody_can_give_is_not_acceptable(http, core):
    answer = await http.call("GET", core("configmaps"), headers={"Accept": "image/png"})
    assert (answer.status, answer.reason) == (406, "NotAcceptable")


async def test_yaml_goes_in_and_out(http, core):
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n"
    answer = await http.call("POST", core("configmaps"), text, headers={"Content-Type": "application/yaml"})
    assert answer.status == 201
    shown = await http.call("GET", core("configmaps", "a"), headers={"Accept": "application/yaml"})
    assert shown.headers["Content-Type"] == "application/yaml"
    assert b"kind: ConfigMap" in shown.raw


@pytest.mark.parametrize(("method", "path"), [("PUT", "configmaps"), ("POST", "configmaps/a"), ("PATCH", "configmaps")])
async def test_methods_that_make_no_sense_are_refused(http, core, method, path):
    answer = await http.call(method, core(path), {})
    assert answer.status in (400, 404, 405)


async def test_a_huge_body_is_refused(http, core):
    answer = await http.post(core("configmaps"), {"data": {"k": "x" * (4 << 20)}})
    assert answer.status == 413
    assert answer.reason == "RequestEntityTooLarge"


async def test_discovery_lists_groups_and_resources(http, widgets):
    groups = {entry["name"]: entry for entry in (await http.get("/apis")).body["groups"]}
    assert {"apps", "batch", "coordination.k8s.io", "apiextensions.k8s.io", widgets.group} <= set(groups)
    assert groups["apps"]["preferredVersion"]["groupVersion"] == "apps/v1"
    assert (await http.get("/api")).body["versions"] == ["v1"]
    core = {entry["name"]: entry for entry in (await http.get("/api/v1")).body["resources"]}
    assert core["pods"]["shortNames"] == ["po"]
    assert core["pods"]["categories"] == ["all"]
    assert core["pods"]["verbs"] == ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    assert core["pods/status"]["verbs"] == ["get", "patch", "update"]
    assert core["pods/binding"]["kind"] == "Binding"
    assert core["nodes"]["namespaced"] is False
    own = {entry["name"]: entry for entry in (await http.get(f"/apis/{widgets.group}/v1")).body["resources"]}
    assert own["widgets"]["shortNames"] == ["wd"]
    assert own["widgets/scale"]["kind"] == "Scale"
    assert own["widgets/scale"]["group"] == "autoscaling"


async def test_aggregated_discovery(http, widgets):
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    answer = await http.call("GET", "/apis", headers={"Accept": accept})
    assert answer.body["kind"] == "APIGroupDiscoveryList"
    assert answer.headers["Content-Type"].startswith("application/json;g=apidiscovery.k8s.io;v=v2")
    groups = {entry["metadata"]["name"]: entry for entry in answer.body["items"]}
    deployments = next(
        entry for entry in groups["apps"]["versions"][0]["resources"] if entry["resource"] == "deployments"
    )
    assert deployments["scope"] == "Namespaced"
    assert {entry["subresource"] for entry in deployments["subresources"]} == {"status", "scale"}
    again = await http.call("GET", "/apis", headers={"Accept": accept, "If-None-Match": answer.headers["ETag"]})
    assert again.status == 304


async def test_openapi_tells_that_the_server_validates(http, widgets):
    found = await http.eventually("/openapi/v3", lambda a: f"apis/{widgets.group}/v1" in a.body["paths"])
    index = found.body["paths"]
    place = index[f"apis/{widgets.group}/v1"]["serverRelativeURL"]
    path, _, query = place.partition("?")
    document = (await http.get(path, hash=query.removeprefix("hash="))).body
    patch = document["paths"][f"/apis/{widgets.group}/v1/namespaces/{{namespace}}/widgets/{{name}}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "Widget"
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    schema = next(
        schema
        for schema in document["components"]["schemas"].values()
        if any(gvk["kind"] == "Widget" for gvk in schema.get("x-kubernetes-group-version-kind", ()))
    )
    assert schema["properties"]["spec"]["properties"]["backend"]["description"] == "The engine to run."


TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


async def test_lists_come_as_tables(http, core, pod):
    await http.made(core("pods"), pod("p"))
    table = (await http.call("GET", core("pods"), headers=TABLE)).body
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    row = next(row for row in table["rows"] if row["cells"][0] == "p")
    assert row["cells"][1:3] == ["0/1", "Pending"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "p"


async def test_custom_columns(http, widgets):
    await http.made(widgets.path(), widgets.body("w"))
    await http.patch(widgets.path("w", "status"), {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    table = (await http.call("GET", widgets.path("w"), headers=TABLE)).body
    columns = [(column["name"], column["priority"]) for column in table["columnDefinitions"]]
    assert columns == [("Name", 0), ("Backend", 0), ("Replicas", 0), ("Ready", 1), ("Age", 0)]
    assert table["rows"][0]["cells"][:4] == ["w", "vllm", 1, "True"]


async def test_watches_come_as_tables(http, core):
    head = TABLE | {"Authorization": f"Bearer {http.server.token}"}
    await http.made(core("configmaps"), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    query = {"watch": "true", "fieldSelector": "metadata.name=a", "timeoutSeconds": "5"}
    url = http.server.url + core("configmaps")
    async with http.session.get(url, params=query, headers=head, ssl=False) as response:
        line = await response.content.readline()
    assert b'"kind":"Table"' in line
    assert b'"type":"ADDED"' in line


async def test_metadata_alone(http, core):
    await http.made(
        core("configmaps"), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
    )
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    body = (await http.call("GET", core("configmaps"), headers={"Accept": accept})).body
    assert body["kind"] == "PartialObjectMetadataList"
    assert all("data" not in item for item in body["items"])
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    body = (await http.call("GET", core("configmaps", "a"), headers={"Accept": accept})).body
    assert (body["kind"], body["metadata"]["name"]) == ("PartialObjectMetadata", "a")
