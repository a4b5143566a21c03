"""The chart, from ``helm install`` to ``helm uninstall``, on a real control plane whose kubelet runs the rendered pods.

Helm's and kubectl's own binaries, the real scheduler beside our extender, NATS with TLS and a credential per
component, RBAC on, each component with its own ServiceAccount token, the real engine with a small model.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import helm
import pytest
import yaml
from kubelet.chats import Chats, chat
from kubelet.cluster import Cluster, private_cluster
from kubelet.house import GATEWAY
from kubelet.netns import missing
from kubelet.policies import Connection, connections, refusals
from kubelet.rights import Right, entries, granted, used
from kubelet.wire import Wire

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

NAMESPACE = "flexinfer-system"
RELEASE = "flexinfer"
EXAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "examples" / "smollm2.yaml"
MODELS = "/apis/ai.flexinfer/v1alpha1/namespaces/default/modeldeployments"
# The example as it stands measures for minutes on a busy machine; one engine thread, because two that wait for each
# other lose most of their time beside a control plane.
SHORTER = {
    "args": ["--ctx-size", "2048", "--parallel", "2", "--threads", "1"],
    "benchmark": {"concurrency": [1], "minDuration": "1s", "iterations": 1, "warmupIterations": 1, "batchSize": 16},
}
# Granted for what this story does not go through, with the reason; anything else that is granted must be used.
FOR_OTHER_DAYS = {
    Right("flexinfer-agent", "", "nodes", "get"): "reads the Node again after a patch was refused",
    Right("flexinfer-agent", "events.k8s.io", "events", "create"): "a pod whose image does not fit the hardware",
    Right("flexinfer-agent", "events.k8s.io", "events", "patch"): "the same, seen again",
    Right("flexinfer-controller", "events.k8s.io", "events", "patch"): "an Event that repeats",
    Right("flexinfer-controller", "", "pods", "patch"): "a rejected pod is touched when a node fits again",
    Right("flexinfer-scheduler", "", "configmaps", "list"): "the record of results is read while the bus is away",
    Right("flexinfer-scheduler", "events.k8s.io", "events", "patch"): "an Event that repeats",
}


EXAMPLE_IMAGE = "ghcr.io/ggml-org/llama.cpp:server"
# No node can hold it. It is there for what a model of the newer kind with a volume of its own makes the manager do.
WAITING = {
    "apiVersion": "ai.flexinfer/v1alpha2",
    "kind": "Model",
    "metadata": {"name": "waiting", "namespace": "default"},
    "spec": {
        "backend": "llamacpp",
        "source": "hf://example/tiny-GGUF",
        "image": EXAMPLE_IMAGE,
        "gpu": {"vendor": "cpu", "count": 0},
        "resources": {"requests": {"cpu": "1000"}, "limits": {"cpu": "1000"}},
        "benchmark": {"enabled": False},
        "cache": {"strategy": "SharedPVC", "size": "1Gi"},
    },
}


@dataclass
class Release:
    """The chart on one cluster."""

    cluster: Cluster
    home: Path

    def tool(self, program: str, *args: str) -> str:
        """Standard output of helm or kubectl. Raises AssertionError with what it and the cluster say."""
        done = helm.run(program, *args, home=self.home, kubeconfig=self.cluster.rig.kubeconfig())
        if done.returncode:
            raise AssertionError(f"{program} {' '.join(args)}:\n{done.stdout}{done.stderr}\n{self.cluster.describe()}")
        return done.stdout

    def helm(self, *args: str) -> str:
        return self.tool("helm", *args, "-n", NAMESPACE)

    def install(self) -> None:
        self.helm("install", RELEASE, str(helm.CHART), "--create-namespace", "--wait", "--timeout", "240s")

    def get(self, path: str) -> Any:
        status, body = self.cluster.rig.get(path)
        assert status == 200, f"{path}: {status} {body}"
        return body

    def pods(self, namespace: str, labels: str) -> list[Any]:
        return list(self.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={labels}")["items"])

    def part(self, name: str) -> list[Any]:
        """Pods of a component that are not about to end."""
        found = self.pods(NAMESPACE, f"app.kubernetes.io/component={name}")
        return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]

    def proxy(self) -> str:
        return str(self.get(f"/api/v1/namespaces/{NAMESPACE}/services/flexinfer-proxy")["spec"]["clusterIP"])

    def phase(self) -> str:
        status, body = self.cluster.rig.get(f"{MODELS}/smollm2")
        return str((body.get("status") or {}).get("phase")) if status == 200 and isinstance(body, dict) else "gone"

    def keeps(self) -> dict[str, Any]:
        """Passwords and certificate of the bus, the server with its streams, measured results."""
        where = f"/api/v1/namespaces/{NAMESPACE}"
        secrets = self.get(f"{where}/secrets?labelSelector=app.kubernetes.io/component=nats")["items"]
        return {
            "secrets": {one["metadata"]["name"]: one["data"] for one in secrets},
            "servers": [pod["metadata"]["uid"] for pod in self.part("nats")],
            "results": sorted(self.get(f"{where}/configmaps/flexinfer-benchmark-results")["data"]),
        }

    def weight(self) -> str:
        """Of measured speed, in the one extender that is not about to end."""
        [pod] = self.part("scheduler")
        [container] = [found for found in pod["spec"]["containers"] if found["name"] == "scheduler"]
        return next(env["value"] for env in container["env"] if env["name"] == "FLEXINFER_WEIGHT_TPS")


@dataclass
class Proof:
    """What happened, step by step."""

    release: Release
    chats: Chats
    nodes: list[Any] = field(default_factory=list)
    parts: dict[str, list[Any]] = field(default_factory=dict)
    engines: list[Any] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    first_answer: tuple[int, str] = (0, "")
    seconds: float = 0.0
    weights: list[str] = field(default_factory=list)
    kept: list[dict[str, Any]] = field(default_factory=list)
    tests: str = ""
    manifest: str = ""
    audit: list[Any] = field(default_factory=list)
    policies: list[Any] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    before: set[str] = field(default_factory=set)
    left: list[str] = field(default_factory=list)


def _serve(proof: Proof, tmp: Path) -> None:
    """From nothing to an answer."""
    release = proof.release
    proof.before = _objects(release)
    begun = time.monotonic()
    release.install()
    proof.chats.address = release.proxy()
    model = yaml.safe_load(EXAMPLE.read_text())
    model["spec"] |= SHORTER
    (tmp / "model.yaml").write_text(yaml.safe_dump(model))
    release.tool("kubectl", "apply", "-f", str(tmp / "model.yaml"))
    release.cluster.until("smollm2 is Running", lambda: release.phase() == "Running", 240)
    proof.first_answer = chat(proof.chats.address)
    proof.seconds = time.monotonic() - begun
    (tmp / "waiting.yaml").write_text(yaml.safe_dump(WAITING))
    release.tool("kubectl", "apply", "-f", str(tmp / "waiting.yaml"))
    children = "/apis/apps/v1/namespaces/default/deployments/waiting"
    release.cluster.until("the waiting model has its children", lambda: release.cluster.rig.get(children)[0] == 200)
    proof.nodes = release.get("/api/v1/nodes")["items"]
    proof.parts = {name: release.part(name) for name in ("agent", "manager", "scheduler", "proxy", "dashboard", "nats")}
    proof.engines = release.pods("default", "app.kubernetes.io/instance=smollm2,app.kubernetes.io/component=engine")
    proof.events = release.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]


def _change(proof: Proof) -> None:
    """Upgrade, tests and rollback while people chat."""
    release = proof.release
    proof.weights.append(release.weight())
    proof.kept.append(release.keeps())
    with proof.chats:
        more = "scheduler.weights.tps=0.9,proxy.queueLimit=300,webhook.enabled=true,globalProxy.enabled=true"
        release.helm("upgrade", RELEASE, str(helm.CHART), "--set", more, "--wait", "--timeout", "240s")
        release.cluster.until("one extender is left", lambda: len(release.part("scheduler")) == 1)
        proof.weights.append(release.weight())
        release.tool("kubectl", "annotate", "modeldeployment", "smollm2", "proof=upgraded")
        proof.kept.append(release.keeps())
        proof.tests = release.helm("test", RELEASE, "--logs", "--timeout", "240s")
        release.helm("rollback", RELEASE, "--wait", "--timeout", "240s")
        release.cluster.until("one extender is left", lambda: len(release.part("scheduler")) == 1)
        proof.weights.append(release.weight())
        ending = "proxies of the release before have drained"
        release.cluster.until(ending, lambda: len(release.pods(NAMESPACE, "app.kubernetes.io/component=proxy")) == 2)
        proof.kept.append(release.keeps())


def _remove(proof: Proof, wire: Wire) -> None:
    release = proof.release
    release.tool("kubectl", "delete", "modeldeployments,models", "-A", "--all", "--timeout=120s")
    release.cluster.until("the engine is gone", lambda: not release.get("/api/v1/namespaces/default/pods")["items"])
    proof.manifest = release.helm("get", "manifest", RELEASE)
    proof.audit = entries(release.cluster.rig.audit_log)
    proof.policies = release.get("/apis/networking.k8s.io/v1/networkpolicies")["items"]
    services = release.get("/api/v1/services")["items"]
    proof.connections = connections(wire.seen(), release.cluster.addresses(), services, GATEWAY)
    release.helm("uninstall", RELEASE, "--wait", "--timeout", "240s")
    release.cluster.until("no pod is left", lambda: not release.pods(NAMESPACE, ""), 180)
    release.cluster.until("no volume is left", lambda: not release.get("/api/v1/persistentvolumes")["items"])
    proof.left = sorted(_objects(release) - proof.before)


def _objects(release: Release) -> set[str]:
    """kind/name of everything of the release's name, in its namespace, or where the models are."""
    kinds = release.tool("kubectl", "api-resources", "--verbs=list", "-o", "name").split()
    # API services follow the CRDs, which stay; leases say who was here, componentstatuses are no objects.
    skipped = {"events", "events.events.k8s.io", "componentstatuses", "apiservices.apiregistration.k8s.io"}
    listed = release.tool("kubectl", "get", ",".join(sorted(set(kinds) - skipped)), "-A", "-o", "json")
    return {
        f"{found['kind']}/{found['metadata']['name']}"
        for found in json.loads(listed)["items"]
        if "flexinfer" in found["metadata"]["name"] or found["metadata"].get("namespace") in {NAMESPACE, "default"}
    }


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proof]:
    with private_cluster(tmp_path_factory.mktemp("proof"), "gpu-1") as cluster:
        home = tmp_path_factory.mktemp("home")
        told = Proof(Release(cluster, home), Chats(""))
        wire = Wire()
        try:
            _serve(told, home)
            _change(told)
            _remove(told, wire)
        finally:
            wire.close()
        yield told


def test_every_part_is_ready_and_nothing_crashed(proof: Proof) -> None:
    counts = {name: len(pods) for name, pods in proof.parts.items()}
    assert counts == {"agent": 1, "manager": 1, "scheduler": 1, "proxy": 2, "dashboard": 1, "nats": 1}
    restarts = {
        f"{pod['metadata']['name']}/{one['name']}": one["restartCount"]
        for pods in proof.parts.values()
        for pod in pods
        for one in pod["status"]["containerStatuses"]
        if one["name"] != "kube-scheduler"  # it ends by design when it could not renew its lease in time
    }
    assert not any(restarts.values()), restarts


def test_nodes_are_labelled_by_the_agent(proof: Proof) -> None:
    [node] = proof.nodes
    labels = node["metadata"]["labels"]
    assert labels["flexinfer.ai/enabled"] == "true"
    assert labels["flexinfer.ai/gpu.count"] == "0"


def test_the_engine_was_placed_by_our_scheduler_and_its_extender(proof: Proof) -> None:
    [engine] = proof.engines
    assert engine["spec"]["schedulerName"] == "flexinfer-scheduler"
    about = [
        event for event in proof.events if (event.get("regarding") or {}).get("name") == engine["metadata"]["name"]
    ]
    said = {(event["reason"], event.get("reportingController")) for event in about}
    assert ("Scheduled", "flexinfer-scheduler") in said
    assert "PlacementRanked" in {reason for reason, _who in said}


def test_a_chat_is_answered_through_the_service(proof: Proof, record_property: Callable[[str, object], None]) -> None:
    record_property("seconds from helm install to the first answer", round(proof.seconds, 1))
    status, text = proof.first_answer
    assert status == 200, text
    assert text.strip()


def test_upgrade_and_rollback_change_the_weights_and_drop_no_request(
    proof: Proof, record_property: Callable[[str, object], None]
) -> None:
    record_property("requests answered", proof.chats.answered)
    assert proof.weights == ["0.7", "0.9", "0.7"]
    assert proof.chats.failed == []
    assert proof.chats.answered > 0


def test_credentials_streams_and_results_outlive_an_upgrade(proof: Proof) -> None:
    before, upgraded, rolled_back = proof.kept
    assert len(before["secrets"]) >= 7
    assert len(before["results"]) == 1
    assert upgraded == before
    assert rolled_back == before


def test_the_api_server_asked_the_webhook_when_there_was_one(proof: Proof) -> None:
    [change] = [
        entry
        for entry in proof.audit
        if entry["verb"] == "patch"
        and str(entry.get("userAgent")).startswith("kubectl")
        and (entry.get("objectRef") or {}).get("name") == "smollm2"
        and "fieldManager=kubectl-annotate" in entry["requestURI"]
    ]
    assert change["responseStatus"]["code"] == 200
    asked = [text for name, text in change["annotations"].items() if name.startswith("mutation.webhook.admission")]
    assert any("flexinfer-webhook" in text for text in asked), change["annotations"]


def test_helm_test_reaches_every_part_by_name(proof: Proof) -> None:
    assert "Succeeded" in proof.tests
    for name in ("controller", "scheduler", "proxy", "dashboard", "global-proxy"):
        assert f"flexinfer-{name}.{NAMESPACE}.svc" in proof.tests


def test_uninstall_leaves_what_the_policy_keeps(proof: Proof) -> None:
    assert proof.left == [
        "ConfigMap/flexinfer-benchmark-results",
        "CustomResourceDefinition/modeldeployments.ai.flexinfer",
        "CustomResourceDefinition/models.ai.flexinfer",
        "Namespace/flexinfer-system",
    ]


def test_no_component_was_refused_anything(proof: Proof) -> None:
    _rights, refused = used(proof.audit, NAMESPACE)
    assert refused == []


def test_every_right_that_the_chart_grants_was_used(proof: Proof) -> None:
    rights, _refused = used(proof.audit, NAMESPACE)
    ours = {right for right, programs in rights.items() if programs - {"kube-scheduler"}}
    unused = {
        right
        for right, roles in granted(proof.manifest, NAMESPACE).items()
        if right not in (rights if any(role.endswith("-lease") for role in roles) else ours)
    }
    assert unused - FOR_OTHER_DAYS.keys() == set()
    assert granted(proof.manifest, NAMESPACE).keys() >= FOR_OTHER_DAYS.keys()


def test_network_policies_let_every_connection_pass_that_was_made(proof: Proof) -> None:
    made = {f"{one.source} → {one.target}:{one.port}" for one in proof.connections}
    for expected in ("proxy → flexinfer-system/nats:4222", "proxy → default/engine:8080", "manager → 10.96.0.1:443"):
        assert f"{NAMESPACE}/{expected}" in made
    assert len(proof.policies) >= 6
    assert refusals(proof.policies, proof.connections) == []
