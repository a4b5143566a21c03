"""Control loops on a clock that is turned by hand."""

import pytest

from flexinfer.local.kubeapi.deletion import DeleteOptions
from flexinfer.local.kubeapi.errors import ApiError, not_allowed


def template(app="d", image="i:1", **spec):
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": image}], **spec}}


def deployment(replicas=1, **spec):
    body = {"replicas": replicas, "selector": {"matchLabels": {"app": "d"}}, "template": template(), **spec}
    return {"metadata": {"name": "d"}, "spec": body}


def condition(obj, kind):
    return next((entry for entry in obj["status"].get("conditions", ()) if entry["type"] == kind), {})


def new_image(image):
    return {"spec": {"template": template(image=image)}}


def test_a_rolling_update_replaces_pods_one_by_one(cluster):
    limits = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    cluster.create("apps/v1", "Deployment", deployment(3, strategy=limits))
    cluster.settle()
    for pod in cluster.pods(app="d"):
        cluster.run(pod)
    cluster.patch("apps/v1", "Deployment", "d", new_image("i:2"))
    for _ in range(3):
        pods = cluster.pods(app="d")
        assert len(pods) <= 4
        assert sum(pod["status"]["phase"] == "Running" for pod in pods) >= 3
        cluster.run(next(pod for pod in pods if pod["status"]["phase"] == "Pending"))
    images = [pod["spec"]["containers"][0]["image"] for pod in cluster.pods(app="d")]
    assert images == ["i:2"] * 3
    status = cluster.get("apps/v1", "Deployment", "d")["status"]
    assert (status["updatedReplicas"], status["availableReplicas"]) == (3, 3)


def test_going_back_reuses_the_old_replica_set(cluster):
    cluster.create("apps/v1", "Deployment", deployment(0))
    cluster.settle()
    cluster.patch("apps/v1", "Deployment", "d", new_image("i:2"))
    cluster.patch("apps/v1", "Deployment", "d", new_image("i:1"))
    sets = cluster.list("replicasets.apps")
    assert len(sets) == 2
    revisions = {
        item["spec"]["template"]["spec"]["containers"][0]["image"]: item["metadata"]["annotations"][
            "deployment.kubernetes.io/revision"
        ]
        for item in sets
    }
    assert revisions == {"i:1": "3", "i:2": "2"}


def test_history_is_limited(cluster):
    cluster.create("apps/v1", "Deployment", deployment(0, revisionHistoryLimit=1))
    for number in range(2, 6):
        cluster.settle()
        cluster.patch("apps/v1", "Deployment", "d", new_image(f"i:{number}"))
    assert len(cluster.list("replicasets.apps")) == 2


def test_a_paused_deployment_does_not_roll(cluster):
    cluster.create("apps/v1", "Deployment", deployment(1))
    cluster.settle()
    cluster.patch("apps/v1", "Deployment", "d", {"spec": {"paused": True, **new_image("i:2")["spec"]}})
    assert len(cluster.list("replicasets.apps")) == 1
    cluster.patch("apps/v1", "Deployment", "d", {"spec": {"paused": False}})
    assert len(cluster.list("replicasets.apps")) == 2


def test_a_rollout_that_does_not_move_times_out(cluster):
    cluster.create("apps/v1", "Deployment", deployment(1, progressDeadlineSeconds=60))
    cluster.settle()
    assert condition(cluster.get("apps/v1", "Deployment", "d"), "Progressing")["status"] == "True"
    cluster.pass_time(62)
    found = condition(cluster.get("apps/v1", "Deployment", "d"), "Progressing")
    assert (found["status"], found["reason"]) == ("False", "ProgressDeadlineExceeded")


def test_readiness_must_last(cluster):
    cluster.create("apps/v1", "Deployment", deployment(1, minReadySeconds=30))
    cluster.settle()
    cluster.run(cluster.pods(app="d")[0])
    assert "availableReplicas" not in cluster.get("apps/v1", "Deployment", "d")["status"]
    cluster.pass_time(31)
    assert cluster.get("apps/v1", "Deployment", "d")["status"]["availableReplicas"] == 1


def test_a_refused_pod_is_a_condition_and_an_event_and_no_storm(cluster):
    refused = []

    def admit(kind, obj):
        if kind.bucket != "pods" or not refused:
            return []
        refused.append(obj)
        return [not_allowed("spec", "exceeded quota")]

    refused.append(None)
    cluster.registry.admission.append(admit)
    cluster.create("apps/v1", "Deployment", deployment(2))
    cluster.settle()
    found = condition(cluster.get("apps/v1", "Deployment", "d"), "ReplicaFailure")
    assert (found["status"], found["reason"]) == ("True", "FailedCreate")
    assert "exceeded quota" in found["message"]
    assert len(refused) < 5
    assert any(event["reason"] == "FailedCreate" for event in cluster.list("events"))
    refused.clear()
    cluster.pass_time(5)
    assert len(cluster.pods(app="d")) == 2
    assert condition(cluster.get("apps/v1", "Deployment", "d"), "ReplicaFailure") == {}


def test_orphans_are_adopted(cluster):
    cluster.create("v1", "Pod", {**template(), "metadata": {"name": "stray", "labels": {"app": "r"}}})
    body = {"selector": {"matchLabels": {"app": "r"}}, "template": template("r"), "replicas": 1}
    cluster.create("apps/v1", "ReplicaSet", {"metadata": {"name": "r"}, "spec": body})
    cluster.settle()
    assert [pod["metadata"]["name"] for pod in cluster.pods(app="r")] == ["stray"]
    owner = cluster.get("v1", "Pod", "stray")["metadata"]["ownerReferences"][0]
    assert owner["name"] == "r"


def test_surplus_pods_that_do_not_serve_go_first(cluster):
    cluster.create("apps/v1", "Deployment", deployment(3))
    cluster.settle()
    serving = cluster.pods(app="d")[1]
    cluster.run(serving)
    cluster.patch("apps/v1", "Deployment", "d", {"spec": {"replicas": 1}})
    assert [pod["metadata"]["name"] for pod in cluster.pods(app="d")] == [serving["metadata"]["name"]]


def job(**spec):
    return {"metadata": {"name": "j"}, "spec": {"template": template("j", restartPolicy="Never"), **spec}}


def finish(cluster, phase):
    pod = next(pod for pod in cluster.pods(app="j") if pod["status"]["phase"] in ("Pending", "Running"))
    cluster.run(pod, phase)


def test_failed_pods_are_replaced_after_a_growing_pause(cluster):
    cluster.create("batch/v1", "Job", job(backoffLimit=2))
    cluster.settle()
    waits = []
    for _ in range(2):
        finish(cluster, "Failed")
        waited = 0
        while not [pod for pod in cluster.pods(app="j") if pod["status"]["phase"] == "Pending"]:
            cluster.pass_time(1)
            waited += 1
            assert waited < 60
        waits.append(waited)
    assert waits[0] == 10
    assert waits[1] > waits[0]
    finish(cluster, "Failed")
    failed = cluster.get("batch/v1", "Job", "j")
    assert condition(failed, "Failed")["reason"] == "BackoffLimitExceeded"
    assert failed["status"]["failed"] == 3


def test_a_pod_that_vanishes_counts_as_failed(cluster):
    cluster.create("batch/v1", "Job", job(backoffLimit=0))
    cluster.settle()
    cluster.delete("v1", "Pod", cluster.pods(app="j")[0]["metadata"]["name"])
    assert condition(cluster.get("batch/v1", "Job", "j"), "Failed")["status"] == "True"


def test_a_success_that_is_cleaned_up_still_counts(cluster):
    cluster.create("batch/v1", "Job", job(completions=2))
    cluster.settle()
    finish(cluster, "Succeeded")
    done = next(pod for pod in cluster.pods(app="j") if pod["status"]["phase"] == "Succeeded")
    cluster.delete("v1", "Pod", done["metadata"]["name"])
    finish(cluster, "Succeeded")
    assert condition(cluster.get("batch/v1", "Job", "j"), "Complete")["status"] == "True"


def test_a_job_is_declared_failed_only_when_its_pods_are_gone(cluster):
    cluster.create("batch/v1", "Job", job(activeDeadlineSeconds=30))
    cluster.settle()
    name = cluster.pods(app="j")[0]["metadata"]["name"]
    kind = cluster.kind("v1", "Pod")
    cluster.registry.edit(
        kind, cluster.registry.get(kind, "default", name), lambda pod: pod["spec"].update(nodeName="n")
    )
    cluster.pass_time(31)
    ending = cluster.get("batch/v1", "Job", "j")
    assert condition(ending, "FailureTarget")["reason"] == "DeadlineExceeded"
    assert condition(ending, "Failed") == {}
    assert ending["status"]["terminating"] == 1
    cluster.delete("v1", "Pod", name, DeleteOptions(grace=0))
    assert condition(cluster.get("batch/v1", "Job", "j"), "Failed")["reason"] == "DeadlineExceeded"


def test_a_finished_job_lives_for_its_time(cluster):
    cluster.create("batch/v1", "Job", job(ttlSecondsAfterFinished=60))
    cluster.settle()
    finish(cluster, "Succeeded")
    cluster.pass_time(59)
    assert cluster.list("jobs.batch")
    cluster.pass_time(2)
    assert cluster.list("jobs.batch") == []
    assert cluster.pods(app="j") == []


def test_restarts_in_place_count_against_the_limit(cluster):
    spec = job(backoffLimit=1)
    spec["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    cluster.create("batch/v1", "Job", spec)
    cluster.settle()
    name = cluster.pods(app="j")[0]["metadata"]["name"]
    status = {"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 2}]}
    cluster.patch("v1", "Pod", name, {"status": status}, "status")
    assert condition(cluster.get("batch/v1", "Job", "j"), "FailureTarget")["reason"] == "BackoffLimitExceeded"


def test_events_expire_after_an_hour(cluster):
    cluster.create("v1", "Event", {"metadata": {"name": "e"}, "involvedObject": {"name": "x"}, "reason": "R"})
    cluster.pass_time(3000)
    assert [event["metadata"]["name"] for event in cluster.list("events")] == ["e"]
    cluster.pass_time(700)
    assert cluster.list("events") == []


def test_events_that_repeat_are_counted(cluster):
    cluster.create("apps/v1", "Deployment", deployment(0))
    for replicas in (1, 0, 1, 0):
        cluster.patch("apps/v1", "Deployment", "d", {"spec": {"replicas": replicas}})
    scaled = [event for event in cluster.list("events") if event["reason"] == "ScalingReplicaSet"]
    assert sorted(event["count"] for event in scaled) == [2, 2]


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_a_tree_of_owners_is_collected(cluster, propagation):
    cluster.create("apps/v1", "Deployment", deployment(2))
    cluster.settle()
    assert len(cluster.list("pods")) == 2
    cluster.delete("apps/v1", "Deployment", "d", DeleteOptions(propagation=propagation))
    assert cluster.list("deployments.apps") == []
    assert cluster.list("replicasets.apps") == []
    assert cluster.list("pods") == []


@pytest.mark.parametrize("value", ["x", "%", "1.5%", "-1%"])
def test_limits_of_a_rollout_are_numbers_or_percentages(cluster, value):
    with pytest.raises(ApiError, match="valid percent string"):
        cluster.create("apps/v1", "Deployment", deployment(strategy={"rollingUpdate": {"maxSurge": value}}))


def test_an_object_that_cannot_be_handled_stops_no_other(cluster, caplog):
    cluster.create("apps/v1", "Deployment", deployment(1))
    kind = cluster.kind("apps/v1", "Deployment")
    broken = {**kind.head(), "metadata": {"name": "broken", "namespace": "default", "uid": "b", "generation": 1}}
    cluster.store.put(kind.bucket, ("default", "broken"), {**broken, "spec": {"template": 5, "selector": 5}})
    cluster.settle()
    assert len(cluster.pods(app="d")) == 1
    assert "cannot handle default/broken" in caplog.text
