"""Probes, init containers, sidecars, deletion, and a runner that dies."""

import asyncio
import os
import signal
import sys
import time

import pytest

from flexinfer.contracts.kubernetes import PODS

NS = "default"
WAIT = "import signal; signal.pause()"

# Answers 200 once a file of the name in argv[3] exists, 503 before.
SERVE = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists(sys.argv[3]) else 503); self.end_headers()
    def log_message(self, *args): pass
http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""


def served(switch: object, port: int = 18081) -> dict:
    return {"args": [SERVE, "0.0.0.0", str(port), str(switch)], "ports": [{"name": "http", "containerPort": port}]}


def http(**numbers: int) -> dict:
    return {"httpGet": {"path": "/x", "port": "http"}, "periodSeconds": 1, **numbers}


async def test_readiness_follows_the_probe(machine, tmp_path):
    switch = tmp_path / "on"
    await machine.pod("a", container={**served(switch), "readinessProbe": http(failureThreshold=1)})
    running = await machine.status("a", lambda status: status.get("phase") == "Running")
    assert not running["containerStatuses"][0]["ready"]
    await machine.event("a", "Unhealthy")

    switch.touch()
    await machine.ready("a")
    switch.unlink()
    status = await machine.status("a", lambda status: not status["containerStatuses"][0]["ready"])
    assert status["phase"] == "Running"
    assert status["containerStatuses"][0]["restartCount"] == 0


async def test_a_failing_liveness_probe_restarts_the_container(machine, tmp_path):
    switch = tmp_path / "on"
    switch.touch()
    liveness = http(failureThreshold=1, terminationGracePeriodSeconds=1)
    container = {**served(switch), "startupProbe": http(failureThreshold=30), "livenessProbe": liveness}
    await machine.pod("a", container=container, restartPolicy="Always")
    status = await machine.ready("a")
    assert status["containerStatuses"][0]["restartCount"] == 0

    switch.unlink()
    status = await machine.status("a", lambda status: status["containerStatuses"][0]["restartCount"] >= 1)

    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 143
    assert "Killing" in await machine.reasons("a")


async def test_nothing_else_is_probed_before_the_startup_probe_passed(machine, tmp_path):
    switch, alive = tmp_path / "on", tmp_path / "alive"
    check = f"import os, sys; sys.exit(not os.path.exists({str(alive)!r}))"
    container = {
        **served(switch),
        "startupProbe": http(failureThreshold=30),
        "livenessProbe": {
            "exec": {"command": [sys.executable, "-c", check]},
            "periodSeconds": 1,
            "failureThreshold": 1,
        },
    }
    await machine.pod("a", container=container, restartPolicy="Always")
    await machine.event("a", "Unhealthy")
    assert (await machine.get("a"))["status"]["containerStatuses"][0]["restartCount"] == 0

    alive.touch()
    switch.touch()
    status = await machine.ready("a")
    assert status["containerStatuses"][0]["started"]
    assert status["containerStatuses"][0]["restartCount"] == 0


async def test_a_startup_probe_that_never_passes_ends_the_container(machine, tmp_path):
    probe = http(failureThreshold=1, terminationGracePeriodSeconds=1)
    await machine.pod("a", container={**served(tmp_path / "never"), "startupProbe": probe})

    status = await machine.phase("a", "Failed")
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


async def test_a_tcp_probe(machine, tmp_path):
    container = {**served(tmp_path / "x"), "readinessProbe": {"tcpSocket": {"port": 18081}, "periodSeconds": 1}}
    await machine.pod("a", container=container)

    await machine.ready("a")


async def test_init_containers_run_one_after_another(machine):
    volumes = [{"name": "v", "emptyDir": {}}]
    mounts = [{"name": "v", "mountPath": "/v"}]
    code = "import sys; open('/v/log', 'a').write(sys.argv[1])"
    inits = [
        {"name": f"init-{number}", "image": "python:3", "args": [code, str(number)], "volumeMounts": mounts}
        for number in (1, 2)
    ]
    main = {"args": ["print(open('/v/log').read())"], "volumeMounts": mounts}
    await machine.pod("a", container=main, initContainers=inits, volumes=volumes)
    status = await machine.phase("a", "Succeeded")

    assert await machine.log("a") == "12\n"
    assert [entry["ready"] for entry in status["initContainerStatuses"]] == [True, True]


async def test_a_failing_init_container_fails_a_pod_that_never_restarts(machine):
    inits = [{"name": "init", "image": "python:3", "args": ["raise SystemExit(3)"]}]
    await machine.pod("a", "print('never')", initContainers=inits)
    status = await machine.phase("a", "Failed")

    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


async def test_a_sidecar_serves_the_main_container_and_ends_after_it(machine, tmp_path, alive):
    switch = tmp_path / "on"
    sidecar = {
        "name": "engine", "image": "python:3", "restartPolicy": "Always", **served(switch),
        "startupProbe": http(failureThreshold=30),
    }  # fmt: skip
    code = "import sys, urllib.request; print(urllib.request.urlopen(f'http://{sys.argv[1]}:18081/').status)"
    env = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    await machine.pod("a", container={"args": [code, "$(IP)"], "env": env}, initContainers=[sidecar])
    await machine.status(
        "a", lambda status: (status.get("initContainerStatuses") or [{}])[0].get("state", {}).get("running")
    )
    assert (await machine.get("a"))["status"]["containerStatuses"][0]["state"] == {
        "waiting": {"reason": "PodInitializing"}
    }
    switch.touch()
    status = await machine.phase("a", "Succeeded")

    assert await machine.log("a", "main") == "200\n"
    (engine,) = status["initContainerStatuses"]
    (main,) = status["containerStatuses"]
    assert engine["state"]["terminated"]["exitCode"] == 143
    assert engine["state"]["terminated"]["finishedAt"] >= main["state"]["terminated"]["finishedAt"]


async def test_a_crashed_sidecar_is_restarted_in_a_pod_that_never_restarts(machine):
    sidecar = {"name": "side", "image": "python:3", "restartPolicy": "Always", "args": ["raise SystemExit(1)"]}
    await machine.pod("a", WAIT, initContainers=[sidecar])

    await machine.status(
        "a", lambda status: (status.get("initContainerStatuses") or [{}])[0].get("restartCount", 0) >= 2
    )
    assert (await machine.get("a"))["status"]["phase"] == "Running"


# --- deletion ----------------------------------------------------------------------------------------------------


async def test_deletion_asks_first_and_removes_the_pod_when_the_process_is_gone(machine, alive, tmp_path):
    mark = tmp_path / "asked"
    code = f"""
import os, signal, sys
def stop(*_):
    open({str(mark)!r}, 'w').close()
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print(os.getpid(), flush=True)
while True: signal.pause()
"""
    await machine.pod("a", code)
    pid = int(await machine.line("a"))
    folders = list((machine.work / "pods").iterdir())
    await machine.api.delete(PODS, "a", NS)
    await machine.gone("a")

    assert mark.exists()
    assert not alive(pid)
    assert len(folders) == 1
    assert list((machine.work / "pods").iterdir()) == []


async def test_a_deaf_process_is_killed_after_the_grace_period(machine, alive):
    code = "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True); "
    code += "signal.pause()"
    await machine.pod("a", code, terminationGracePeriodSeconds=1)
    pid = int(await machine.line("a"))
    began = time.monotonic()
    await machine.api.delete(PODS, "a", NS)
    await machine.gone("a")

    assert not alive(pid)
    assert time.monotonic() - began >= 1.0


async def test_pre_stop_runs_before_the_signal(machine, tmp_path):
    mark = tmp_path / "order"
    note = f"open({str(mark)!r}, 'a').write"
    code = f"""
import signal, sys
def stop(*_):
    {note}('signal')
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print('up', flush=True)
while True: signal.pause()
"""
    hook = {"preStop": {"exec": {"command": [sys.executable, "-c", f"{note}('hook,')"]}}}
    await machine.pod("a", container={"args": [code], "lifecycle": hook})
    await machine.line("a")
    await machine.api.delete(PODS, "a", NS)
    await machine.gone("a")

    assert mark.read_text() == "hook,signal"


async def test_a_pod_removed_by_force_is_killed(machine, alive, until):
    await machine.pod("a", "import os; print(os.getpid(), flush=True); " + WAIT)
    pid = int(await machine.line("a"))
    await machine.api.delete(PODS, "a", NS, grace_seconds=0)

    await until(lambda: not alive(pid))
    await until(lambda: list((machine.work / "pods").iterdir()) == [])


async def test_a_pod_deleted_while_it_waits_goes_at_once(machine):
    await machine.pod("a", container={"image": "unknown"})
    await machine.status("a", lambda status: status.get("containerStatuses"))
    await machine.api.delete(PODS, "a", NS)

    await machine.gone("a")


async def test_a_pod_of_the_same_name_is_another_pod(machine):
    await machine.pod("a", "print('first'); " + WAIT)
    first = await machine.get("a")
    await machine.line("a")
    await machine.api.delete(PODS, "a", NS)
    await machine.gone("a")
    await machine.pod("a", "print('second')")
    await machine.phase("a", "Succeeded")

    assert (await machine.get("a"))["metadata"]["uid"] != first["metadata"]["uid"]
    assert await machine.log("a") == "second\n"


async def test_what_a_process_leaves_running_ends_with_its_container(machine, alive, until):
    code = """
import subprocess, sys
child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])
print(child.pid, flush=True)
"""
    await machine.pod("a", code)
    await machine.phase("a", "Succeeded")
    child = int(await machine.line("a"))

    await until(lambda: not alive(child))


# --- the API goes away -------------------------------------------------------------------------------------------


async def test_pods_run_on_and_are_told_when_the_api_returns(machine, tmp_path):
    switch = tmp_path / "on"
    await machine.pod("a", f"import os, time\nwhile not os.path.exists({str(switch)!r}): time.sleep(0.02)")
    await machine.status("a", lambda status: status.get("phase") == "Running")
    await machine.server.stop()
    switch.touch()
    worker = next(iter(machine.runner._workers.values()))
    await asyncio.wait_for(worker.finished.wait(), 10)
    await machine.server.start()

    await machine.phase("a", "Succeeded")


# --- the runner dies ---------------------------------------------------------------------------------------------

RUNNER = """
import asyncio, sys
from pathlib import Path
from flexinfer.adapters.kube.client import KubeClient
from flexinfer.local.processes import Reaper
from flexinfer.local.runner import ProcessRunner

async def main():
    reaper = await Reaper.start()
    api = await KubeClient.connect(Path(sys.argv[1]))
    runner = ProcessRunner(api, "other", {"python": (sys.executable, "-c")}, Path(sys.argv[2]), reaper=reaper)
    await runner.start()
    print(reaper._process.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""

# In its own group, but not killed by the kernel when the runner dies.
PARENT = """
import subprocess, sys, pathlib
child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])
with open(sys.argv[1], 'a') as file: file.write(f'{child.pid}\\n')
child.wait()
"""


@pytest.fixture
def start_runner(machine, tmp_path):
    async def start() -> tuple[asyncio.subprocess.Process, int]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", RUNNER, str(tmp_path / "kubeconfig"), str(tmp_path / "other"),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout
        return process, int(await asyncio.wait_for(process.stdout.readline(), 20))

    return start


async def test_a_killed_runner_leaves_nothing_and_the_next_one_starts_again(
    machine, start_runner, tmp_path, until, alive
):
    first, reaper = await start_runner()
    pids = tmp_path / "pids"
    container = {"image": "python", "args": [PARENT, str(pids)]}
    await machine.pod("a", container=container, nodeName="other", restartPolicy="Always")
    await machine.pod("b", container={"image": "python", "args": [WAIT]}, nodeName="other")
    before = await machine.ready("a")
    await machine.ready("b")
    await until(lambda: pids.exists() and pids.read_text().endswith("\n"))
    (child,) = map(int, pids.read_text().split())

    # Both nets are cut: the reaper first, then the runner, as a kill of everything at once would.
    os.kill(reaper, signal.SIGKILL)
    first.kill()
    await first.wait()
    assert alive(child)
    second, _ = await start_runner()

    assert not alive(child)
    status = await machine.status("a", lambda status: status["containerStatuses"][0]["restartCount"] == 1)
    assert status["podIP"] == before["podIP"]
    assert status["containerStatuses"][0]["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert (await machine.phase("b", "Failed"))["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    await until(lambda: pids.read_text().count("\n") == 2)
    again = int(pids.read_text().split()[1])

    second.kill()
    await second.wait()
    await until(lambda: not alive(again))
