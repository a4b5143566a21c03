"""The chart on a real API server and its controllers: everything is accepted, a release lives and leaves nothing.

There is no kubelet here, so pods stay Pending; what they do is proved where they run.
"""

import base64
import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import helm
import pytest
import yaml
from rig import Rig

from flexinfer.local.ports import free_port

NAMESPACE = "flexinfer-system"
ROOT = Path(__file__).resolve().parents[2]
KINDS = (
    "deployments,daemonsets,statefulsets,services,secrets,configmaps,leases,poddisruptionbudgets,networkpolicies,"
    "serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,priorityclasses,persistentvolumeclaims,"
    "validatingwebhookconfigurations,mutatingwebhookconfigurations,pods,jobs"
)
FOREIGN = ("ServiceMonitor", "PodMonitor", "PrometheusRule")


class Cluster:
    """A control plane of its own: cluster-wide names of a release would meet those of other tests."""

    def __init__(self, rig: Rig, home: Path) -> None:
        self.rig, self.home, self.kubeconfig = rig, home, rig.kubeconfig()

    def run(self, program: str, *args: str) -> subprocess.CompletedProcess[str]:
        return helm.run(program, *args, home=self.home, kubeconfig=self.kubeconfig)

    def helm(self, *args: str) -> str:
        found = self.run("helm", *args, "-n", NAMESPACE)
        assert found.returncode == 0, found.stderr
        return found.stdout

    def kubectl(self, *args: str) -> str:
        found = self.run("kubectl", *args)
        assert found.returncode == 0, found.stderr
        return found.stdout

    def items(self, kinds: str = KINDS) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", kinds, "-A", "-o", "json"))["items"]
        return found

    def ours(self) -> set[str]:
        """kind/name of everything whose name is ours."""
        return {f"{o['kind']}/{o['metadata']['name']}" for o in self.items() if "flexinfer" in o["metadata"]["name"]}

    def secrets(self) -> dict[str, Any]:
        found = json.loads(self.kubectl("get", "secrets", "-n", NAMESPACE, "-o", "json"))["items"]
        return {o["metadata"]["name"]: o["data"] for o in found if not o["type"].startswith("helm.sh")}

    def generations(self) -> dict[str, int]:
        found = self.items("deployments,daemonsets,statefulsets")
        return {o["metadata"]["name"]: o["metadata"]["generation"] for o in found}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        helm.find()
    except helm.NoHelm as err:
        pytest.skip(str(err))
    rig = Rig(tmp_path_factory.mktemp("chart-rig"))
    try:
        yield Cluster(rig.start(), tmp_path_factory.mktemp("chart-home"))
    finally:
        rig.stop()


def eventually(check: Callable[[], object], last: Callable[[], object], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:.0f} s; last: {last()}")
        time.sleep(0.2)  # controllers of the cluster announce nothing


def rendered(cluster: Cluster, *args: str) -> Path:
    found = helm.template(cluster.home, *args)
    assert found.returncode == 0, found.stderr
    objects = [obj for obj in yaml.load_all(found.stdout, Loader=yaml.CSafeLoader) if obj]
    path = cluster.home / "rendered.yaml"
    path.write_text(yaml.safe_dump_all([obj for obj in objects if obj["kind"] not in FOREIGN]))
    return path


@pytest.mark.parametrize(
    "values",
    [
        (),
        (
            "--set", "webhook.enabled=true,globalProxy.enabled=true,nats.replicas=3,scheduler.namespace=kube-system",
            "--set", "metrics.serviceMonitors.enabled=true,metrics.rules.enabled=true,metrics.dashboards.enabled=true",
            "--set", "agent.nodes=gpu,agent.hostAccess=privileged,agent.cloudNotices=aws",
            "--set", "scheduler.tls.enabled=true,scheduler.tls.existingSecret=tls,manager.watchNamespace=default",
            "--api-versions", "monitoring.coreos.com/v1",
        ),
    ],
    ids=["default", "everything"],
)  # fmt: skip
def test_the_server_accepts_every_manifest(cluster: Cluster, values: tuple[str, ...]) -> None:
    cluster.run("kubectl", "create", "namespace", NAMESPACE)
    path = rendered(cluster, *values)

    found = cluster.run("kubectl", "apply", "--server-side", "--dry-run=server", "-f", str(path))

    assert (found.returncode, found.stderr) == (0, "")
    assert len(found.stdout.splitlines()) == path.read_text().count("\nkind: ")


def test_the_plain_manifests_with_the_secrets_of_the_script(cluster: Cluster) -> None:
    script = subprocess.run(
        ["bash", str(ROOT / "deploy" / "secrets.sh"), "plain"],
        env={"PATH": f"{helm.find()}:/usr/bin:/bin", "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(cluster.home)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert script.returncode == 0, script.stderr
    cluster.run("kubectl", "create", "namespace", NAMESPACE)
    found = cluster.run(
        "kubectl", "apply", "--server-side", "--dry-run=server", "-f", str(ROOT / "deploy" / "crds"),
        "-f", str(ROOT / "deploy" / "flexinfer.yaml"), "-f", str(ROOT / "deploy" / "kind" / "pretend.yaml"),
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, "")
    made = json.loads(cluster.kubectl("get", "secrets", "-n", "plain", "-o", "json"))["items"]
    assert len([secret for secret in made if secret["metadata"]["name"].startswith("flexinfer-nats-")]) == 8
    cluster.kubectl("delete", "namespace", "plain", "--timeout=120s")


def test_a_port_of_the_nodes_that_is_taken_is_refused_before_anything_is_written(cluster: Cluster) -> None:
    exporter = {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "node-exporter", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "e"}},
            "template": {
                "metadata": {"labels": {"app": "e"}},
                "spec": {
                    "hostNetwork": True,
                    "containers": [{"name": "e", "image": "e", "ports": [{"containerPort": 9100}]}],
                },
            },
        },
    }  # fmt: skip
    path = cluster.home / "exporter.json"
    path.write_text(json.dumps(exporter))
    cluster.kubectl("apply", "-f", str(path))

    found = cluster.run("helm", "install", "flexinfer", str(helm.CHART), "-n", NAMESPACE, "--create-namespace")

    assert found.returncode != 0
    assert "Port 9100 of the nodes is taken by DaemonSet default/node-exporter (agent.hostPort)" in found.stderr
    assert not cluster.ours()
    cluster.kubectl("delete", "daemonset", "node-exporter", "-n", "default")


def earlier_chart(folder: Path) -> Path:
    """The chart as an earlier release might have had it: another version, a CRD with less in it."""
    chart = folder / "flexinfer"
    shutil.copytree(helm.CHART, chart)
    about = chart / "Chart.yaml"
    about.write_text(re.sub(r"^(version|appVersion): .*$", r"\1: 0.0.1", about.read_text(), flags=re.MULTILINE))
    crd = chart / "files" / "crds" / "models.ai.flexinfer.yaml"
    body = yaml.safe_load(crd.read_text())
    body["spec"]["versions"][0]["additionalPrinterColumns"].pop()
    crd.write_text(yaml.safe_dump(body))
    return chart


def columns(cluster: Cluster) -> list[str]:
    crd = json.loads(cluster.kubectl("get", "crd", "models.ai.flexinfer", "-o", "json"))
    return [column["name"] for column in crd["spec"]["versions"][0]["additionalPrinterColumns"]]


def test_a_release_keeps_its_credentials_and_its_results_and_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    chart = str(helm.CHART)
    cluster.helm("install", "flexinfer", str(earlier_chart(tmp_path)), "--create-namespace")
    assert "Age" not in columns(cluster)
    secrets, generations = cluster.secrets(), cluster.generations()
    assert len(secrets) == 8
    cluster.kubectl(
        "patch", "configmap", "flexinfer-benchmark-results", "-n", NAMESPACE, "--type=merge", "-p", '{"data":{"k":"1"}}'
    )

    cluster.helm("upgrade", "flexinfer", chart, "--set", "scheduler.weights.tps=0.9,manager.replicas=2")
    assert cluster.secrets() == secrets
    assert columns(cluster)[-1] == "Age"
    after = cluster.generations()
    # A new release means new images, also of the step before the bus that names whose word it takes.
    assert after["flexinfer-nats"] > generations["flexinfer-nats"]
    assert after["flexinfer-scheduler"] > generations["flexinfer-scheduler"]
    results = json.loads(
        cluster.kubectl("get", "configmap", "flexinfer-benchmark-results", "-n", NAMESPACE, "-o", "json")
    )
    assert results["data"] == {"k": "1"}

    cluster.helm("rollback", "flexinfer", "1")
    assert cluster.secrets() == secrets
    cluster.helm("upgrade", "flexinfer", chart, "--set", "webhook.enabled=true,globalProxy.enabled=true")
    assert {name: cluster.secrets()[name] for name in secrets} == secrets

    cluster.helm("uninstall", "flexinfer", "--no-hooks")
    kept = {"ConfigMap/flexinfer-benchmark-results"}
    eventually(lambda: cluster.ours() == kept, cluster.ours)
    assert columns(cluster)

    # The next one takes over what was kept.
    cluster.helm("install", "flexinfer", chart, "--set", "benchmark.keepResults=false")
    assert cluster.secrets() != secrets
    cluster.helm("uninstall", "flexinfer", "--no-hooks")
    eventually(lambda: not cluster.ours(), cluster.ours)


def served(cluster: Cluster, folder: Path) -> subprocess.Popen[bytes]:
    """The webhook as a process with the chart's own certificate, where the API server looks for its Service."""
    data = cluster.secrets()["flexinfer-webhook-tls"]
    for name, content in data.items():
        (folder / name).write_bytes(base64.b64decode(content))
    port = free_port()
    process = subprocess.Popen(
        [
            str(Path(sys.executable).parent / "flexinfer-webhook"), "--host", "127.0.0.1", "--port", str(port),
            "--metrics-port", "0", "--tls-cert", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key"),
            "--log-format", "json",
        ],
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    while b"webhook on port" not in (line := process.stderr.readline()):
        assert line, "the webhook ended at once"
    cluster.kubectl("delete", "service", "flexinfer-webhook", "-n", NAMESPACE)
    cluster.kubectl(
        "create", "service", "externalname", "flexinfer-webhook", "-n", NAMESPACE, "--external-name=127.0.0.1"
    )
    patch = json.dumps([{"op": "replace", "path": "/webhooks/0/clientConfig/service/port", "value": port}])
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        cluster.kubectl("patch", kind, "flexinfer-webhook", "--type=json", "-p", patch)
    return process


def model(cluster: Cluster, name: str, **spec: Any) -> subprocess.CompletedProcess[str]:
    body = {
        "apiVersion": "ai.flexinfer/v1alpha1", "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"backend": "vllm", "model": "hf://Qwen/Qwen3-8B", **spec},
    }  # fmt: skip
    path = cluster.home / f"{name}.json"
    path.write_text(json.dumps(body))
    return cluster.run("kubectl", "create", "-f", str(path))


def test_the_api_server_asks_the_webhook_with_the_certificate_of_the_chart(cluster: Cluster, tmp_path: Path) -> None:
    cluster.helm(
        "install",
        "flexinfer",
        str(helm.CHART),
        "--create-namespace",
        "--set",
        "webhook.enabled=true,webhook.failurePolicy=Fail",
    )
    process = served(cluster, tmp_path)
    try:
        # The API server learns of a new configuration a moment after it is written.
        eventually(
            lambda: "is not supported" in model(cluster, "bad", backend="vlm").stderr,
            lambda: model(cluster, "bad2").stderr,
        )
        bad = model(cluster, "bad", backend="vlm")
        assert "spec.backend: 'vlm' is not supported; use one of" in bad.stderr
        odd = model(cluster, "odd", gpuGroupRef="g", vramEstimateMB=9000)
        assert odd.returncode == 0, odd.stderr
        assert "Warning: spec.gpuGroupRef has no effect" in odd.stderr
        stored = json.loads(cluster.kubectl("get", "modeldeployment", "odd", "-o", "json"))
        assert stored["spec"]["gpu"]["vramEstimateMB"] == 9000
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "failed calling webhook" in model(cluster, "late").stderr
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
    cluster.helm("uninstall", "flexinfer", "--no-hooks")
    eventually(lambda: model(cluster, "after").returncode == 0, lambda: "still asked")
    cluster.kubectl("delete", "modeldeployments", "--all", "-n", "default")
