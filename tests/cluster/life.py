"""One model on a real control plane, step by step: what a user does, and what must be there after it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rig import Rig

GROUP = "/apis/ai.flexinfer/v1alpha1"
IMAGE = "ghcr.io/ggml-org/llama.cpp"
FLEET = Path(__file__).with_name("two-cards.yaml")


def eventually(check: Callable[[], object], seconds: float, last: Callable[[], object]) -> None:
    """Wait for a condition of the cluster that no event of ours announces."""
    deadline = time.monotonic() + seconds
    while not _holds(check):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:.0f} s; last: {last()}")
        threading.Event().wait(0.2)


def _holds(check: Callable[[], object]) -> object:
    try:
        return check()
    except OSError:  # no answer in time: asked again
        return False


class System:
    """A running ``flexinfer up --bare`` against the rig."""

    def __init__(self, rig: Rig, tmp: Path, fleet: Path) -> None:
        self.rig = rig
        self.lines: list[str] = []
        argv = [
            str(Path(sys.executable).parent / "flexinfer"), "up", "--bare", "--kubeconfig", str(rig.kubeconfig()),
            "--scheduler-loop", "false", "--fake-nodes", str(fleet),
        ]  # fmt: skip
        environ = {**os.environ, "TMPDIR": str(tmp), "XDG_RUNTIME_DIR": str(tmp), "COLUMNS": "200"}
        self.process = subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        eventually(self._started, 240, lambda: "\n".join(self.lines))
        [note] = tmp.glob("flexinfer-*/up-*.json")
        self.note: dict[str, str] = json.loads(note.read_text())

    def _started(self) -> bool:
        told = "\n".join(self.lines)
        if self.process.poll() is not None:
            pytest.fail(f"flexinfer up ended: {told}")
        return "OpenAI URL" in told

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as out:
            for line in out:
                self.lines.append(line.rstrip())

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        self.reader.join(10)

    def chat(self, model: str) -> int:
        """Status of one request through the proxy."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        request = urllib.request.Request(
            self.note["proxy_url"] + "/v1/chat/completions", json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request, timeout=200) as answer:
                answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as err:
            with err:
                return err.code


class Managers:
    """The manager of a System, taken out of it, so that a test starts and kills its own."""

    def __init__(self, system: System, log: Path, kubeconfig: Path) -> None:
        rig = system.rig
        pod = "/api/v1/namespaces/flexinfer-system/pods/flexinfer-manager"
        _, body = rig.get(pod)
        [container] = body["spec"]["containers"]  # type: ignore[index]
        args = list(container["args"])
        args[args.index("--kubeconfig") + 1] = str(kubeconfig)
        args[args.index("--metrics-port") + 1] = "0"
        self._argv = [*container["command"], *args]
        self._log = log
        self.running: list[subprocess.Popen[bytes]] = []
        rig.call("DELETE", pod)
        eventually(lambda: rig.get(pod)[0] == 404, 60, lambda: rig.get(pod))

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as out:
            process = subprocess.Popen([*self._argv, *more], stdout=out, stderr=out)
        self.running.append(process)
        return process

    def kill(self) -> None:
        """Every manager, as the kernel would: nothing is said, nothing is given back."""
        for process in self.running:
            process.kill()
            process.wait()
        self.running.clear()

    def log(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])


@dataclass
class Life:
    """The walk of one model; each step waits until the cluster shows its end."""

    system: System
    namespace: str
    name: str
    seconds: float = 240
    deployments: set[str] = field(default_factory=set)  # uids ever seen

    @property
    def path(self) -> str:
        return f"{GROUP}/namespaces/{self.namespace}/modeldeployments"

    def spec(self) -> dict[str, Any]:
        return {
            "backend": "llamacpp",
            "model": f"hf://example/{self.name}-GGUF",
            "image": f"{IMAGE}:server",
            "replicas": 1,
            "minReplicas": 0,
            "idleTimeoutSeconds": 600,
            "gpu": {"vendor": "auto", "count": 1, "vramEstimateMB": 4000},
            "benchmark": {
                "concurrency": [1], "minDuration": "1s", "iterations": 1, "warmupIterations": 0, "batchSize": 8,
            },
        }  # fmt: skip

    def create(self) -> None:
        body = {"apiVersion": "ai.flexinfer/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": self.name}}
        self.system.rig.call("POST", self.path, {**body, "spec": self.spec()})

    def change(self, **spec: object) -> None:
        self.system.rig.call("PATCH", f"{self.path}/{self.name}", {"spec": spec})

    def get(self) -> dict[str, Any]:
        status, body = self.system.rig.get(f"{self.path}/{self.name}")
        return body if status == 200 and isinstance(body, dict) else {}

    def phase(self) -> str:
        return str((self.get().get("status") or {}).get("phase", "gone"))

    def until_phase(self, phase: str) -> None:
        self.until(lambda: self.phase() == phase)

    def until(self, check: Callable[[], object]) -> None:
        eventually(check, self.seconds, self.told)

    def told(self) -> str:
        """For the message of a failed wait."""
        pods = [(p["metadata"]["name"], p["status"].get("conditions")) for p in self.pods()]
        return f"{json.dumps(self.get().get('status'), indent=1)}\n{pods}"

    def labelled(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        query = f"app.kubernetes.io/instance={self.name}{selector}"
        status, body = self.system.rig.get(f"/{kind}?labelSelector={query}")
        if status != 200:
            raise OSError(f"{kind}: {status} {body}")
        return body["items"]  # type: ignore[index, no-any-return]

    def children(self, kind: str) -> list[dict[str, Any]]:
        return self.labelled(kind.format(ns=f"namespaces/{self.namespace}"))

    def pods(self) -> list[dict[str, Any]]:
        return self.labelled(f"api/v1/namespaces/{self.namespace}/pods", ",app.kubernetes.io/component=engine")

    def ready(self, image: str = "") -> list[dict[str, Any]]:
        """Pods that serve, with this image."""
        return [
            pod
            for pod in self.pods()
            if not pod["metadata"].get("deletionTimestamp")
            and any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
            and pod["spec"]["containers"][0]["image"].endswith(image)
        ]

    def serves(self, replicas: int, image: str = "") -> None:
        """The end of a step: this many replicas, all of them ready, one of every child."""

        def settled() -> bool:
            found = self.get()
            told = found.get("status") or {}
            return (
                told.get("phase") == "Running"
                and told.get("readyReplicas") == replicas
                and told.get("observedGeneration") == found["metadata"]["generation"]
                and len(self.ready(image)) == replicas == len(self.pods())
            )

        self.until(settled)
        [deployment] = self.children("apis/apps/v1/{ns}/deployments")
        self.deployments.add(deployment["metadata"]["uid"])
        assert len(self.children("api/v1/{ns}/services")) == 1

    def walk(self) -> None:
        """create → Benchmarking → Deploying → Running → scale → Idle → wake → update image → delete."""
        self.create()
        self.serves(1)
        self.change(replicas=2)
        self.serves(2)
        self.change(replicas=1)
        self.serves(1)
        self.change(idleTimeoutSeconds=2)
        self.until_phase("Idle")
        self.until(lambda: not self.pods())
        assert self.get()["spec"]["replicas"] == 1
        self.change(idleTimeoutSeconds=600)
        self.until(lambda: self.get()["status"]["observedGeneration"] == self.get()["metadata"]["generation"])
        assert self.system.chat(f"{self.namespace}/{self.name}") == 200
        self.serves(1)
        self.change(image=f"{IMAGE}:server-b2")
        self.serves(1, ":server-b2")
        self.until(lambda: self.system.chat(f"{self.namespace}/{self.name}") == 200)
        self.delete()

    def delete(self) -> None:
        """The finalizer runs, every child goes, the results stay."""
        self.system.rig.call("DELETE", f"{self.path}/{self.name}")
        self.until(lambda: not self.get())
        for kind in ("apis/apps/v1/{ns}/deployments", "api/v1/{ns}/services", "apis/batch/v1/{ns}/jobs",
                     "api/v1/{ns}/pods"):  # fmt: skip
            self.until(partial(self._none, kind))
        # what it claimed is given back
        _, claims = self.system.rig.get(
            "/api/v1/namespaces/flexinfer-system/configmaps?labelSelector=app=flexinfer-benchmark-claims"
        )
        assert [c["metadata"]["name"] for c in claims["items"] if self.name in c["metadata"]["name"]] == []  # type: ignore[index]
        assert self.results() == 2, "one device class, two images"
        assert len(self.deployments) == 1, "the Deployment was never made anew"

    def _none(self, kind: str) -> bool:
        return not self.children(kind)

    def results(self) -> int:
        """How many measurements of this model are on record."""
        _, body = self.system.rig.get("/api/v1/namespaces/flexinfer-system/configmaps/flexinfer-benchmark-results")
        record: dict[str, Any] = body  # type: ignore[assignment]
        return [json.loads(text)["model"] for text in record["data"].values()].count(self.name)
