"""The control loops behind Deployments, ReplicaSets, Jobs and Services. Pods here run nowhere: tests play the node."""

import pytest


def template(name, **spec):
    return {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "example/image:1", "ports": [{"containerPort": 80}]}], **spec},
    }


def deployment(name, replicas=2, **spec):
    body = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name), **spec}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": body}


@pytest.fixture
def world(http, core):
    """Plays scheduler and kubelet for the pods of one app."""

    class World:
        async def pods(self, name, count):
            def enough(answer):
                return len(living(answer)) == count

            def living(answer):
                return [
                    item
                    for item in answer.body["items"]
                    if item["metadata"].get("labels", {}).get("app") == name
                    and "deletionTimestamp" not in item["metadata"]
                    and item["status"]["phase"] in ("Pending", "Running")
                ]

            return living(await http.eventually(core("pods"), enough))

        async def run(self, pod, phase="Running", ready=True, ip="10.0.0.7"):
            name = pod["metadata"]["name"]
            status = {"phase": phase, "podIP": ip, "podIPs": [{"ip": ip}]}
            if phase == "Running":
                status["conditions"] = [
                    {"type": kind, "status": "True" if ready else "False"} for kind in ("Ready", "ContainersReady")
                ]
            answer = await http.patch(core("pods", name, "status"), {"status": status}, "strategic")
            assert answer.status == 200, answer.raw

        async def bind(self, pod, node):
            name = pod["metadata"]["name"]
            body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
            assert (await http.post(core("pods", name, "binding"), body)).status == 201

    return World()


@pytest.fixture
async def node(http, namespace):
    name = f"node-{namespace}"
    await http.made("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    yield name
    await http.delete(f"/api/v1/nodes/{name}")


def conditions(obj):
    return {entry["type"]: (entry["status"], entry.get("reason")) for entry in obj["status"].get("conditions", ())}


async def test_a_deployment_makes_a_replica_set_and_pods(http, apps, world):
    made = await http.made(apps("deployments"), deployment("d"))
    assert made["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": "25%", "maxUnavailable": "25%"}
    pods = await world.pods("d", 2)
    owner = pods[0]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["controller"]) == ("ReplicaSet", True)
    assert pods[0]["metadata"]["labels"]["pod-template-hash"]
    assert pods[0]["metadata"]["generateName"].startswith("d-")
    sets = (await http.get(apps("replicasets"))).body["items"]
    assert sets[0]["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    assert sets[0]["metadata"]["ownerReferences"][0]["name"] == "d"
    for pod in pods:
        await world.run(pod)
    done = await http.eventually(
        apps("deployments", "d"), lambda a: a.body.get("status", {}).get("availableReplicas") == 2
    )
    done = await http.eventually(
        apps("deployments", "d"), lambda a: conditions(a.body).get("Progressing") == ("True", "NewReplicaSetAvailable")
    )
    status = done.body["status"]
    assert conditions(done.body)["Available"] == ("True", "MinimumReplicasAvailable")
    assert status["observedGeneration"] == 1
    assert (status["replicas"], status["updatedReplicas"], status["readyReplicas"]) == (2, 2, 2)


async def test_scaling_makes_and_removes_pods(http, apps, world):
    await http.made(apps("deployments"), deployment("d", replicas=1))
    await world.pods("d", 1)
    answer = await http.patch(apps("deployments", "d", "scale"), {"spec": {"replicas": 3}})
    assert answer.status == 200
    assert answer.body["status"]["selector"] == "app=d"
    await world.pods("d", 3)
    await http.patch(apps("deployments", "d"), {"spec": {"replicas": 0}})
    await world.pods("d", 0)


async def test_a_lost_pod_is_replaced(http, core, apps, world):
    await http.made(apps("deployments"), deployment("d", replicas=1))
    first = (await world.pods("d", 1))[0]["metadata"]["name"]
    await http.delete(core("pods", first))
    await http.gone(core("pods", first))
    assert (await world.pods("d", 1))[0]["metadata"]["name"] != first


async def test_a_new_template_rolls_out_within_its_limits(http, apps, world):
    limits = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    await http.made(apps("deployments"), deployment("d", replicas=1, strategy=limits))
    old = (await world.pods("d", 1))[0]
    await world.run(old)
    await http.eventually(apps("deployments", "d"), lambda a: a.body.get("status", {}).get("availableReplicas") == 1)
    image = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "example/image:2"}]}}}}
    await http.patch(apps("deployments", "d"), image, "strategic")
    pods = await world.pods("d", 2)
    new = next(pod for pod in pods if pod["metadata"]["name"] != old["metadata"]["name"])
    assert new["spec"]["containers"][0]["image"] == "example/image:2"
    await world.run(new)
    left = await world.pods("d", 1)
    assert left[0]["metadata"]["name"] == new["metadata"]["name"]
    sets = (await http.get(apps("replicasets"))).body["items"]
    assert sorted(item["spec"]["replicas"] for item in sets) == [0, 1]


async def test_recreate_stops_the_old_before_the_new(http, core, apps, world):
    await http.made(apps("deployments"), deployment("d", replicas=1, strategy={"type": "Recreate"}))
    old = (await world.pods("d", 1))[0]["metadata"]["name"]
    await http.post(core("pods", old, "binding"), {"metadata": {"name": old}, "target": {"kind": "Node", "name": "n1"}})
    image = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "example/image:2"}]}}}}
    await http.patch(apps("deployments", "d"), image, "strategic")
    await http.eventually(core("pods", old), lambda a: "deletionTimestamp" in a.body["metadata"])
    assert len((await http.get(core("pods"))).body["items"]) == 1
    await http.delete(core("pods", old), {"gracePeriodSeconds": 0})
    assert (await world.pods("d", 1))[0]["metadata"]["name"] != old


async def test_deleting_a_deployment_removes_its_tree(http, apps, world):
    await http.made(apps("deployments"), deployment("d"))
    await world.pods("d", 2)
    await http.delete(apps("deployments", "d"), {"propagationPolicy": "Background"})
    await world.pods("d", 0)
    await http.eventually(apps("replicasets"), lambda a: a.body["items"] == [])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"selector": {"matchLabels": {"app": "other"}}}, "spec.template.metadata.labels"),
        (
            {"template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": []}}},
            "spec.template.spec.containers",
        ),
        ({"replicas": -1}, "spec.replicas"),
    ],
)
async def test_wrong_deployments_are_refused(http, apps, change, field):
    answer = await http.post(apps("deployments"), deployment("d", **change))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert field in [cause["field"] for cause in answer.body["details"]["causes"]]


async def test_a_selector_cannot_change(http, apps):
    await http.made(apps("deployments"), deployment("d", replicas=0))
    change = {
        "spec": {
            "selector": {"matchLabels": {"app": "e"}},
            "template": {"metadata": {"labels": {"app": "e"}}},
        }
    }
    answer = await http.patch(apps("deployments", "d"), change)
    assert answer.status == 422
    assert "field is immutable" in answer.message


def job(name, restart="Never", **spec):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template(name, restartPolicy=restart), **spec},
    }


@pytest.fixture
def jobs(namespace):
    return lambda *parts: f"/apis/batch/v1/namespaces/{namespace}/" + "/".join(("jobs", *parts))


async def test_a_job_runs_to_completion(http, jobs, world):
    made = await http.made(jobs(), job("j"))
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert (made["spec"]["completions"], made["spec"]["parallelism"], made["spec"]["backoffLimit"]) == (1, 1, 6)
    pod = (await world.pods("j", 1))[0]
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"
    assert pod["metadata"]["labels"]["job-name"] == "j"
    assert pod["metadata"]["labels"]["controller-uid"] == uid
    running = await http.eventually(jobs("j"), lambda a: a.body["status"].get("active") == 1)
    assert running.body["status"]["startTime"]
    await world.run(pod, "Succeeded")
    done = await http.eventually(jobs("j"), lambda a: "Complete" in conditions(a.body))
    assert conditions(done.body)["Complete"] == ("True", "CompletionsReached")
    assert done.body["status"]["succeeded"] == 1
    assert done.body["status"]["completionTime"]
    assert "active" not in done.body["status"]


async def test_a_job_fails_past_its_backoff_limit(http, jobs, world):
    await http.made(jobs(), job("j", backoffLimit=0))
    pod = (await world.pods("j", 1))[0]
    await world.run(pod, "Failed")
    done = await http.eventually(jobs("j"), lambda a: "Failed" in conditions(a.body))
    assert conditions(done.body)["Failed"] == ("True", "BackoffLimitExceeded")
    assert done.body["status"]["failed"] == 1


async def test_a_job_ends_at_its_deadline(http, jobs, world):
    await http.made(jobs(), job("j", activeDeadlineSeconds=1))
    await world.pods("j", 1)
    done = await http.eventually(jobs("j"), lambda a: "Failed" in conditions(a.body))
    assert conditions(done.body)["Failed"] == ("True", "DeadlineExceeded")
    await world.pods("j", 0)


async def test_a_finished_job_is_removed_after_its_time(http, jobs, world):
    await http.made(jobs(), job("j", ttlSecondsAfterFinished=0))
    await world.run((await world.pods("j", 1))[0], "Succeeded")
    await http.gone(jobs("j"))
    await world.pods("j", 0)


async def test_a_job_runs_several_at_a_time(http, jobs, world):
    await http.made(jobs(), job("j", completions=3, parallelism=2))
    for pod in await world.pods("j", 2):
        await world.run(pod, "Succeeded")
    await world.run((await world.pods("j", 1))[0], "Succeeded")
    done = await http.eventually(jobs("j"), lambda a: "Complete" in conditions(a.body))
    assert done.body["status"]["succeeded"] == 3


async def test_a_suspended_job_has_no_pods(http, jobs, world):
    await http.made(jobs(), job("j", suspend=True))
    await http.eventually(jobs("j"), lambda a: conditions(a.body).get("Suspended") == ("True", "JobSuspended"))
    await http.patch(jobs("j"), {"spec": {"suspend": False}})
    await world.pods("j", 1)


async def test_the_template_of_a_job_cannot_change(http, jobs):
    await http.made(jobs(), job("j"))
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "example/image:2"}]}}}}
    answer = await http.patch(jobs("j"), patch, "strategic")
    assert answer.status == 422
    assert "field is immutable" in answer.message


async def test_a_job_must_not_restart_always(http, jobs):
    answer = await http.post(jobs(), job("j", restart="Always"))
    assert answer.status == 422
    assert answer.body["details"]["causes"][0]["field"] == "spec.template.spec.restartPolicy"


async def test_a_service_lists_its_ready_pods(http, core, apps, world, node, namespace):
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"selector": {"app": "d"}, "ports": [{"port": 8000, "targetPort": 80, "name": "http"}]},
    }
    made = await http.made(core("services"), service)
    assert made["spec"]["type"] == "ClusterIP"
    assert made["spec"]["clusterIP"].startswith("10.96.")
    assert made["spec"]["ports"] == [{"name": "http", "protocol": "TCP", "port": 8000, "targetPort": 80}]
    await http.made(apps("deployments"), deployment("d", replicas=1))
    pod = (await world.pods("d", 1))[0]
    await world.bind(pod, node)
    await world.run(pod, ready=False)
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"

    def ready(answer):
        slices = answer.body["items"]
        return [
            (endpoint["addresses"], endpoint["conditions"]["ready"])
            for item in slices
            for endpoint in item.get("endpoints") or ()
        ]

    await http.eventually(path, lambda a: ready(a) == [(["10.0.0.7"], False)])
    await world.run(pod)
    found = await http.eventually(path, lambda a: ready(a) == [(["10.0.0.7"], True)])
    item = found.body["items"][0]
    assert item["metadata"]["labels"]["kubernetes.io/service-name"] == "s"
    assert item["ports"] == [{"name": "http", "port": 80, "protocol": "TCP"}]
    assert item["endpoints"][0]["targetRef"]["name"] == pod["metadata"]["name"]
    await http.delete(core("services", "s"))
    await http.eventually(path, lambda a: a.body["items"] == [])
