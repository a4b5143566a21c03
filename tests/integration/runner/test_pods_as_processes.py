"""Pods run as local processes and their status is what a kubelet would write."""

import asyncio
import json

import pytest

from flexinfer.contracts.kubernetes import CONFIGMAPS, LEASES, NODES, PODS, SECRETS

NS = "default"

SERVE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(sys.argv[3].encode())
    def log_message(self, *args): pass
http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""
WAIT = "import signal; signal.pause()"


async def fetch(address: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(address, port)
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    body = (await reader.read()).partition(b"\r\n\r\n")[2]
    writer.close()
    return body.decode()


async def test_a_pod_runs_to_success_with_its_log_and_message(machine):
    code = "import os; print('hello', os.environ['FROM_IMAGE']); open('/dev/termination-log', 'w').write('done')"
    await machine.pod("a", code)
    status = await machine.phase("a", "Succeeded")

    (container,) = status["containerStatuses"]
    ended = container["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (0, "Completed", "done")
    assert container["containerID"].startswith("process://")
    assert status["podIP"].startswith("127.")
    assert status["hostIP"] == "127.0.0.1"
    assert status["startTime"]
    assert await machine.log("a") == "hello yes\n"


@pytest.mark.parametrize(
    ("code", "exit_code", "signal"), [("raise SystemExit(7)", 7, None), ("import os; os.kill(os.getpid(), 9)", 137, 9)]
)
async def test_a_pod_fails_with_the_exit_code(machine, code, exit_code, signal):
    await machine.pod("a", code)
    status = await machine.phase("a", "Failed")

    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == exit_code
    assert ended.get("signal") == signal
    assert ended["reason"] == "Error"


async def test_the_log_is_the_message_of_a_failure_if_asked_for(machine):
    await machine.pod(
        "a",
        "import sys; print('it broke'); sys.exit(1)",
        container={"terminationMessagePolicy": "FallbackToLogsOnError"},
    )
    status = await machine.phase("a", "Failed")

    assert status["containerStatuses"][0]["state"]["terminated"]["message"] == "it broke\n"


async def test_variables_from_everywhere(machine):
    await machine.api.create(CONFIGMAPS, {"metadata": {"name": "cm"}, "data": {"K": "v"}} | head("ConfigMap"), NS)
    await machine.api.create(SECRETS, {"metadata": {"name": "s"}, "stringData": {"P": "secret"}} | head("Secret"), NS)
    env = [
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "P", "valueFrom": {"secretKeyRef": {"name": "s", "key": "P"}}},
        {"name": "URL", "value": "http://$(IP):1/$(K)"},
        {"name": "LISTEN", "value": "0.0.0.0:80"},
    ]
    container = {
        "env": env, "envFrom": [{"configMapRef": {"name": "cm"}}], "resources": {"limits": {"cpu": "2"}},
        "args": ["import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))", "$(APP)", "0.0.0.0"],
    }  # fmt: skip
    await machine.pod("a", container=container)
    status = await machine.phase("a", "Succeeded")

    found, argv = json.loads(await machine.log("a"))
    ip = status["podIP"]
    assert {name: found[name] for name in ("APP", "NODE", "CPU", "P", "K", "URL", "LISTEN", "HOSTNAME", "IP")} == {
        "APP": "a", "NODE": "here", "CPU": "2", "P": "secret", "K": "v", "URL": f"http://{ip}:1/v",
        "LISTEN": f"{ip}:80", "HOSTNAME": "a", "IP": ip,
    }  # fmt: skip
    assert argv == ["a", ip]


def head(kind: str) -> dict:
    return {"apiVersion": "v1", "kind": kind}


async def test_our_own_environment_stays_with_us(machine, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_PARENT", "x")
    await machine.pod("a", "import os; print('SECRET_OF_THE_PARENT' in os.environ)")
    await machine.phase("a", "Succeeded")

    assert await machine.log("a") == "False\n"


async def test_volumes_are_directories(machine, tmp_path):
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "file").write_text("from the host")
    await machine.api.create(
        CONFIGMAPS, {"metadata": {"name": "cm"}, "data": {"a.txt": "A", "b": "B"}} | head("ConfigMap"), NS
    )
    await machine.api.create(SECRETS, {"metadata": {"name": "s"}, "stringData": {"P": "secret"}} | head("Secret"), NS)
    volumes = [
        {"name": "cm", "configMap": {"name": "cm", "items": [{"key": "a.txt", "path": "deep/a.txt"}]}},
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "host", "hostPath": {"path": str(tmp_path / "host"), "type": "Directory"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "pod", "projected": {"sources": [
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"configMap": {"name": "cm"}},
        ]}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
    ]  # fmt: skip
    mounts = [{"name": volume["name"], "mountPath": f"/mnt/{volume['name']}"} for volume in volumes]
    mounts[3]["subPath"] = "below"
    files = ["cm/deep/a.txt", "s/P", "host/file", "pod/labels", "pod/b"]
    code = (
        "import pathlib, sys; [print(pathlib.Path(name).read_text()) for name in sys.argv[3:]]; "
        "[pathlib.Path(name, 'x').write_text('x') for name in sys.argv[1:3]]"
    )
    args = [code, "/mnt/scratch", "/mnt/claim", *(f"/mnt/{name}" for name in files)]
    await machine.pod("a", container={"args": args, "volumeMounts": mounts}, volumes=volumes)
    await machine.phase("a", "Succeeded")

    assert (await machine.log("a")).splitlines() == ["A", "secret", "from the host", 'app="a"', "B"]
    assert (machine.work / "claims" / NS / "c" / "x").exists()


async def test_a_missing_configmap_is_waited_for(machine):
    env = [{"name": "K", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "K"}}}]
    await machine.pod("a", "import os; print(os.environ['K'])", container={"env": env})
    waiting = await machine.status("a", lambda status: waits(status, "CreateContainerConfigError"))
    assert 'configmap "cm" not found' in waiting["containerStatuses"][0]["state"]["waiting"]["message"]

    await machine.api.create(CONFIGMAPS, {"metadata": {"name": "cm"}, "data": {"K": "late"}} | head("ConfigMap"), NS)
    await machine.phase("a", "Succeeded")
    assert await machine.log("a") == "late\n"


async def test_a_missing_volume_is_told_in_an_event(machine):
    await machine.pod("a", WAIT, volumes=[{"name": "v", "configMap": {"name": "none"}}])

    await machine.event("a", "FailedMount")
    assert (await machine.get("a"))["status"]["phase"] == "Pending"


def waits(status: dict, reason: str) -> bool:
    entries = status.get("containerStatuses") or [{}]
    return entries[0].get("state", {}).get("waiting", {}).get("reason") == reason


async def test_an_unknown_image_is_told_with_the_known_ones(machine):
    await machine.pod("a", container={"image": "vllm/vllm-openai:latest"})
    status = await machine.status("a", lambda status: waits(status, "ErrImageNeverPull"))

    message = status["containerStatuses"][0]["state"]["waiting"]["message"]
    assert "vllm/vllm-openai:latest" in message
    assert "python:3" in message
    assert status["phase"] == "Pending"


async def test_a_program_that_does_not_exist_is_a_start_error(machine):
    await machine.pod("a", container={"command": ["/no/such/program"]})
    status = await machine.phase("a", "Failed")

    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "/no/such/program" in ended["message"]


async def test_a_crashing_container_backs_off_and_restarts(machine):
    await machine.pod("a", "import sys; print('run'); sys.exit(1)", restartPolicy="Always")
    waiting = await machine.status("a", lambda status: waits(status, "CrashLoopBackOff"))
    assert waiting["phase"] == "Running"
    assert "back-off" in waiting["containerStatuses"][0]["state"]["waiting"]["message"]

    status = await machine.status("a", lambda status: status["containerStatuses"][0]["restartCount"] >= 3)
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1
    assert await machine.runner.log_source(NS, "a", "main", {"previous": "true"}) == b"run\n"


async def test_on_failure_runs_until_it_succeeds(machine, tmp_path):
    (tmp_path / "runs").mkdir()
    code = "import os, sys; os.mkdir(os.path.join(sys.argv[1], str(len(os.listdir(sys.argv[1]))))); "
    code += "sys.exit(len(os.listdir(sys.argv[1])) < 3)"
    await machine.pod("a", container={"args": [code, str(tmp_path / "runs")]}, restartPolicy="OnFailure")
    status = await machine.phase("a", "Succeeded")

    assert status["containerStatuses"][0]["restartCount"] == 2


async def test_two_pods_serve_on_the_same_port(machine):
    for name in ("a", "b"):
        container = {"args": [SERVE, "0.0.0.0", "18080", "$(WHO)"], "env": [{"name": "WHO", "value": name}]}
        probe = {"httpGet": {"path": "/", "port": 18080}, "periodSeconds": 1}
        await machine.pod(name, container={**container, "readinessProbe": probe})
    one, two = await machine.ready("a"), await machine.ready("b")

    assert one["podIP"] != two["podIP"]
    assert [await fetch(one["podIP"], 18080), await fetch(two["podIP"], 18080)] == ["a", "b"]


async def test_a_pod_on_the_host_network_has_the_host_s_address(machine):
    await machine.pod("a", container={"args": ["import sys; print(sys.argv[1])", "0.0.0.0"]}, hostNetwork=True)
    status = await machine.phase("a", "Succeeded")

    assert status["podIP"] == "127.0.0.1"
    assert await machine.log("a") == "0.0.0.0\n"


async def test_a_deadline_ends_the_pod(machine, alive):
    await machine.pod("a", WAIT, activeDeadlineSeconds=1)
    status = await machine.phase("a", "Failed")

    assert status["reason"] == "DeadlineExceeded"


async def test_logs_by_container_tail_and_previous(machine):
    await machine.pod("a", "import sys; print(1); print(2); print(3); sys.exit(1)", restartPolicy="Always")
    await machine.status("a", lambda status: status.get("containerStatuses", [{}])[0].get("restartCount", 0) >= 2)

    assert await machine.api.logs(NS, "a", "main", tail=1) in {"3\n", ""}
    previous = await machine.runner.log_source(NS, "a", "main", {"previous": "true", "tailLines": "2"})
    assert previous == b"2\n3\n"


async def test_logs_that_are_not_there_are_one_sentence(machine):
    await machine.pod("a", container={"image": "unknown"})
    await machine.status("a", lambda status: waits(status, "ErrImageNeverPull"))

    with pytest.raises(LookupError, match="waiting to start: ErrImageNeverPull"):
        await machine.runner.logs(NS, "a")
    with pytest.raises(LookupError, match="not known"):
        await machine.runner.logs(NS, "none")


async def test_the_node_is_there_and_ready(machine, eventually):
    node = await machine.api.get(NODES, "here")

    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "here"
    assert int(node["status"]["allocatable"]["cpu"]) >= 1
    assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"

    async def held() -> bool:
        leases = (await machine.api.list(LEASES, "kube-node-lease")).items
        return bool(leases) and leases[0]["spec"]["holderIdentity"] == "here"

    await eventually(held)


async def test_a_deleted_node_comes_back(machine):
    first = await machine.api.get(NODES, "here")
    await machine.api.delete(NODES, "here")
    machine.runner._node._uid = ""  # what the next heartbeat would find out

    await machine.runner._node.ensure()
    assert (await machine.api.get(NODES, "here"))["metadata"]["uid"] != first["metadata"]["uid"]


async def test_pods_of_other_nodes_are_left_alone(machine):
    await machine.pod("a", WAIT, nodeName="elsewhere")
    await machine.pod("b", "pass")
    await machine.phase("b", "Succeeded")

    assert "containerStatuses" not in (await machine.get("a"))["status"]


async def test_stopping_the_runner_leaves_no_process_and_the_pods_as_they_are(machine, alive):
    await machine.pod("a", "import os; print(os.getpid()); " + WAIT, restartPolicy="Always")
    await machine.ready("a")
    pid = int(await machine.line("a"))

    await machine.runner.stop(grace=2.0)

    assert not alive(pid)
    assert (await machine.api.get(PODS, "a", NS))["status"]["phase"] == "Running"
    assert not [node for node in (await machine.api.list(NODES)).items if node["metadata"]["name"] == "here"]
