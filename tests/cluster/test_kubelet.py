"""The rig's kubelet does what the proof relies on: addresses, names, Services, rights, files, tokens, volumes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm
import pytest
import yaml
from kubelet.cluster import Cluster, private_cluster
from kubelet.netns import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

WEB = """
import http.server, json, os, pathlib, socket
def facts():
    token = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
    status = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    def writable(path):
        try:
            pathlib.Path(path, "probe").write_text("x")
        except OSError as err:
            return err.strerror
        return "yes"
    return {
        "uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(), "host": socket.gethostname(),
        "token": len(token.read_text()), "caps": status["CapBnd"].strip(), "nnp": status["NoNewPrivs"].strip(),
        "secret": pathlib.Path("/etc/app/key").read_text(), "mode": oct(os.stat("/etc/app/key").st_mode & 0o777),
        "config": os.environ["FROM_CONFIG"], "root": writable("/"), "empty": writable("/scratch"),
        "claim": writable("/data"), "home": os.path.exists("/root/.bashrc"), "ip": os.environ["POD_IP"],
        "link": os.environ["WEB_SERVICE_HOST"], "api": os.environ["KUBERNETES_SERVICE_HOST"],
    }
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(facts()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(("", 80), Handler).serve_forever()
"""
CLIENT = """
import json, pathlib, socket, ssl, time, urllib.request
while True:
    try:
        web = urllib.request.urlopen("http://web", timeout=5).read().decode()
        break
    except OSError:
        time.sleep(0.2)
long = urllib.request.urlopen("http://web.kubelet.svc.cluster.local:80", timeout=5).read().decode()
headless = socket.gethostbyname("web-0.webs.kubelet.svc")
account = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
request = urllib.request.Request("https://kubernetes.default.svc/api/v1/namespaces",
                                 headers={"Authorization": "Bearer " + (account / "token").read_text()})
try:
    urllib.request.urlopen(request, context=ssl.create_default_context(cafile=account / "ca.crt"))
    refused = 0
except urllib.error.HTTPError as err:
    refused = err.code
print(json.dumps({"web": json.loads(web), "long": json.loads(long)["host"], "headless": headless, "refused": refused}))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with private_cluster(tmp_path_factory.mktemp("kubelet"), "n1") as running:
        running.rig.call("POST", "/api/v1/namespaces", {"metadata": {"name": "kubelet"}})
        _install(running)
        yield running


def _post(cluster: Cluster, group: str, plural: str, body: dict[str, Any]) -> None:
    cluster.rig.call("POST", f"/{group}/namespaces/kubelet/{plural}", body)


def _install(cluster: Cluster) -> None:
    _post(cluster, "api/v1", "secrets", {"metadata": {"name": "app"}, "stringData": {"key": "s3cret"}})
    _post(cluster, "api/v1", "configmaps", {"metadata": {"name": "app"}, "data": {"answer": "42"}})
    web = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}
    _post(cluster, "api/v1", "services", {"metadata": {"name": "web"}, "spec": web})
    _post(cluster, "api/v1", "services", {"metadata": {"name": "webs"}, "spec": {**web, "clusterIP": "None"}})
    probe = {"httpGet": {"path": "/", "port": "http"}}
    inside = ["/usr/bin/test", "-f", "/etc/app/key"]
    container = {
        "name": "web", "image": "flexinfer/flexinfer:test", "command": ["python3", "-c", WEB],
        "ports": [{"name": "http", "containerPort": 80}], "readinessProbe": probe,
        "livenessProbe": {"exec": {"command": inside}},
        "env": [
            {"name": "FROM_CONFIG", "valueFrom": {"configMapKeyRef": {"name": "app", "key": "answer"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "secret", "mountPath": "/etc/app"}, {"name": "scratch", "mountPath": "/scratch"},
            {"name": "data", "mountPath": "/data"},
        ],
    }  # fmt: skip
    pod = {
        "securityContext": {"runAsUser": 1000, "runAsGroup": 1001, "runAsNonRoot": True, "fsGroup": 2000},
        "containers": [container],
        "volumes": [
            {"name": "secret", "secret": {"secretName": "app", "defaultMode": 0o400}},
            {"name": "scratch", "emptyDir": {}},
        ],
    }
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
             "resources": {"requests": {"storage": "1Mi"}}}}  # fmt: skip
    labels = {"app": "web"}
    spec = {"serviceName": "webs", "selector": {"matchLabels": labels}, "volumeClaimTemplates": [claim],
            "template": {"metadata": {"labels": labels}, "spec": pod}}  # fmt: skip
    _post(cluster, "apis/apps/v1", "statefulsets", {"metadata": {"name": "web"}, "spec": spec})
    asking = {"name": "ask", "image": "flexinfer/flexinfer:test", "command": ["python3", "-c", CLIENT]}
    _post(cluster, "api/v1", "pods", {
        "metadata": {"name": "client"}, "spec": {"containers": [asking], "restartPolicy": "Never"},
    })  # fmt: skip


def _client(cluster: Cluster) -> dict[str, Any]:
    def over() -> bool:
        _, pod = cluster.rig.get("/api/v1/namespaces/kubelet/pods/client")
        return pod["status"].get("phase") in {"Succeeded", "Failed"}  # type: ignore[index, call-overload, no-any-return]

    cluster.until("the client has ended", over)
    status, text = cluster.rig.get("/api/v1/namespaces/kubelet/pods/client/log")
    assert status == 200, text
    assert isinstance(text, (str, dict))
    return text if isinstance(text, dict) else json.loads(text)  # type: ignore[no-any-return]


def test_a_pod_reaches_services_by_name_and_the_api_with_its_own_token(cluster: Cluster) -> None:
    seen = _client(cluster)

    assert seen["long"] == "web-0"
    assert seen["headless"] == seen["web"]["ip"]
    assert seen["headless"].startswith("10.244.")
    assert seen["refused"] == 403  # known, and not allowed to: RBAC is on


def test_a_container_has_the_files_and_rights_that_its_spec_names(cluster: Cluster) -> None:
    web = _client(cluster)["web"]

    assert (web["uid"], web["gid"], web["groups"]) == (1000, 1001, [2000])
    assert (web["caps"], web["nnp"]) == ("0000000000000000", "1")
    assert (web["secret"], web["mode"], web["config"]) == ("s3cret", "0o440", "42")
    assert (web["root"], web["empty"], web["claim"]) == ("Read-only file system", "yes", "yes")
    assert web["home"] is False
    assert web["token"] > 500
    assert web["api"] == "10.96.0.1"
    _, service = cluster.rig.get("/api/v1/namespaces/kubelet/services/web")
    assert web["link"] == service["spec"]["clusterIP"]  # type: ignore[index, call-overload]


def test_an_update_of_the_agents_goes_past_a_node_that_is_away(cluster: Cluster, tmp_path: Path) -> None:
    rendered = helm.template(tmp_path, "--show-only", "templates/agent.yaml")
    [agent] = [one for one in yaml.safe_load_all(rendered.stdout) if one["kind"] == "DaemonSet"]
    labels = {"app": "everywhere"}
    container = {"name": "wait", "image": "busybox:test", "command": ["sleep", "100000"]}
    spec = {"containers": [container], "tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 1}
    body = {"selector": {"matchLabels": labels}, "updateStrategy": agent["spec"]["updateStrategy"],
            "template": {"metadata": {"labels": labels}, "spec": spec}}  # fmt: skip
    cluster.rig.call("POST", "/api/v1/nodes", {"metadata": {"name": "lost"}})
    _post(cluster, "apis/apps/v1", "daemonsets", {"metadata": {"name": "everywhere"}, "spec": body})
    cluster.until("one of two runs", lambda: len(_everywhere(cluster)) == 2 and any(map(_ready, _everywhere(cluster))))

    new = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
    cluster.rig.call("PATCH", "/apis/apps/v1/namespaces/kubelet/daemonsets/everywhere", new)

    def updated() -> bool:
        return any(_ready(pod) and "version" in pod["metadata"].get("annotations", {}) for pod in _everywhere(cluster))

    cluster.until("the node that is there has the new one", updated)
    cluster.rig.call("DELETE", "/apis/apps/v1/namespaces/kubelet/daemonsets/everywhere")
    cluster.rig.call("DELETE", "/api/v1/nodes/lost")


def _everywhere(cluster: Cluster) -> list[Any]:
    _, found = cluster.rig.get("/api/v1/namespaces/kubelet/pods?labelSelector=app=everywhere")
    return list(found["items"])  # type: ignore[index, call-overload]


def _ready(pod: dict[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def test_the_host_network_is_untouched(cluster: Cluster) -> None:
    del cluster
    devices = Path("/proc/1/net/dev").read_text()
    assert "pods:" not in devices
