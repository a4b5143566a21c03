"""The wire format of admission reviews, over the ASGI application and over the executable's own HTTPS port."""

import asyncio
import base64
import contextlib
import json
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import trustme

from flexinfer.adapters.web.admission import MAX_BODY, AdmissionApp

SPEC = {"backend": "vllm", "model": "hf://Qwen/Qwen3-8B"}


def review(spec: Any, *, old: Any = None, operation: str = "CREATE") -> bytes:
    def obj(spec: Any) -> Any:
        return {
            "apiVersion": "ai.flexinfer/v1alpha1",
            "kind": "ModelDeployment",
            "metadata": {"name": "m"},
            "spec": spec,
        }

    request = {
        "uid": "u-1", "kind": {"group": "ai.flexinfer", "version": "v1alpha1", "kind": "ModelDeployment"},
        "operation": operation, "userInfo": {"username": "kubernetes-admin"}, "dryRun": False,
        "object": None if operation == "DELETE" else obj(spec), "oldObject": obj(old) if old else None,
    }  # fmt: skip
    return json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}).encode()


async def ask(path: str, body: bytes) -> tuple[int, dict[str, Any]]:
    sent: list[Any] = []
    parts = [{"type": "http.request", "body": body}]

    async def receive() -> Any:
        return parts.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    await AdmissionApp(lambda: (True, {}))({"type": "http", "path": path}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def test_a_good_model_is_allowed_under_the_uid_that_was_asked() -> None:
    status, answer = await ask("/validate", review(SPEC))

    assert status == 200
    assert (answer["kind"], answer["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    assert answer["response"] == {"uid": "u-1", "allowed": True}


async def test_a_bad_one_is_denied_with_a_sentence() -> None:
    _, answer = await ask("/validate", review({**SPEC, "backend": "vlm"}))

    assert answer["response"]["allowed"] is False
    assert answer["response"]["status"]["code"] == 422
    assert answer["response"]["status"]["message"].startswith("spec.backend: 'vlm' is not supported")


async def test_warnings_travel_with_an_allowed_one() -> None:
    _, answer = await ask("/validate", review({**SPEC, "gpuGroupRef": "a"}))

    assert answer["response"]["allowed"] is True
    assert "spec.gpuGroupRef" in answer["response"]["warnings"][0]


async def test_an_update_that_changes_no_spec_passes() -> None:
    bad = {**SPEC, "backend": "vlm"}
    _, answer = await ask("/validate", review(bad, old=bad, operation="UPDATE"))

    assert answer["response"]["allowed"] is True


@pytest.mark.parametrize("path", ["/validate", "/mutate"])
async def test_a_deletion_has_no_object_and_passes(path: str) -> None:
    _, answer = await ask(path, review(None, old=SPEC, operation="DELETE"))

    assert answer["response"] == {"uid": "u-1", "allowed": True}


async def test_defaults_come_as_a_json_patch_and_only_once() -> None:
    _, answer = await ask("/mutate", review(SPEC))
    [operation] = json.loads(base64.b64decode(answer["response"]["patch"]))

    assert answer["response"]["patchType"] == "JSONPatch"
    assert (operation["op"], operation["path"], operation["value"]["replicas"]) == ("replace", "/spec", 1)
    _, again = await ask("/mutate", review(operation["value"]))
    assert again["response"] == {"uid": "u-1", "allowed": True}


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"request": {}}', b'{"request": {"uid": 1}}', b"\xff", b'{"a":"\xff"}', b"[" * 100_000],
)
async def test_what_is_no_review_is_refused_and_said(body: bytes) -> None:
    status, answer = await ask("/validate", body)

    assert status == 400
    assert "not an AdmissionReview" in answer["error"]


async def test_a_review_larger_than_any_object_is_refused_unread() -> None:
    status, answer = await ask("/validate", b" " * (MAX_BODY + 1))

    assert (status, answer["error"]) == (413, f"larger than {MAX_BODY} bytes")


async def test_other_paths_are_not_found() -> None:
    status, _ = await ask("/else", b"")

    assert status == 404


async def test_the_executable_serves_it_over_https(tmp_path: Path) -> None:
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    leaf.private_key_pem.write_to_path(tmp_path / "tls.key")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    argv = [
        str(Path(sys.executable).parent / "flexinfer-webhook"), "--host", "127.0.0.1", "--port", "0",
        "--metrics-port", "0", "--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"),
        "--log-format", "json",
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(*argv, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            while not (
                found := re.search(
                    r"webhook on port (\d+), ops on port (\d+)", (await process.stderr.readline()).decode()
                )
            ):
                pass
        https, plain = found.groups()

        def post() -> Any:
            request = urllib.request.Request(
                f"https://127.0.0.1:{https}/validate",
                review({**SPEC, "backend": "vlm"}),
                {"Content-Type": "application/json"},
            )
            context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
            with urllib.request.urlopen(request, timeout=60, context=context) as answer:
                return json.load(answer)

        def metrics() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{plain}/metrics", timeout=60) as answer:
                return str(answer.read().decode())

        assert (await asyncio.to_thread(post))["response"]["allowed"] is False
        assert 'flexinfer_webhook_requests_total{path="/validate",result="denied"} 1.0' in await asyncio.to_thread(
            metrics
        )
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_without_a_certificate_it_says_what_to_give(capfd: pytest.CaptureFixture[str]) -> None:
    program = str(Path(sys.executable).parent / "flexinfer-webhook")
    process = await asyncio.create_subprocess_exec(program)

    assert await asyncio.wait_for(process.wait(), 60) == 2
    assert "give --tls-cert and --tls-key" in capfd.readouterr().err
