"""Restarts, phases and conditions by the kubelet's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.local.runner.adoption import adopt
from flexinfer.local.runner.records import (
    Backoff,
    Ended,
    Record,
    Running,
    Waiting,
    records_of,
    wants_restart,
)
from flexinfer.local.runner.status import Course, Verdict, pod_status

NOW = 1_800_000_000.0
COURSE = Course(ip="127.1.0.1", host_ip="127.0.0.1", started_at=NOW)


def pod(inits: list[dict] | None = None, mains: tuple[str, ...] = ("c",), policy: str = "Always") -> dict:
    return {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {
            "restartPolicy": policy,
            "initContainers": inits or [],
            "containers": [{"name": name, "image": "i"} for name in mains],
        },
    }


def ended(code: int) -> Ended:
    return Ended(code, 0, "Completed" if code == 0 else "Error", "", NOW, NOW + 5, "process://1-0")


def run(record: Record) -> None:
    record.state, record.started, record.ready = Running(NOW), True, True


def conditions(status: dict) -> dict[str, str]:
    return {entry["type"]: entry["status"] for entry in status["conditions"]}


@pytest.mark.parametrize(
    ("role", "policy", "code", "again"),
    [
        ("main", "Always", 0, True),
        ("main", "Always", 1, True),
        ("main", "OnFailure", 0, False),
        ("main", "OnFailure", 1, True),
        ("main", "Never", 1, False),
        ("init", "Always", 0, False),
        ("init", "Always", 1, True),
        ("init", "Never", 1, False),
        ("sidecar", "Never", 0, True),
    ],
)
def test_who_runs_again(role, policy, code, again):
    assert wants_restart(role, policy, code) is again


def test_waits_double_up_to_the_cap_and_are_forgotten():
    backoff = Backoff()

    assert [backoff.after(1.0) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert backoff.after(601.0) == 0
    assert backoff.after(1.0) == 10


def test_a_new_pod_is_pending():
    status = pod_status(pod(), records_of(pod()), COURSE, NOW)

    assert status["phase"] == "Pending"
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert conditions(status) == {
        "PodReadyToStartContainers": "True", "Initialized": "True", "Ready": "False", "ContainersReady": "False",
        "PodScheduled": "True",
    }  # fmt: skip


def test_a_running_pod_is_ready_when_its_containers_are():
    spec = pod(mains=("a", "b"))
    records = records_of(spec)
    for record in records:
        run(record)
    records[1].ready = False

    unready = pod_status(spec, records, COURSE, NOW)
    records[1].ready = True
    ready = pod_status(spec, records, COURSE, NOW)

    assert (unready["phase"], conditions(unready)["Ready"]) == ("Running", "False")
    assert "[b]" in next(c for c in unready["conditions"] if c["type"] == "Ready")["message"]
    assert (ready["phase"], conditions(ready)["Ready"]) == ("Running", "True")


def test_a_pod_waits_for_its_init_containers():
    spec = pod(inits=[{"name": "one", "image": "i"}, {"name": "side", "image": "i", "restartPolicy": "Always"}])
    records = records_of(spec)
    assert [record.role for record in records] == ["init", "sidecar", "main"]
    run(records[0])
    first = pod_status(spec, records, COURSE, NOW)
    records[0].state = ended(0)
    second = pod_status(spec, records, COURSE, NOW)
    run(records[1])
    run(records[2])
    third = pod_status(spec, records, COURSE, NOW)

    assert [status["phase"] for status in (first, second, third)] == ["Pending", "Pending", "Running"]
    assert [conditions(status)["Initialized"] for status in (first, second, third)] == ["False", "False", "True"]
    assert first["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"
    assert third["initContainerStatuses"][0]["ready"] is True


def test_a_crashing_pod_keeps_running():
    spec = pod()
    records = records_of(spec)
    records[0].last = ended(1)
    records[0].restarts = 3
    records[0].state = Waiting("CrashLoopBackOff", "back-off 40s")

    status = pod_status(spec, records, COURSE, NOW)

    assert status["phase"] == "Running"
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1
    assert status["containerStatuses"][0]["restartCount"] == 3


@pytest.mark.parametrize(
    ("codes", "phase", "reason"), [((0, 0), "Succeeded", "PodCompleted"), ((0, 1), "Failed", "PodFailed")]
)
def test_a_pod_that_is_over(codes, phase, reason):
    spec = pod(mains=("a", "b"), policy="Never")
    records = records_of(spec)
    for record, code in zip(records, codes, strict=True):
        record.state = ended(code)

    status = pod_status(spec, records, Course("", "127.0.0.1", NOW, over=True), NOW)

    assert status["phase"] == phase
    assert next(c for c in status["conditions"] if c["type"] == "Ready")["reason"] == reason


def test_a_sidecar_s_end_does_not_fail_the_pod():
    spec = pod(inits=[{"name": "side", "image": "i", "restartPolicy": "Always"}], policy="Never")
    records = records_of(spec)
    records[0].state, records[0].last = ended(143), ended(143)
    records[1].state = ended(0)

    assert pod_status(spec, records, Course("", "", NOW, over=True), NOW)["phase"] == "Succeeded"


def test_a_deadline_fails_the_pod_with_its_reason():
    course = Course("", "", NOW, over=True, verdict=Verdict("DeadlineExceeded", "m"))
    status = pod_status(pod(), records_of(pod()), course, NOW)

    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "DeadlineExceeded", "m")


def test_conditions_keep_their_time_until_they_change():
    spec = pod()
    records = records_of(spec)
    first = pod_status(spec, records, COURSE, NOW)
    second = pod_status(spec, records, COURSE, NOW + 60, first)
    run(records[0])
    third = pod_status(spec, records, COURSE, NOW + 120, second)

    times = [
        {entry["type"]: entry["lastTransitionTime"] for entry in status["conditions"]}
        for status in (first, second, third)
    ]
    assert times[0] == times[1]
    assert times[2]["Ready"] != times[1]["Ready"]
    assert times[2]["PodScheduled"] == times[1]["PodScheduled"]


def test_a_readiness_gate_holds_the_pod_back():
    spec = pod()
    spec["spec"]["readinessGates"] = [{"conditionType": "x/y"}]
    records = records_of(spec)
    run(records[0])

    closed = pod_status(spec, records, COURSE, NOW)
    spec["status"] = {"conditions": [{"type": "x/y", "status": "True"}]}
    opened = pod_status(spec, records, COURSE, NOW)

    assert (conditions(closed)["Ready"], conditions(closed)["ContainersReady"]) == ("False", "True")
    assert conditions(opened)["Ready"] == "True"


states = st.one_of(st.just(Waiting("ContainerCreating")), st.just(Running(NOW)), st.integers(0, 255).map(ended))


@given(
    st.lists(st.tuples(states, st.booleans()), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from(["Always", "OnFailure", "Never"]),
)
def test_any_records_give_a_consistent_status(given_states, over, policy):
    spec = pod(mains=tuple(f"c{number}" for number in range(len(given_states))), policy=policy)
    records = records_of(spec)
    for record, (state, ready) in zip(records, given_states, strict=True):
        record.state, record.ready = state, ready and isinstance(state, Running)
        record.started = record.ready

    status = pod_status(spec, records, Course("127.1.0.1", "127.0.0.1", NOW, over=over), NOW)

    assert status == pod_status(spec, records, Course("127.1.0.1", "127.0.0.1", NOW, over=over), NOW)
    assert status["phase"] in {"Pending", "Running", "Succeeded", "Failed"}
    assert (status["phase"] in {"Succeeded", "Failed"}) == over
    assert (conditions(status)["Ready"] == "True") == (not over and all(record.ready for record in records))


# --- a pod that an earlier runner started ------------------------------------------------------------------------


def seen(state: dict, restarts: int = 2) -> dict:
    return {
        "containerStatuses": [{"name": "c", "state": state, "restartCount": restarts, "containerID": "process://9-2"}]
    }


RUNNING = {"running": {"startedAt": "2027-01-15T08:00:00Z"}}


def test_a_running_container_counts_as_killed_and_runs_again():
    spec = pod() | {"status": seen(RUNNING)}
    records = records_of(spec)

    assert adopt(spec, records, NOW)
    assert records[0].restarts == 3
    assert records[0].last is not None
    assert (records[0].last.exit_code, records[0].last.reason) == (137, "ContainerStatusUnknown")


def test_a_pod_that_never_restarts_fails_by_the_loss():
    spec = pod(policy="Never") | {"status": seen(RUNNING)}
    records = records_of(spec)

    assert not adopt(spec, records, NOW)
    assert pod_status(spec, records, Course("", "", NOW, over=True), NOW)["phase"] == "Failed"


def test_a_container_that_had_ended_stays_ended():
    spec = pod(policy="OnFailure") | {
        "status": seen({"terminated": {"exitCode": 0, "finishedAt": "2027-01-15T08:00:00Z"}})
    }
    records = records_of(spec)

    assert adopt(spec, records, NOW)
    assert records[0].succeeded
    assert records[0].restarts == 2


def test_a_new_pod_has_nothing_to_adopt():
    records = records_of(pod())

    assert adopt(pod(), records, NOW)
    assert records[0].restarts == 0
