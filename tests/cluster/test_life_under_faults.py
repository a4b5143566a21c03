"""The walk of a model on a real control plane while the manager is killed at every step, and while the API fails.

Real API server, controllers and kube-scheduler, which asks our extender; the manager reaches the API through a proxy
that tells each of its writes, and breaks what a test asks it to break.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from api_faults import ApiProxy, Call, Fault
from life import FLEET, Life, Managers, System
from rig import ADMIN, Rig

NAMESPACE = "walks"
UNTOLD = ("/events", "/leases/")  # best effort by design, and no step of a walk


@pytest.fixture(scope="module")
def system(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    rig.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    running = System(rig, tmp_path_factory.mktemp("walks"), FLEET)
    try:
        rig.start_scheduler(running.note["scheduler_url"])
        yield running
    finally:
        rig.kill("kube-scheduler")
        running.stop()


@pytest.fixture(scope="module")
def proxy(rig: Rig) -> Iterator[ApiProxy]:
    found = ApiProxy(rig.url, rig.ca).start()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def managers(system: System, proxy: ApiProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managers]:
    folder = tmp_path_factory.mktemp("managers")
    found = Managers(system, folder / "log", proxy.kubeconfig(folder / "kubeconfig", ADMIN))
    yield found
    found.kill()


@pytest.fixture
def broken(proxy: ApiProxy, managers: Managers) -> Iterator[ApiProxy]:
    """The proxy, in order before and after the test, with no manager left."""
    yield proxy
    proxy.calm()
    managers.kill()


def step_of(call: Call) -> str:
    """What a write does, the same text for the same step of a walk: verb, kind, and what it says."""
    verb, _, path = call.line.partition(" ")
    parts = path.partition("?")[0].split("/")
    kind = "/".join(part for part in parts[6 if parts[1] == "apis" else 5 :][::2])
    body: Any = call.json
    if "status" in body:
        said = f"{body['status']['phase']} {body['status']['readyReplicas']}"
    elif kind == "deployments":
        said = str(body.get("spec", {}).get("replicas", ""))
    else:
        said = ",".join(sorted(name for name, value in (body.get("data") or {}).items() if value)) or str(
            len((body.get("metadata") or {}).get("finalizers") or [])
        )
    return f"{verb} {kind} {said}"


class Killer:
    """Kills the manager after each step it has not seen yet, and starts another."""

    def __init__(self, managers: Managers) -> None:
        self._managers = managers
        self.steps: list[str] = []
        self.made: Counter[str] = Counter()

    def __call__(self, call: Call, status: int) -> None:
        if any(part in call.line for part in UNTOLD):
            return
        if call.line.startswith("POST") and status == 201:
            self.made[step_of(call) + str(call.json["metadata"]["name"])] += 1  # type: ignore[index]
        step = step_of(call)
        if status < 300 and step not in self.steps:
            self.steps.append(step)
            self._managers.kill()
            self._managers.start("--leader-elect", "false")


def test_a_manager_killed_at_every_step_of_the_walk_ends_in_the_same_state(
    system: System, managers: Managers, broken: ApiProxy
) -> None:
    killer = Killer(managers)
    broken.after = killer
    managers.start("--leader-elect", "false")

    Life(system, NAMESPACE, "killed").walk()

    assert len(killer.steps) >= 15, killer.steps
    phases = {step.split()[2] for step in killer.steps if "/status" in step}
    assert phases >= {"Running", "Idle", "Terminating"}, killer.steps  # others may pass while nobody manages
    assert set(killer.made.values()) == {1}, killer.made


def test_the_walk_survives_conflicts_throttling_expired_and_broken_watches(
    system: System, managers: Managers, broken: ApiProxy
) -> None:
    life = Life(system, NAMESPACE, "faulty")
    own = f"{life.path}/faulty"

    def touched(_call: Call) -> None:
        system.rig.call("PATCH", own, {"metadata": {"annotations": {"touched": "by somebody else"}}})

    phases: list[str] = []

    def note(call: Call, status: int) -> None:
        if status == 200 and "/status" in call.line and "modeldeployments" in call.line:
            phases.append(str(call.json["status"]["phase"]))  # type: ignore[index]

    broken.after = note
    conflict = broken.add(Fault(rf"^PATCH {own}\?", before=touched))
    exists = [broken.add(Fault(rf"^POST .*/{kind}(\?|$)", twice=True)) for kind in ("jobs", "configmaps")]
    throttled = [
        broken.add(Fault(pattern, status=429, retry_after=1, times=2))
        for pattern in (rf"^PATCH {own}/status", r"^PATCH .*/deployments/", r"^PATCH .*/services/", r"^DELETE .*/jobs/")
    ]
    gone = [broken.add(Fault(r"^GET .*/deployments\?.*watch=true", status=410))]
    gone += [broken.add(Fault(rf"^GET .*/{kind}\?.*watch=true", error=410)) for kind in ("pods", "modeldeployments")]
    late = broken.add(Fault(r"^GET .*/jobs\?.*watch=true", status=429, retry_after=1))
    managers.start("--leader-elect", "false")
    life.until(lambda: all(fault.struck for fault in (*gone, late)))

    life.create()
    life.until(lambda: "Benchmarking" in phases)
    assert broken.drop_watches()
    life.serves(1)
    life.change(replicas=2)
    life.serves(2)
    life.change(idleTimeoutSeconds=2)
    life.until_phase("Idle")
    assert broken.drop_watches()
    life.change(idleTimeoutSeconds=600, replicas=1)
    life.until(lambda: life.get()["status"]["observedGeneration"] == life.get()["metadata"]["generation"])
    life.until(lambda: not life.pods())
    assert system.chat(f"{NAMESPACE}/faulty") == 200
    life.serves(1)
    broken.drop_watches()
    life.change(image="ghcr.io/ggml-org/llama.cpp:server-b2")
    life.serves(1, ":server-b2")
    life.delete()

    assert conflict.answers == [409]
    assert [fault.answers for fault in exists] == [[409], [409]]
    assert [fault.answers for fault in throttled] == [[429, 429]] * len(throttled)
    assert [fault.answers for fault in gone] == [[410]] * len(gone)
    assert late.answers == [429]
    assert list(dict.fromkeys(phases)) == [
        "Pending", "Benchmarking", "Deploying", "Running", "Idle", "Terminating",
    ]  # fmt: skip
    assert "Running" in phases[phases.index("Idle") :]


def test_a_killed_leader_is_replaced_by_the_follower_and_nothing_is_made_twice(
    system: System, managers: Managers, broken: ApiProxy
) -> None:
    life = Life(system, NAMESPACE, "led")
    made: Counter[str] = Counter()
    killed: list[str] = []

    def kill_leader(call: Call, status: int) -> None:
        if "/deployments/led" in call.line and not killed:
            killed.append(call.line)
            leader.kill()
            leader.wait()
        if call.line.startswith("POST") and status == 201 and not any(part in call.line for part in UNTOLD):
            made[str(call.json["metadata"]["name"])] += 1  # type: ignore[index]

    lease = "/apis/coordination.k8s.io/v1/namespaces/flexinfer-system/leases/flexinfer-manager"

    def holder() -> str:
        status, body = system.rig.get(lease)
        return str(body["spec"].get("holderIdentity") or "") if status == 200 else ""  # type: ignore[index]

    old = holder()
    leader = managers.start()
    life.until(lambda: holder() not in {"", old})
    first = holder()
    managers.start()
    broken.after = kill_leader
    life.create()
    life.serves(1)

    assert killed
    assert holder() != first
    del made["flexinfer-benchmark-results"]  # the record, if this test is the first to write it
    assert len(made) == 2, "one claim, one Job"
    assert set(made.values()) == {1}
    system.rig.call("DELETE", f"{life.path}/led")
    life.until(lambda: not life.get())
