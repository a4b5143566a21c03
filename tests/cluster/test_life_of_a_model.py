"""The life of a model on a real control plane: real API server, controllers and kube-scheduler, which asks our
extender; pods start as processes, engines are throttled ones on virtual nodes."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from life import System, eventually
from rig import Rig

HOME_LAB = Path(__file__).resolve().parents[2] / "flexinfer" / "local" / "examples" / "home-lab.yaml"
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


@pytest.fixture(scope="module")
def system(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    rig.call("POST", "/api/v1/namespaces", {"metadata": {"name": "life"}})
    running = System(rig, tmp_path_factory.mktemp("life"), HOME_LAB)
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


TROUBLES: dict[str, tuple[dict[str, Any], str, str]] = {
    "crowded": ({}, "QuotaExceeded", "exceeded quota: none"),
    "imageless": ({"image": "registry.invalid/nothing:1"}, "ImagePullFailed", "check spec.image"),
    "greedy": ({"gpu": {"vendor": "nvidia", "count": 64}}, "NoMatchingHardware", "gpu.count is 64"),
    "foreign": ({"backend": "mlc-llm"}, "UnknownBackend", "spec.backend"),
}


def test_what_keeps_a_model_from_running_is_a_condition_and_an_event(system: System, rig: Rig) -> None:
    place = PATH.replace("/life/", "/troubled/")
    rig.call("POST", "/api/v1/namespaces", {"metadata": {"name": "troubled"}})
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/pods": "0"}}}
    rig.call("POST", "/api/v1/namespaces/troubled/resourcequotas", quota)
    for name, (more, _, _) in TROUBLES.items():
        spec = {**SPEC, "gpu": {"vendor": "cpu"}, "benchmark": {"enabled": False}, **more}
        body = {"apiVersion": "ai.flexinfer/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": name}}
        rig.call("POST", place, {**body, "spec": spec})
        if name == "crowded":
            eventually(lambda: _reason(rig, "crowded") == "QuotaExceeded", 120, lambda: rig.get(f"{place}/crowded"))
            rig.call("DELETE", "/api/v1/namespaces/troubled/resourcequotas/none")

    for name, (_, reason, text) in TROUBLES.items():
        eventually(partial(_told, rig, name, reason), 120, partial(_reasons, rig, name))
        assert text in _reasons(rig, name)[reason]
    # the quota is gone: controllers try again by themselves, ever more slowly
    eventually(lambda: _reason(rig, "crowded") == "Serving", 180, lambda: rig.get(f"{place}/crowded"))
    for name in TROUBLES:
        rig.call("DELETE", f"{place}/{name}")
    eventually(lambda: not rig.get(place)[1]["items"], 120, lambda: rig.get(place))  # type: ignore[index]


def _told(rig: Rig, name: str, reason: str) -> bool:
    return reason in _reasons(rig, name)


def _reason(rig: Rig, name: str) -> str:
    """Of the condition Available."""
    body: Any = rig.get(f"{PATH.replace('/life/', '/troubled/')}/{name}")[1]
    found = (body.get("status") or {}).get("conditions") or []
    return next((str(c["reason"]) for c in found if c["type"] == "Available"), "")


def _reasons(rig: Rig, name: str) -> dict[str, str]:
    """What the Events about one model said: reason → text."""
    body: Any = rig.get("/apis/events.k8s.io/v1/namespaces/troubled/events")[1]
    return {e["reason"]: e["note"] for e in body["items"] if e["regarding"]["name"] == name}


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
