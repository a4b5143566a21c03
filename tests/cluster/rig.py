"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager and, if asked, kube-scheduler."""

import contextlib
import ctypes
import json
import os
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import trustme
import yaml
from binaries import find

from flexinfer.local.ports import free_port

ADMIN, MANAGER, SCHEDULER, NOBODY = "admin-token", "manager-token", "scheduler-token", "nobody-token"
START_DEADLINE = 90.0


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@dataclass
class Rig:
    """One control plane. ``start`` and ``stop`` block; processes die with the test process."""

    root: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.ports['api']}"

    @property
    def ca(self) -> Path:
        return self.root / "ca.crt"

    @property
    def audit_log(self) -> Path:
        return self.root / "audit.jsonl"

    def start(self) -> "Rig":
        self.root.mkdir(parents=True, exist_ok=True)
        self.ports = {name: free_port() for name in ("etcd", "peer", "api", "kcm", "scheduler")}
        self._certificates()
        self._tokens()
        self._etcd()
        self._apiserver()
        self._wait("/readyz")
        self._controller_manager()
        self._wait("/api/v1/namespaces/default/serviceaccounts/default")
        return self

    def stop(self) -> None:
        # apiserver before etcd, else it holds its port for minutes
        for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"):
            self.kill(name, signal.SIGTERM)

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        process = self.processes.pop(name, None)
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart_apiserver(self) -> None:
        self.kill("kube-apiserver")
        self._apiserver()
        self._wait("/readyz")

    def kubeconfig(self, token: str = ADMIN) -> Path:
        path = self.root / f"kubeconfig-{token}"
        path.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "rig",
            "clusters": [{"name": "rig", "cluster": {"server": self.url, "certificate-authority": str(self.ca)}}],
            "users": [{"name": "rig", "user": {"token": token}}],
            "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": "rig"}}],
        }))  # fmt: skip
        return path

    def start_scheduler(self, extender_url: str, *, options: dict[str, object] | None = None) -> None:
        """A kube-scheduler with a profile ``flexinfer-scheduler`` that asks our extender."""
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.kubeconfig(SCHEDULER))},
            "podMaxBackoffSeconds": 2,
            "percentageOfNodesToScore": 100,
            "profiles": [{"schedulerName": "flexinfer-scheduler"}],
            "extenders": [{
                "urlPrefix": extender_url, "filterVerb": "filter", "prioritizeVerb": "prioritize",
                "preemptVerb": "preempt", "weight": 5, "nodeCacheCapable": True, "ignorable": False,
                "httpTimeout": "2s",
            }],
            **(options or {}),
        }  # fmt: skip
        path = self.root / "scheduler.yaml"
        path.write_text(yaml.safe_dump(config))
        self._spawn("kube-scheduler", f"--config={path}", f"--secure-port={self.ports['scheduler']}",
                    f"--cert-dir={self.root / 'scheduler-certs'}", "--v=2")  # fmt: skip

    def log(self, name: str, lines: int = 40) -> str:
        with contextlib.suppress(OSError):
            return "\n".join((self.root / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])
        return ""

    def _certificates(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca)
        server = authority.issue_cert("127.0.0.1", "localhost", "kubernetes.default.svc", "10.96.0.1")
        server.private_key_pem.write_to_path(self.root / "api.key")
        with (self.root / "api.crt").open("wb") as out:
            out.writelines(blob.bytes() for blob in server.cert_chain_pems)
        authority.private_key_pem.write_to_path(self.root / "sa.key")

    def _tokens(self) -> None:
        users = {
            ADMIN: ("admin", "system:masters"), MANAGER: ("system:kube-controller-manager", ""),
            SCHEDULER: ("system:kube-scheduler", ""), NOBODY: ("nobody", ""), **self.tokens,
        }  # fmt: skip
        rows = [f'{token},{user},{user},"{groups}"' for token, (user, groups) in users.items()]
        (self.root / "tokens.csv").write_text("\n".join(rows) + "\n")

    def _spawn(self, name: str, *args: str) -> None:
        with (self.root / f"{name}.log").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                [str(find() / name), *args], stdout=out, stderr=out, cwd=self.root,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one prctl call, no locks taken
                env={**os.environ, "GOMAXPROCS": "2"},
            )  # fmt: skip

    def _etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{self.ports[name]}" for name in ("etcd", "peer"))
        self._spawn(
            "etcd", "--data-dir", str(self.root / "etcd"), "--listen-client-urls", client,
            "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}", "--unsafe-no-fsync", "--log-level", "error",
        )  # fmt: skip

    def _apiserver(self) -> None:
        policy = self.root / "audit-policy.yaml"
        policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n"
                          "rules: [{level: Metadata}]\n")  # fmt: skip
        self._spawn(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self.ports['etcd']}",
            f"--secure-port={self.ports['api']}", "--bind-address=127.0.0.1",
            f"--tls-cert-file={self.root / 'api.crt'}", f"--tls-private-key-file={self.root / 'api.key'}",
            f"--cert-dir={self.root / 'certs'}", "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction", f"--token-auth-file={self.root / 'tokens.csv'}",
            f"--service-account-key-file={self.root / 'sa.key'}",
            f"--service-account-signing-key-file={self.root / 'sa.key'}",
            "--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP,Hostname",
            f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}", "--endpoint-reconciler-type=none",
        )  # fmt: skip

    def _controller_manager(self) -> None:
        self._spawn(
            "kube-controller-manager", f"--kubeconfig={self.kubeconfig(MANAGER)}", f"--root-ca-file={self.ca}",
            f"--service-account-private-key-file={self.root / 'sa.key'}", "--use-service-account-credentials=true",
            "--leader-elect=false", "--controllers=*", f"--secure-port={self.ports['kcm']}",
            f"--cert-dir={self.root / 'kcm-certs'}", "--kube-api-qps=200", "--kube-api-burst=400",
        )  # fmt: skip

    def get(self, path: str, token: str = ADMIN) -> tuple[int, object]:
        """(status, parsed body or text)."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {token}"})
        context = ssl.create_default_context(cafile=str(self.ca))
        try:
            with urllib.request.urlopen(request, timeout=5, context=context) as response:
                body = response.read().decode()
                return response.status, json.loads(body) if body.startswith("{") else body
        except urllib.error.HTTPError as err:
            with err:
                return err.code, err.read().decode()

    def call(self, method: str, path: str, body: object = None) -> object:
        """A write as admin: the parsed answer. PATCH is a merge patch. Raises AssertionError on a refusal."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        context = ssl.create_default_context(cafile=str(self.ca))
        try:
            with urllib.request.urlopen(request, timeout=10, context=context) as response:
                return json.load(response)
        except urllib.error.HTTPError as err:
            with err:
                raise AssertionError(f"{method} {path}: {err.code} {err.read().decode()}") from err

    def _wait(self, path: str) -> None:
        deadline = time.monotonic() + START_DEADLINE
        last: object = "no answer"
        while time.monotonic() < deadline:
            dead = [name for name, process in self.processes.items() if process.poll() is not None]
            if dead:
                raise RuntimeError(f"{dead[0]} ended at once:\n{self.log(dead[0])}")
            try:
                status, last = self.get(path)
                if status == 200:
                    return
            except OSError as err:
                last = err
            time.sleep(0.1)  # polling a process at start, not synchronising a test
        raise RuntimeError(f"{path} did not answer within {START_DEADLINE:.0f} s: {last}\n{self.log('kube-apiserver')}")
