"""Pods: what is filled in, what may change, binding, eviction, logs."""

import pytest


async def test_pods_get_the_usual_defaults(http, core, pod):
    made = await http.made(core("pods"), pod("p"))
    spec = made["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["serviceAccountName"] == "default"
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert {t["key"] for t in spec["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"memory": "1Gi"}}, "Burstable"),
        ({}, "BestEffort"),
    ],
)
async def test_the_quality_of_service_follows_the_resources(http, core, pod, resources, expected):
    containers = [{"name": "c", "image": "i:1", "resources": resources}]
    made = await http.made(core("pods"), pod("p", containers=containers))
    assert made["status"]["qosClass"] == expected


async def test_limits_imply_requests_and_numbers_become_quantities(http, core, pod):
    containers = [{"name": "c", "image": "i:1", "resources": {"limits": {"cpu": 2, "example.com/gpu": 1}}}]
    made = await http.made(core("pods"), pod("p", containers=containers))
    wanted = {"cpu": "2", "example.com/gpu": "1"}
    assert made["spec"]["containers"][0]["resources"] == {"limits": wanted, "requests": wanted}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": []}, "spec.containers"),
        ({"containers": [{"image": "i"}]}, "spec.containers[0].name"),
        ({"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]}, "spec.containers[1].name"),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy"),
        (
            {"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
            "spec.containers[0].volumeMounts[0].name",
        ),
    ],
)
async def test_wrong_pods_are_refused(http, core, pod, spec, field):
    answer = await http.post(core("pods"), pod("p", **spec))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert field in [cause["field"] for cause in answer.body["details"]["causes"]]


async def test_a_value_of_the_wrong_type_is_not_decoded(http, core, pod):
    answer = await http.post(core("pods"), pod("p", restartPolicy=5))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "cannot unmarshal number" in answer.message
    answer = await http.post(core("pods"), pod("p", containers="none"))
    assert answer.status == 400


async def test_a_misspelt_field_is_dropped_or_refused(http, core, pod):
    answer = await http.post(core("pods"), pod("p", nodeNam="n1"), fieldValidation="Strict")
    assert answer.status == 400
    assert 'unknown field "spec.nodeNam"' in answer.message
    made = await http.made(core("pods"), pod("p", nodeNam="n1"))
    assert "nodeNam" not in made["spec"]


async def test_most_of_a_pod_cannot_change(http, core, pod):
    await http.made(core("pods"), pod("p"))
    answer = await http.patch(core("pods", "p"), {"spec": {"schedulerName": "other"}})
    assert answer.status == 422
    assert "pod updates may not change fields" in answer.message
    image = {"spec": {"containers": [{"name": "c", "image": "example/image:2"}]}}
    assert (await http.patch(core("pods", "p"), image, "strategic")).status == 200


async def test_binding_assigns_a_node_once(http, core, pod):
    await http.made(core("pods"), pod("p"))
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "annotations": {"flexinfer.ai/why": "fast"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    answer = await http.post(core("pods", "p", "binding"), body)
    assert answer.status == 201
    assert answer.body["status"] == "Success"
    bound = (await http.get(core("pods", "p"))).body
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"]["flexinfer.ai/why"] == "fast"
    conditions = {entry["type"]: entry["status"] for entry in bound["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"
    body["target"]["name"] = "n2"
    answer = await http.post(core("pods", "p", "binding"), body)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert 'pod p is already assigned to node "n1"' in answer.message


async def test_binding_of_nothing_is_not_found(http, core):
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    assert (await http.post(core("pods", "p", "binding"), body)).status == 404


async def test_the_status_of_a_pod_is_patched_as_kubelets_do(http, core, pod):
    made = await http.made(core("pods"), pod("p", nodeName="n1"))
    patch = {
        "metadata": {"uid": made["metadata"]["uid"]},
        "status": {
            "phase": "Running",
            "podIP": "10.1.2.3",
            "podIPs": [{"ip": "10.1.2.3"}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "c", "ready": True, "restartCount": 0, "image": "i", "imageID": "", "state": {"running": {}}}
            ],
        },
    }
    answer = await http.patch(core("pods", "p", "status"), patch, "strategic")
    assert answer.status == 200, answer.raw
    assert answer.body["status"]["phase"] == "Running"
    assert answer.body["spec"] == made["spec"]
    patch["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    assert (await http.patch(core("pods", "p", "status"), patch, "strategic")).status == 422


async def test_eviction_deletes(http, core, pod):
    await http.made(core("pods"), pod("p"))
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert (await http.post(core("pods", "p", "eviction"), body)).status == 201
    assert (await http.get(core("pods", "p"))).status == 404


async def test_a_service_account_gets_a_token(http, core):
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    answer = await http.post(core("serviceaccounts", "default", "token"), body)
    assert answer.status == 201
    assert answer.body["status"]["token"]
    assert answer.body["status"]["expirationTimestamp"].endswith("Z")
    assert (await http.post(core("serviceaccounts", "none", "token"), body)).status == 404
