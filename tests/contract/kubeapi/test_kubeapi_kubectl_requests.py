"""The requests kubectl makes, without kubectl: recorded in a session, each must be answered as a real server did.

``session/requests.jsonl`` is written together with ``session/recorded.json``, see test_kubeapi_kubectl.py.
"""

import json
from pathlib import Path

SESSION = Path(__file__).with_name("session")
# kubectl goes on without the old OpenAPI, and `get all` asks for each kind of the category that discovery lists.
NOT_SERVED = ("/openapi/v2", "/replicationcontrollers", "/horizontalpodautoscalers", "/cronjobs")
NAMESPACE = "kubectl-session"


async def send(http, request):
    query = dict(request["query"])
    if "resourceVersion" in query:
        query["resourceVersion"] = "0"  # the recorded one belongs to another server
    if query.get("watch"):
        query["timeoutSeconds"] = "1"
        query.pop("resourceVersion", None)
    body = request["body"]
    if isinstance(body, dict):
        for name in ("resourceVersion", "uid"):
            (body.get("metadata") or {}).pop(name, None)
    if isinstance(body, list):
        body = [operation for operation in body if operation["path"] != "/metadata/resourceVersion"]
    return await http.call(request["method"], request["path"], body, headers=request["headers"], **query)


async def test_every_request_is_answered_as_by_a_real_server(http):
    recorded = [json.loads(line) for line in (SESSION / "requests.jsonl").read_text().splitlines()]
    requests = [request for request in recorded if not request["path"].endswith(NOT_SERVED)]
    await http.delete(f"/api/v1/namespaces/{NAMESPACE}")
    await http.gone(f"/api/v1/namespaces/{NAMESPACE}")
    await http.made("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    different = []
    deleted = set()
    for request in requests:
        answer = await send(http, request)
        if request["method"] == "DELETE":
            deleted.add(request["path"])
        if answer.status == 404 and request["path"] in deleted:
            continue  # how long something takes to go is no part of the behaviour
        if answer.status != request["status"]:
            place = f"{request['method']} {request['path']} {request['query']}"
            different.append((place, request["status"], answer.status, answer.raw[:300]))
    await http.delete(f"/api/v1/namespaces/{NAMESPACE}")
    await http.gone(f"/api/v1/namespaces/{NAMESPACE}")
    assert different == [], json.dumps(different, indent=1, default=repr)
    assert {request["method"] for request in requests} == {"GET", "POST", "PATCH", "DELETE"}
    kinds = {request["headers"].get("Content-Type") for request in requests}
    assert {
        "application/apply-patch+yaml",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
    } <= kinds
    assert any("as=Table" in request["headers"].get("Accept", "") for request in requests)
