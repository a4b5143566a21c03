"""A state directory: what a run left is there in the next one, its pods run again, a damaged file is refused."""

import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from driving import Up, eventually, processes_of

CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}, "data": {"k": "v"}}


def on_node(node: str) -> dict[str, Any]:
    """A Deployment of one pod on this node."""
    container = {"name": "c", "image": "flexinfer/flexinfer", "command": ["sleep", "100000"]}
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
    labels = {"app": "sleeper"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "sleeper"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


class Api:
    """Plain requests to the API a kubeconfig names."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        self.url = config["clusters"][0]["cluster"]["server"]

    def call(self, path: str, body: Any = None, method: str | None = None) -> Any:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": kind}, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def pods(self) -> list[Any]:
        found: list[Any] = self.call("/api/v1/namespaces/default/pods?labelSelector=app=sleeper")["items"]
        return found

    def running(self, restarts: int) -> bool:
        statuses = [status for pod in self.pods() for status in pod["status"].get("containerStatuses", ())]
        return [(s["restartCount"], "running" in s["state"]) for s in statuses] == [(restarts, True)]


def bare(tmp: Path, state: Path) -> Up:
    up = Up(tmp, ("--bare", "--state-dir", str(state))).start()
    up.wait_for("KUBECONFIG=", 120)
    up.wait_for("OpenAI URL")
    return up


def test_a_killed_run_comes_back_with_its_objects_and_its_pods_start_again(tmp_path: Path) -> None:
    state, tmp = tmp_path / "state", tmp_path / "tmp"
    tmp.mkdir()
    up = bare(tmp, state)
    try:
        api = Api(state / "kubeconfig")
        made = api.call("/api/v1/namespaces/default/configmaps", CONFIG)
        [node] = api.call("/api/v1/nodes")["items"]
        workload = api.call("/apis/apps/v1/namespaces/default/deployments", on_node(node["metadata"]["name"]))
        api.call(f"/api/v1/nodes/{node['metadata']['name']}", {"metadata": {"annotations": {"mine": "1"}}}, "PATCH")
        eventually(lambda: api.running(0), 120, "the pod runs")
        [pod] = api.pods()
        kept = state / "api" / "objects.jsonl"
        eventually(lambda: b'"restartCount":0' in kept.read_bytes(), 60, "the running pod is kept")
        second = Up(tmp, ("--bare", "--state-dir", str(state))).start()
        assert second.ended() == 1
        assert "another flexinfer up uses it" in second.output
    finally:
        up.stop(signal.SIGKILL)
    eventually(lambda: not processes_of(f"TMPDIR={tmp}"), 120, "everything ended")

    up = bare(tmp, state)
    try:
        api = Api(state / "kubeconfig")
        found = api.call("/api/v1/namespaces/default/configmaps/mine")
        later = api.call("/api/v1/namespaces/default/configmaps", {**CONFIG, "metadata": {"name": "later"}})
        eventually(lambda: api.running(1), 120, "the pod runs again")
        [again] = api.pods()
        [node] = api.call("/api/v1/nodes")["items"]
    finally:
        code = up.stop()

    assert found == made
    assert int(later["metadata"]["resourceVersion"]) > int(workload["metadata"]["resourceVersion"])
    assert again["metadata"]["uid"] == pod["metadata"]["uid"]
    assert node["metadata"]["annotations"]["mine"] == "1"
    assert "objects of the run before" in up.output
    assert code == 0

    kept.write_bytes(kept.read_bytes()[:-5])
    damaged = Up(tmp, ("--bare", "--state-dir", str(state))).start()
    assert damaged.ended() == 1
    assert "is damaged" in damaged.output
    assert "✓ bus" not in damaged.output
