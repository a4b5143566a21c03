"""The chart, from ``helm install`` to ``helm uninstall``, on a real control plane whose kubelet runs the rendered pods.

Helm's and kubectl's own binaries, the real scheduler beside our extender, NATS with TLS and a credential per
component, RBAC on, each component with its own ServiceAccount token, the real engine with a small model.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import helm
import pytest
import yaml
from kubelet.chats import Chats, chat
from kubelet.cluster import private_cluster
from kubelet.documented import Typed, lines, typed
from kubelet.examples import BARE, HELD, WAITING, example
from kubelet.house import GATEWAY
from kubelet.netns import missing
from kubelet.policies import Connection, connections, refusals
from kubelet.release import EARLIER, NAMESPACE, RELEASE, Release
from kubelet.rights import Right, entries, granted, used
from kubelet.wire import Wire

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

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


@dataclass
class Proof:
    """What happened, step by step."""

    release: Release
    chats: Chats
    nodes: list[Any] = field(default_factory=list)
    parts: dict[str, list[Any]] = field(default_factory=dict)
    engines: list[Any] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    speakers: set[str] = field(default_factory=set)
    documented: list[Typed] = field(default_factory=list)
    first_answer: tuple[int, str] = (0, "")
    seconds: float = 0.0
    weights: list[str] = field(default_factory=list)
    kept: list[dict[str, Any]] = field(default_factory=list)
    tests: str = ""
    manifest: str = ""
    audit: list[Any] = field(default_factory=list)
    policies: list[Any] = field(default_factory=list)
    services: list[Any] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    before: set[str] = field(default_factory=set)
    left: list[str] = field(default_factory=list)
    placed: str = ""
    chroot: dict[str, Any] = field(default_factory=dict)
    hooks: str = ""
    keys: list[set[str]] = field(default_factory=list)
    uninstalled: str = ""
    late_audit: list[Any] = field(default_factory=list)
    orphan: dict[str, Any] = field(default_factory=dict)
    earlier: list[dict[str, Any]] = field(default_factory=list)
    privileged: dict[str, Any] = field(default_factory=dict)
    refused: str = ""
    last_answer: tuple[int, str] = (0, "")


def _serve(proof: Proof, tmp: Path) -> None:
    """From nothing to an answer."""
    release = proof.release
    proof.before = release.objects()
    begun = time.monotonic()
    release.install()
    proof.chats.address = release.proxy()
    (tmp / "model.yaml").write_text(yaml.safe_dump(example()))
    release.tool("kubectl", "apply", "-f", str(tmp / "model.yaml"))
    release.cluster.until("smollm2 is Running", lambda: release.phase() == "Running", 240)
    proof.first_answer = chat(proof.chats.address)
    proof.seconds = time.monotonic() - begun
    for name in ("waiting", "leaving"):
        (tmp / "waiting.yaml").write_text(yaml.safe_dump({**WAITING, "metadata": {"name": name}}))
        release.tool("kubectl", "apply", "-f", str(tmp / "waiting.yaml"), "-n", "default")
        children = f"/apis/apps/v1/namespaces/default/deployments/{name}"
        release.cluster.until(f"{name} has its children", lambda path=children: release.cluster.rig.get(path)[0] == 200)
    proof.nodes = release.get("/api/v1/nodes")["items"]
    proof.parts = {name: release.part(name) for name in ("agent", "manager", "scheduler", "proxy", "dashboard", "nats")}
    proof.engines = release.engines()
    proof.speakers = release.speakers()
    proof.events = release.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    proof.documented = _as_documented(proof)


def _as_documented(proof: Proof) -> list[Typed]:
    [manager], [engine] = proof.parts["manager"], proof.engines
    environ = helm.environ(proof.release.home, proof.release.cluster.rig.kubeconfig())
    found = []
    for line in lines():
        pod = manager if "-n flexinfer-system" in line else engine
        names = {"<pod>": pod["metadata"]["name"], "<node>": "gpu-1", "<name>": "smollm2", "llama3": "waiting"}
        found.append(typed(line, environ, names))
    return found


def _change(proof: Proof, tmp: Path) -> None:
    """Upgrade, tests and rollback while people chat."""
    release = proof.release
    proof.weights.append(release.weight())
    proof.kept.append(release.keeps())
    release.secret("extender-tls", f"flexinfer-scheduler.{NAMESPACE}.svc")
    with proof.chats:
        release.upgrade(
            "scheduler.weights.tps=0.9,proxy.queueLimit=300,webhook.enabled=true,globalProxy.enabled=true",
            "scheduler.tls.enabled=true,scheduler.tls.existingSecret=extender-tls,agent.hostAccess=chroot",
        )
        release.cluster.until("one extender is left", lambda: len(release.part("scheduler")) == 1)
        proof.weights.append(release.weight())
        release.tool("kubectl", "annotate", "modeldeployment", "smollm2", "proof=upgraded")
        proof.kept.append(release.keeps())
        proof.placed = _place(release, tmp)
        proof.chroot = _rights_of_the_agent(release)
        proof.tests = release.helm("test", RELEASE, "--logs", "--timeout", "240s")
        # Now that every part is there.
        proof.policies = release.get("/apis/networking.k8s.io/v1/networkpolicies")["items"]
        proof.services = release.get("/api/v1/services")["items"]
        release.helm("rollback", RELEASE, "--wait", "--timeout", "240s")
        release.cluster.until("one extender is left", lambda: len(release.part("scheduler")) == 1)
        proof.weights.append(release.weight())
        ending = "proxies of the release before have drained"
        release.cluster.until(ending, lambda: len(release.pods(NAMESPACE, "app.kubernetes.io/component=proxy")) == 2)
        proof.kept.append(release.keeps())


def _rights_of_the_agent(release: Release) -> dict[str, Any]:
    """Of the one that is ready."""
    release.cluster.until("one agent is left", lambda: len(release.part("agent")) == 1)
    [agent] = release.part("agent")
    assert agent["status"]["containerStatuses"][0]["ready"], agent["status"]
    return dict(agent["spec"]["containers"][0]["securityContext"])


def _place(release: Release, tmp: Path) -> str:
    """The node of a pod that kube-scheduler bound by an extender it may not do without, over TLS."""
    (tmp / "bare.yaml").write_text(yaml.safe_dump(BARE))
    release.tool("kubectl", "apply", "-f", str(tmp / "bare.yaml"))
    where = "/api/v1/namespaces/default/pods/bare"
    release.cluster.until("the bare pod has a node", lambda: release.get(where)["spec"].get("nodeName"))
    node = str(release.get(where)["spec"]["nodeName"])
    release.tool("kubectl", "delete", "pod", "bare", "--grace-period=1", "--timeout=60s")
    return node


def _remove(proof: Proof, wire: Wire) -> None:
    """Uninstall while models are there: they stay, the example answers on."""
    release, cluster = proof.release, proof.release.cluster
    release.tool("kubectl", "delete", "model", "leaving", "--timeout=120s")
    proof.manifest, proof.hooks = (release.helm("get", what, RELEASE) for what in ("manifest", "hooks"))
    proof.audit = entries(cluster.rig.audit_log)
    proof.connections = connections(wire.seen(), cluster.addresses(), proof.services, GATEWAY)
    proof.keys.append(release.node_keys())
    proof.uninstalled = release.uninstall()
    proof.keys.append(release.node_keys())
    proof.late_audit = entries(cluster.rig.audit_log)[len(proof.audit) :]
    proof.orphan = release.model()
    release.tool("kubectl", "delete", "model", "waiting", "--timeout=60s")
    cluster.until("no volume is left", lambda: not release.get("/api/v1/persistentvolumes")["items"])


def _come_from_earlier(proof: Proof) -> None:
    """The chart of 0.1.0 takes up the model that was left, then becomes this one."""
    release = proof.release
    release.install(EARLIER)
    taken_up = "the manager holds the model again"
    release.cluster.until(taken_up, lambda: (release.model()["metadata"].get("finalizers"), release.phase()) == HELD)
    proof.earlier = [_standing(release)]
    release.upgrade("agent.hostAccess=privileged,crds.keep=false")
    release.cluster.until("one extender is left", lambda: len(release.part("scheduler")) == 1)
    # Programs of today may miss rights that the chart of then does not grant; from here on they may not.
    begun = len(entries(release.cluster.rig.audit_log))
    proof.privileged = _rights_of_the_agent(release)
    proof.earlier.append(_standing(release))
    proof.refused = release.refuses_uninstall()
    proof.last_answer = chat(release.proxy())
    release.tool("kubectl", "delete", "modeldeployments", "-A", "--all", "--timeout=120s")
    proof.audit += entries(release.cluster.rig.audit_log)[begun:]


def _standing(release: Release) -> dict[str, Any]:
    engines = [pod["metadata"]["uid"] for pod in release.engines()]
    kept = {name: found for name, found in release.keeps().items() if name != "servers"}
    return {**kept, "streams": release.streams(), "phase": release.phase(), "engines": engines}


def _leave(proof: Proof) -> None:
    release = proof.release
    release.uninstall()
    release.cluster.until("the engine is gone", lambda: not release.get("/api/v1/namespaces/default/pods")["items"])
    release.cluster.until("no volume is left", lambda: not release.get("/api/v1/persistentvolumes")["items"])
    release.tool("kubectl", "delete", "secret", "extender-tls", "-n", NAMESPACE)
    proof.left = sorted(release.objects() - proof.before)


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proof]:
    with private_cluster(tmp_path_factory.mktemp("proof"), "gpu-1") as cluster:
        home = tmp_path_factory.mktemp("home")
        told = Proof(Release(cluster, home), Chats(""))
        wire = Wire()
        try:
            _serve(told, home)
            _change(told, home)
            _remove(told, wire)
            _come_from_earlier(told)
            _leave(told)
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


def test_agent_and_benchmark_got_onto_the_bus_by_their_tokens(proof: Proof) -> None:
    # Nobody else is asked about: whoever has a password is known to the server.
    secrets = proof.kept[0]["secrets"].keys()
    assert "flexinfer-nats-callout" in secrets
    assert "flexinfer-nats-agent" not in secrets
    assert "flexinfer-agent gpu-1" in proof.speakers
    [key] = proof.kept[0]["results"]
    assert f"flexinfer-bench {key}" in proof.speakers


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


def test_what_the_documents_tell_people_to_type_works(proof: Proof) -> None:
    assert len(proof.documented) > 20
    assert [one for one in proof.documented if one.code or not one.printed] == []


def test_helm_test_reaches_every_part_by_name(proof: Proof) -> None:
    assert "Succeeded" in proof.tests
    for name in ("controller", "scheduler", "proxy", "dashboard", "global-proxy"):
        assert f"flexinfer-{name}.{NAMESPACE}.svc" in proof.tests


def test_a_pod_is_placed_by_an_extender_with_tls(proof: Proof) -> None:
    assert proof.placed == "gpu-1"


def test_agents_that_see_more_of_the_host_are_ready_too(proof: Proof) -> None:
    assert proof.chroot["capabilities"] == {"drop": ["ALL"], "add": ["SYS_CHROOT"]}
    assert proof.privileged["privileged"] is True


def test_uninstall_takes_what_agents_wrote_to_nodes(proof: Proof) -> None:
    before, after = proof.keys
    assert before > {"flexinfer.ai/gpu.count", "flexinfer.ai/kv-cache-usage"}
    # People set it, too.
    assert after == {"flexinfer.ai/enabled"}
    assert "node gpu-1: removed flexinfer.ai/" in proof.uninstalled


def test_models_outlive_an_uninstall_and_can_be_deleted_then(proof: Proof) -> None:
    assert proof.orphan["status"]["phase"] == "Running"
    assert not proof.orphan["metadata"].get("finalizers")
    assert "ModelDeployment default/smollm2: removed the finalizer" in proof.uninstalled


def test_the_hook_uses_each_of_its_rights_and_no_other(proof: Proof) -> None:
    rights, refused = used(proof.late_audit, NAMESPACE)
    assert {right for right in rights if right.account == "flexinfer-uninstall"} == granted(
        proof.hooks, NAMESPACE
    ).keys()
    assert [line for line in refused if line.startswith("flexinfer-uninstall")] == []


def test_an_upgrade_from_the_earlier_chart_keeps_everything(proof: Proof) -> None:
    before, after = proof.earlier
    for kept in ("results", "engines", "phase"):
        assert after[kept] == before[kept], kept
    # Who is known to the bus may change with the chart; nobody's credential does.
    both = before["secrets"].keys() & after["secrets"].keys()
    assert {name: after["secrets"][name] for name in both} == {name: before["secrets"][name] for name in both}
    assert len(both) >= 6
    assert after["phase"] == "Running"
    assert len(before["results"]) == 1
    assert after["streams"].keys() >= before["streams"].keys()
    assert sum(one["state"]["messages"] for one in before["streams"].values()) > 0
    for name, one in before["streams"].items():
        then = after["streams"][name]
        assert then["created"] == one["created"], name
        assert then["state"]["first_seq"] == one["state"]["first_seq"] or "KV_" in name, name
        assert then["state"]["last_seq"] >= one["state"]["last_seq"], name
    assert proof.last_answer[0] == 200, proof.last_answer[1]


def test_an_uninstall_that_would_take_models_along_is_refused(proof: Proof) -> None:
    assert "the CRDs would take 1 model(s) along: ModelDeployment default/smollm2" in proof.refused
    assert proof.last_answer[0] == 200, proof.last_answer[1]


def test_uninstall_leaves_what_the_policy_keeps(proof: Proof) -> None:
    # The models of the first uninstall stayed, and their CRDs with them; the last one was told not to keep those.
    assert proof.left == ["ConfigMap/flexinfer-benchmark-results", "Namespace/flexinfer-system"]


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
    for expected in (
        "proxy → flexinfer-system/nats:4222",
        "proxy → default/engine:8080",
        "manager → 10.96.0.1:443",
        "manager → 10.96.0.10:53",
    ):
        assert f"{NAMESPACE}/{expected}" in made
    assert len(proof.policies) >= 8
    assert refusals(proof.policies, proof.connections) == []
