"""Golden manifests of every engine and vendor, shown to a real API server: it takes each, strictly, and keeps
nothing of it (server-side apply, dry run)."""

import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from rig import ADMIN, Rig

FILES = sorted((Path(__file__).parents[1] / "golden" / "engines").glob("*.yaml"))
PATHS = {
    "Deployment": "/apis/apps/v1/namespaces/default/deployments/",
    "Job": "/apis/batch/v1/namespaces/default/jobs/",
    "Service": "/api/v1/namespaces/default/services/",
    "PersistentVolumeClaim": "/api/v1/namespaces/default/persistentvolumeclaims/",
    "Pod": "/api/v1/namespaces/default/pods/",
}
QUERY = "?dryRun=All&fieldManager=flexinfer-manager&fieldValidation=Strict&force=true"


def answer(rig: Rig, body: dict[str, Any]) -> str:
    """Empty, or what the API server says against it."""
    request = urllib.request.Request(
        rig.url + PATHS[body["kind"]] + body["metadata"]["name"] + QUERY,
        data=yaml.safe_dump(body).encode(),
        headers={"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/apply-patch+yaml"},
        method="PATCH",
    )
    context = ssl.create_default_context(cafile=str(rig.ca))
    try:
        with urllib.request.urlopen(request, context=context, timeout=60):
            return ""
    except urllib.error.HTTPError as err:
        return err.read().decode()


def pod_of(body: dict[str, Any]) -> dict[str, Any]:
    """The pod its controller would make: what a workload's template may say but no pod."""
    template = body["spec"]["template"]
    spec = {key: value for key, value in template["spec"].items() if key != "runtimeClassName"}  # no such class here
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": body["metadata"]["name"], "namespace": "default"},
        "spec": spec,
    }


def test_the_api_server_takes_every_golden_manifest(rig: Rig) -> None:
    refused: dict[str, str] = {}
    count = 0
    for file in FILES:
        for body in yaml.safe_load_all(file.read_text()):
            pods = [pod_of(body)] if body["kind"] in {"Deployment", "Job"} else []
            for one in [body, *pods]:
                count += 1
                said = answer(rig, one)
                if said:
                    refused[f"{file.name} {one['kind']}"] = said

    assert refused == {}
    assert count >= len(FILES) * 5


def test_the_check_itself_would_notice(rig: Rig) -> None:
    body = next(iter(yaml.safe_load_all(FILES[0].read_text())))
    body["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}

    assert "livenesProbe" in answer(rig, body)


@pytest.fixture(scope="module", autouse=True)
def service_account(rig: Rig) -> None:
    """Pods are only taken where the namespace has its default account, which the controllers make."""
    rig._wait("/api/v1/namespaces/default/serviceaccounts/default")
