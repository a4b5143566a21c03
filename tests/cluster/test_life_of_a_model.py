"""The life of a model on a real control plane: real API server, controllers and kube-scheduler, which asks our
extender; pods start as processes, engines are throttled ones on virtual nodes."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rig import Rig

EXAMPLES = Path(__file__).resolve().parents[2] / "flexinfer" / "local" / "examples"
PATH = "/apis/ai.flexinfer/v1alpha1/namespaces/life/modeldeployments"
SPEC: dict[str, Any] = {
    "backend": "llamacpp",
    "model": "hf://example/tiny-GGUF",
    "replicas": 1,
    "minReplicas": 0,
    "idleTimeoutSeconds": 600,
    "gpu": {"vendor": "auto", "count": 1, "vramEstimateMB": 4000},
    "benchmark": {
        "concurrency": [1], "minDuration": "1s", "iterations": 2, "warmupIterations": 1, "batchSize": 16,
    },
}  # fmt: skip


class System:
    """A running ``flexinfer up --bare`` against the rig."""

    def __init__(self, rig: Rig, tmp: Path) -> None:
        self.rig = rig
        self.lines: list[str] = []
        argv = [
            str(Path(sys.executable).parent / "flexinfer"), "up", "--bare", "--kubeconfig", str(rig.kubeconfig()),
            "--scheduler-loop", "false", "--fake-nodes", str(EXAMPLES / "home-lab.yaml"),
        ]  # fmt: skip
        environ = {**os.environ, "TMPDIR": str(tmp), "XDG_RUNTIME_DIR": str(tmp), "COLUMNS": "200"}
        self.process = subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        eventually(lambda: "OpenAI URL" in "\n".join(self.lines), 90, lambda: "\n".join(self.lines))
        [note] = tmp.glob("flexinfer-*/up-*.json")
        self.note: dict[str, str] = json.loads(note.read_text())

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
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        request = urllib.request.Request(
            self.note["proxy_url"] + "/v1/chat/completions", json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as err:
            with err:
                return err.code


def eventually(check: Callable[[], object], seconds: float, last: Callable[[], object]) -> None:
    """Wait for a condition of the cluster that no event of ours announces."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:.0f} s; last: {last()}")
        threading.Event().wait(0.2)


@pytest.fixture(scope="module")
def system(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    rig.call("POST", "/api/v1/namespaces", {"metadata": {"name": "life"}})
    running = System(rig, tmp_path_factory.mktemp("life"))
    try:
        rig.start_scheduler(running.note["scheduler_url"])
        yield running
    finally:
        rig.kill("kube-scheduler")
        running.stop()


def _model(rig: Rig, name: str = "m") -> dict[str, Any]:
    status, body = rig.get(f"{PATH}/{name}")
    return body if status == 200 and isinstance(body, dict) else {}


def _phase(rig: Rig) -> str:
    return str((_model(rig).get("status") or {}).get("phase", "gone"))


def _until_phase(rig: Rig, phase: str, seconds: float = 90) -> None:
    eventually(lambda: _phase(rig) == phase, seconds, lambda: json.dumps(_model(rig).get("status"), indent=1))


def _pods(rig: Rig) -> list[dict[str, Any]]:
    _, body = rig.get(
        "/api/v1/namespaces/life/pods?labelSelector=app.kubernetes.io/instance=m,app.kubernetes.io/component=engine"
    )
    return body["items"]  # type: ignore[index, no-any-return]


def _ready(pod: dict[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def test_the_whole_life_of_a_model(system: System, rig: Rig) -> None:
    body = {"apiVersion": "ai.flexinfer/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": "m"}, "spec": SPEC}
    rig.call("POST", PATH, body)
    _until_phase(rig, "Running")
    status = _model(rig)["status"]
    assert {result["deviceClass"].split("-")[0] for result in status["benchmarks"]} == {"amd", "nvidia"}
    assert status["endpoints"][0]["node"] == "rx7900xtx"
    assert status["observedGeneration"] == _model(rig)["metadata"]["generation"]
    assert system.chat("life/m") == 200
    [pod] = [p for p in _pods(rig) if p["spec"]["schedulerName"] == "flexinfer-scheduler"]
    assert any(c["type"] == "PodScheduled" and c["status"] == "True" for c in pod["status"]["conditions"])

    # idle: the timeout is shortened, nobody asks, the replicas go and the object says so
    rig.call("PATCH", f"{PATH}/m", {"spec": {"idleTimeoutSeconds": 3}})
    _until_phase(rig, "Idle")
    eventually(lambda: not _pods(rig), 60, lambda: [p["metadata"]["name"] for p in _pods(rig)])
    assert _model(rig)["spec"]["replicas"] == 1

    # wake: one request is enough, and it is answered
    rig.call("PATCH", f"{PATH}/m", {"spec": {"idleTimeoutSeconds": 600}})
    assert system.chat("life/m") == 200
    _until_phase(rig, "Running")

    # update: other arguments are another workload, measured anew, rolled out
    rig.call("PATCH", f"{PATH}/m", {"spec": {"args": ["--ctx-size", "2048"]}})

    def rolled_out() -> bool:
        return any("2048" in pod["spec"]["containers"][0].get("args", []) and _ready(pod) for pod in _pods(rig))

    eventually(rolled_out, 120, lambda: json.dumps(_model(rig).get("status"), indent=1))
    _until_phase(rig, "Running")
    assert system.chat("life/m") == 200

    # deletion: the finalizer runs, every child goes, the results stay
    rig.call("DELETE", f"{PATH}/m")
    eventually(lambda: not _model(rig), 60, lambda: _model(rig))
    eventually(lambda: not _pods(rig), 60, lambda: [p["metadata"]["name"] for p in _pods(rig)])
    for kind in ("apis/apps/v1/namespaces/life/deployments", "api/v1/namespaces/life/services"):
        _, left = rig.get(f"/{kind}")
        assert [item["metadata"]["name"] for item in left["items"]] == []  # type: ignore[index]
    _, record = rig.get("/api/v1/namespaces/flexinfer-system/configmaps/flexinfer-benchmark-results")
    assert len(record["data"]) >= 2  # type: ignore[index]
    assert system.chat("life/m") == 404


def test_a_namespace_with_a_model_can_be_deleted(system: System, rig: Rig) -> None:
    rig.call("POST", "/api/v1/namespaces", {"metadata": {"name": "doomed"}})
    body = {"apiVersion": "ai.flexinfer/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": "m"}, "spec": SPEC}
    rig.call("POST", PATH.replace("/life/", "/doomed/"), body)
    eventually(
        lambda: (rig.get(PATH.replace("/life/", "/doomed/") + "/m")[1] or {}).get("status", {}).get("phase"),  # type: ignore[union-attr]
        30,
        lambda: rig.get(PATH.replace("/life/", "/doomed/") + "/m"),
    )

    rig.call("DELETE", "/api/v1/namespaces/doomed")

    eventually(lambda: rig.get("/api/v1/namespaces/doomed")[0] == 404, 90, lambda: rig.get("/api/v1/namespaces/doomed"))
