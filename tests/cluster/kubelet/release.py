"""The chart as a release on a cluster, looked at as its users do."""

import base64
import json
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from helm import CHART, run
from kubelet.cluster import Cluster

NAMESPACE = "flexinfer-system"
RELEASE = "flexinfer"
MODELS = "/apis/ai.flexinfer/v1alpha1/namespaces/default/modeldeployments"
# What people downloaded as 0.1.0: charts/flexinfer as it was first given out.
EARLIER = Path(__file__).resolve().parents[1] / "data" / "flexinfer-0.1.0.tgz"


@dataclass
class Release:
    """The chart on one cluster."""

    cluster: Cluster
    home: Path

    def tool(self, program: str, *args: str) -> str:
        """Standard output of helm or kubectl. Raises AssertionError with what it and the cluster say."""
        return self._run(program, *args).stdout

    def _run(self, program: str, *args: str, refused: bool = False) -> subprocess.CompletedProcess[str]:
        done = run(program, *args, home=self.home, kubeconfig=self.cluster.rig.kubeconfig())
        if bool(done.returncode) is not refused:
            raise AssertionError(f"{program} {' '.join(args)}:\n{done.stdout}{done.stderr}\n{self.cluster.describe()}")
        return done

    def helm(self, *args: str) -> str:
        return self.tool("helm", *args, "-n", NAMESPACE)

    def install(self, chart: Path = CHART) -> None:
        self.helm("install", RELEASE, str(chart), "--create-namespace", "--wait", "--timeout", "240s")

    def upgrade(self, *values: str) -> None:
        chosen = [part for value in values for part in ("--set", value)]
        self.helm("upgrade", RELEASE, str(CHART), *chosen, "--wait", "--timeout", "240s")

    def uninstall(self) -> str:
        """What helm says, its hooks' words among it; every pod of the release is gone then."""
        done = self._run("helm", "uninstall", RELEASE, "--wait", "--timeout", "240s", "-n", NAMESPACE)
        self.cluster.until("no pod is left", lambda: not self.pods(NAMESPACE, ""), 180)
        return done.stdout + done.stderr

    def refuses_uninstall(self) -> str:
        """What helm and the hook say."""
        done = self._run("helm", "uninstall", RELEASE, "--timeout", "240s", "-n", NAMESPACE, refused=True)
        return done.stdout + done.stderr

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

    def engines(self) -> list[Any]:
        """Pods of the example model."""
        return self.pods("default", "app.kubernetes.io/instance=smollm2,app.kubernetes.io/component=engine")

    def secret(self, name: str, host: str) -> None:
        """A certificate for that host, and its CA, beside the release."""
        authority = trustme.CA()
        server = authority.issue_cert(host)
        chain = b"".join(blob.bytes() for blob in server.cert_chain_pems)
        parts = {"ca.crt": authority.cert_pem.bytes(), "tls.crt": chain, "tls.key": server.private_key_pem.bytes()}
        body = {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "kubernetes.io/tls",
            "data": {key: base64.b64encode(part).decode() for key, part in parts.items()},
        }  # fmt: skip
        self.cluster.rig.call("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", body)

    def proxy(self) -> str:
        return str(self.get(f"/api/v1/namespaces/{NAMESPACE}/services/flexinfer-proxy")["spec"]["clusterIP"])

    def model(self) -> Any:
        """The example model, empty when it is gone."""
        status, body = self.cluster.rig.get(f"{MODELS}/smollm2")
        return body if status == 200 and isinstance(body, dict) else {}

    def phase(self) -> str:
        model = self.model()
        return str((model.get("status") or {}).get("phase")) if model else "gone"

    def keeps(self) -> dict[str, Any]:
        """Passwords and certificate of the bus, the server with its streams, measured results."""
        where = f"/api/v1/namespaces/{NAMESPACE}"
        secrets = self.get(f"{where}/secrets?labelSelector=app.kubernetes.io/component=nats")["items"]
        return {
            "secrets": {one["metadata"]["name"]: one["data"] for one in secrets},
            "servers": [pod["metadata"]["uid"] for pod in self.part("nats")],
            "results": self.get(f"{where}/configmaps/flexinfer-benchmark-results").get("data"),
        }

    def streams(self) -> dict[str, Any]:
        """Each stream's name → when it was made, and its state."""
        accounts = self._monitor("jsz?accounts=true&streams=true")["account_details"]
        return {one["name"]: one for account in accounts for one in account.get("stream_detail") or ()}

    def speakers(self) -> set[str]:
        """Names of the bus's clients, past ones too, that said something there."""
        clients = self._monitor("connz?state=any&limit=4096")["connections"]
        return {client.get("name", "") for client in clients if client["in_msgs"]}

    def _monitor(self, page: str) -> Any:
        [server] = self.part("nats")
        with urllib.request.urlopen(f"http://{server['status']['podIP']}:8222/{page}", timeout=30) as answer:
            return json.load(answer)

    def weight(self) -> str:
        """Of measured speed, in the one extender that is not about to end."""
        [pod] = self.part("scheduler")
        [container] = [found for found in pod["spec"]["containers"] if found["name"] == "scheduler"]
        return next(env["value"] for env in container["env"] if env["name"] == "FLEXINFER_WEIGHT_TPS")

    def objects(self) -> set[str]:
        """kind/name of everything of the release's name, in its namespace, or where the models are."""
        kinds = self.tool("kubectl", "api-resources", "--verbs=list", "-o", "name").split()
        # API services follow the CRDs, which stay; leases say who was here, componentstatuses are no objects.
        skipped = {"events", "events.events.k8s.io", "componentstatuses", "apiservices.apiregistration.k8s.io"}
        listed = self.tool("kubectl", "get", ",".join(sorted(set(kinds) - skipped)), "-A", "-o", "json")
        return {
            f"{found['kind']}/{found['metadata']['name']}"
            for found in json.loads(listed)["items"]
            if "flexinfer" in found["metadata"]["name"] or found["metadata"].get("namespace") in {NAMESPACE, "default"}
        }

    def node_keys(self) -> set[str]:
        """Labels and annotations of the nodes that begin with our prefix."""
        metas = [node["metadata"] for node in self.get("/api/v1/nodes")["items"]]
        maps = [meta.get(kind) or {} for meta in metas for kind in ("labels", "annotations")]
        return {key for found in maps for key in found if key.startswith("flexinfer.ai/")}
