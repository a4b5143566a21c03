"""Every usable device class is measured once, whoever asks, and never at the price of serving."""

import copy
from typing import Any

import pytest

from flexinfer.contracts.events import BenchFailed, ModelEndpoint, NodeStatus
from flexinfer.contracts.kubernetes import JOBS
from flexinfer.contracts.termination import encode_outcome
from flexinfer.core.effects import Create, Delete
from flexinfer.core.lifecycle.benchmarks import BUSY_SECONDS, IDLE_SECONDS, RESULT_GRACE
from flexinfer.core.lifecycle.claims import RETRY_SECONDS

GPU = {"gpu": {"vendor": "nvidia", "count": 1, "vramEstimateMB": 8000}}


def jobs(sim: Any) -> list[str]:
    return sorted(a[2] for a in sim.objects if a[0] == "jobs")


def claims(sim: Any) -> list[Any]:
    found = [o for a, o in sorted(sim.objects.items()) if a[0] == "configmaps"]
    return [o["data"] for o in found if o["metadata"]["labels"]["app"] == "flexinfer-benchmark-claims"]


def alias(sim: Any) -> ModelEndpoint | None:
    return next((e.data for k, e in sim.bus.items() if "bench-" in k and k.endswith("endpoint")), None)


def test_each_class_gets_its_own_job_pinned_by_affinity(sim: Any, gpu: Any) -> None:
    sim.node("a", gpu())
    sim.node("b", gpu())
    sim.node("c", gpu("NVIDIA L4", memory_mib=23034))
    sim.apply(**GPU)
    sim.settle()

    nodes = []
    for name in jobs(sim):
        spec = sim.objects[("jobs", "default", name)]["spec"]["template"]["spec"]
        assert "nodeName" not in spec
        term = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        nodes.append(term["nodeSelectorTerms"][0]["matchExpressions"][0]["values"])
    assert sorted(nodes) == [["a", "b"], ["c"]]
    assert sim.status()["phase"] == "Benchmarking"


def test_the_engine_is_a_native_sidecar_and_the_bench_is_told_everything(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.settle()

    body = sim.objects[("jobs", "default", jobs(sim)[0])]
    spec = body["spec"]["template"]["spec"]
    assert (body["spec"]["activeDeadlineSeconds"], spec["schedulerName"]) == (600, "flexinfer-scheduler")
    assert body["metadata"]["ownerReferences"][0]["uid"] == sim.model()["metadata"]["uid"]
    engine = spec["initContainers"][0]
    assert (engine["restartPolicy"], "startupProbe" in engine, "readinessProbe" in engine) == ("Always", True, True)
    assert spec["containers"][0]["command"] == ["flexinfer-bench"]


def test_the_claim_comes_first_and_names_holder_and_job(one_node: Any) -> None:
    sim = one_node
    key = sim.apply()
    sim.settle()

    order = [e.resource.plural for e in sim.log if isinstance(e, Create)]
    assert order == ["configmaps", "jobs"]
    data = claims(sim)[0]
    assert data["holder"] == "/".join(key)
    assert data["jobUid"] == sim.objects[("jobs", "default", jobs(sim)[0])]["metadata"]["uid"]


def test_the_alias_lives_exactly_as_long_as_the_measurement(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.settle()
    assert alias(sim) is None

    sim.run_pod(sim.pods(bench=True)[0])
    sim.settle()
    found = alias(sim)
    assert found is not None
    assert (found.hidden, found.model, found.served_model) == (True, jobs(sim)[0], "m")
    assert found.endpoints[0].url.endswith(":8080")

    sim.tell(sim.result())
    sim.settle()
    assert alias(sim) is None


def test_a_result_by_the_bus_is_recorded_and_gives_the_claim_back(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.measure()

    assert claims(sim) == []
    record = sim.objects[("configmaps", "flexinfer-system", "flexinfer-benchmark-results")]
    assert record["metadata"]["labels"]["app"] == "flexinfer-benchmarks"
    assert '"tokensPerSecond":50.0' in next(iter(record["data"].values()))
    assert ("BenchmarkCompleted", "50.0 tokens/s on cpu-test-cpu-2t") in sim.notes()


def test_a_result_in_the_termination_message_is_enough(one_node: Any) -> None:
    sim = one_node
    sim.bus_up = False
    sim.apply()
    sim.settle()
    address = sim.pods(bench=True)[0]
    sim.run_pod(address)
    ended = {"exitCode": 0, "message": encode_outcome(sim.result(42.0)).decode()}
    bench = {"name": "bench", "ready": False, "state": {"terminated": ended}}
    sim.set_pod(address, phase="Succeeded", containerStatuses=[bench])
    sim.finish_job()
    sim.settle()

    assert sim.status()["benchmarks"][0]["tokensPerSecond"] == 42.0


def test_results_come_back_to_a_wiped_bus(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.run()
    before = {k: e.data for k, e in sim.bus.items() if k.startswith("bench.")}
    for key in list(sim.bus):
        del sim.bus[key]
    sim.snapshot()
    sim.settle()

    assert {k: e.data for k, e in sim.bus.items() if k.startswith("bench.")} == before
    assert sim.endpoint() is not None
    assert sim.phase_event() is not None


def test_two_models_with_one_identity_are_measured_once(one_node: Any) -> None:
    sim = one_node
    sim.apply("m")
    sim.apply("twin")
    sim.settle()

    assert len(jobs(sim)) == 1
    assert "is measured for default/m" in sim.condition("BenchmarkComplete", "twin")["message"]
    sim.measure()
    assert sim.status("twin")["benchmarks"][0]["tokensPerSecond"] == 50.0
    assert len(jobs(sim)) == 1


def test_the_twin_takes_over_when_the_holder_vanishes(one_node: Any) -> None:
    sim = one_node
    sim.apply("m")
    sim.apply("twin")
    sim.settle()
    claim = next(a for a, o in sim.objects.items() if o.get("data", {}).get("holder", "").endswith("/m"))
    kept = copy.deepcopy(sim.objects[claim])
    sim.delete(("modeldeployments", "default", "m"))
    sim.settle().pass_time(5)
    sim.settle()

    assert claims(sim)[0]["holder"] == "ModelDeployment/default/twin"
    owner = sim.objects[("jobs", "default", jobs(sim)[0])]["metadata"]["ownerReferences"][0]
    assert owner["name"] == "twin"
    assert kept["data"]["holder"] == "ModelDeployment/default/m"


def test_a_claim_of_a_model_nobody_knows_is_taken_over(one_node: Any, new_sim: Any) -> None:
    other = new_sim()
    other.node()
    other.apply("lost")
    other.settle()
    sim = one_node
    address, claim = next((a, o) for a, o in other.objects.items() if "holder" in o.get("data", {}))
    sim.store(address, {"kind": "ConfigMap", "metadata": {**claim["metadata"]}, "data": dict(claim["data"])})
    sim.apply("m")
    sim.measure()

    assert sim.status()["benchmarks"][0]["tokensPerSecond"] == 50.0


def test_a_failed_job_lets_the_model_deploy_with_unknown_speed_and_is_tried_again(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.settle()
    key = sim.objects[("jobs", "default", jobs(sim)[0])]["metadata"]["labels"]["flexinfer.ai/bench-key"]
    sim.tell(BenchFailed(key=key, namespace="default", model="m", reason="Http", message="HTTP 500", remedy="See logs"))
    sim.finish_job(failed="BackoffLimitExceeded")
    sim.settle()

    assert sim.condition("BenchmarkComplete")["reason"] == "BenchmarkFailed"
    assert "HTTP 500. See logs" in sim.condition("BenchmarkComplete")["message"]
    assert jobs(sim) == []
    sim.run()
    assert (sim.status()["phase"], sim.status()["tokensPerSecond"]) == ("Running", "")

    sim.pass_time(RETRY_SECONDS + IDLE_SECONDS + 1)
    assert len(jobs(sim)) == 1
    assert claims(sim)[0]["attempts"] == "1"


def test_the_wait_between_attempts_grows(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.settle()
    waits = []
    for _ in range(3):
        sim.finish_job(failed="BackoffLimitExceeded")
        sim.settle()
        began = sim.now
        while not jobs(sim):
            sim.pass_time(10)
        waits.append(sim.now - began)

    assert waits == [60, 240, 960]


def test_a_deleted_job_counts_as_an_attempt_and_comes_back(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.settle()
    sim.delete(("jobs", "default", jobs(sim)[0]))
    sim.settle()

    assert "its Job was deleted" in sim.condition("BenchmarkComplete")["message"]
    sim.pass_time(RETRY_SECONDS + 1)
    assert len(jobs(sim)) == 1


def test_a_job_that_completes_without_a_result_has_failed(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.settle()
    sim.finish_job()
    sim.settle()
    assert sim.condition("BenchmarkComplete")["reason"] == "Measuring"

    sim.pass_time(RESULT_GRACE + 1)
    assert "completed without a result" in sim.condition("BenchmarkComplete")["message"]


def test_the_gate_opens_in_time_and_not_anew_after_a_restart(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.settle()
    sim.pass_time(200)
    sim.restart()
    sim.pass_time(99)
    assert sim.status()["phase"] == "Benchmarking"
    sim.pass_time(2)
    assert sim.status()["phase"] == "Deploying"


def test_a_gate_of_its_own(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark={"gateTimeout": "10s"})
    sim.settle()
    sim.pass_time(11)
    assert sim.status()["phase"] == "Deploying"


def test_no_free_device_means_deploy_first_and_measure_the_replica_while_idle(sim: Any, gpu: Any) -> None:
    sim.node("n1", gpu())
    sim.apply(**GPU, benchmark={"gateTimeout": "10s"})
    sim.settle()
    sim.set_pod(sim.pods(bench=True)[0], conditions=[{"type": "PodScheduled", "status": "False"}])
    sim.settle()
    assert "waits for a free device" in sim.condition("BenchmarkComplete")["message"]
    sim.pass_time(11)
    sim.run_pod(sim.pods()[0])
    sim.settle()
    assert sim.status()["phase"] == "Running"

    sim.pass_time(BUSY_SECONDS + 1)
    assert jobs(sim) == []
    for _ in range(15):
        sim.load(outstanding=1)
        sim.pass_time(RETRY_SECONDS / 15)
    assert jobs(sim) == []
    assert "until its running replica is idle" in sim.condition("BenchmarkComplete")["message"]

    sim.load(outstanding=0)
    sim.pass_time(3 * IDLE_SECONDS)
    spec = sim.objects[("jobs", "default", jobs(sim)[0])]["spec"]["template"]["spec"]
    assert "initContainers" not in spec
    assert "affinity" not in spec
    found = alias(sim)
    assert found is not None
    assert found.endpoints[0].pod == sim.pods()[0][2]
    sim.measure(33.0)
    assert sim.status()["endpoints"][0]["tokensPerSecond"] == 33.0


def test_a_new_class_on_the_bus_is_measured_while_the_model_serves(sim: Any, gpu: Any) -> None:
    sim.node("n1", gpu())
    sim.apply(**GPU)
    sim.run()
    sim.node("n2", gpu("NVIDIA L4", memory_mib=23034))
    sim.settle()

    assert sim.status()["phase"] == "Running"
    assert len([a for a in jobs(sim) if not sim.objects[("jobs", "default", a)].get("status")]) == 1
    sim.run()
    assert [b["deviceClass"] for b in sim.status()["benchmarks"]] == [
        "nvidia-geforce-rtx-4090-sm-89-24g-x1",
        "nvidia-l4-sm-89-22g-x1",
    ]


def test_nodes_that_drain_or_are_offline_are_not_measured(sim: Any, gpu: Any) -> None:
    sim.node("n1", gpu())
    sim.node("n2", gpu("NVIDIA L4", memory_mib=23034))
    sim.tell(NodeStatus(node="n2", state="draining"))
    sim.apply(**GPU)
    sim.settle()

    assert len(jobs(sim)) == 1


def test_a_changed_spec_drops_the_measurement_of_the_old_one(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.settle()
    before = jobs(sim)
    sim.apply(args=["--threads", "1"])
    sim.settle()

    assert len(jobs(sim)) == 1
    assert jobs(sim) != before
    assert any(isinstance(e, Delete) and e.resource == JOBS for e in sim.log)
    assert len(claims(sim)) == 1


def test_a_new_version_is_measured_before_it_replaces_the_old_one(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.run()
    sim.apply(args=["--threads", "1"])
    sim.settle()
    deployment = sim.objects[("deployments", "default", "m")]
    assert "--threads" not in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert sim.status()["phase"] == "Running"

    sim.measure(55.0, jobs(sim)[-1] if len(jobs(sim)) == 1 else "")
    deployment = sim.objects[("deployments", "default", "m")]
    assert "--threads" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]


def test_the_vendor_is_the_one_measured_fastest_and_stays(sim: Any, gpu: Any) -> None:
    sim.node("n1", gpu())
    sim.node("n2", gpu("AMD Instinct MI210", vendor="AMD", arch="gfx90a", memory_mib=65536, driver="6.2"))
    sim.apply(gpu={"vendor": "auto", "count": 1})
    sim.settle()
    for name in jobs(sim):
        amd = "rocm" in str(sim.objects[("jobs", "default", name)])
        sim.measure(80.0 if amd else 60.0, name)
    deployment = sim.objects[("deployments", "default", "m")]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["amd.com/gpu"] == "1"
    assert container["image"].endswith(":server-rocm")

    sim.node("n3", gpu("NVIDIA H100", memory_mib=81559, arch="sm_90"))
    sim.settle()
    sim.measure(500.0, next(a for a in jobs(sim) if not sim.objects[("jobs", "default", a)].get("status")))
    assert "amd.com/gpu" in str(sim.objects[("deployments", "default", "m")])


def test_benchmarks_can_be_off(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark={"enabled": False})
    sim.settle()

    assert jobs(sim) == []
    assert sim.status()["phase"] == "Deploying"
    assert (sim.condition("BenchmarkComplete")["status"], sim.condition("BenchmarkComplete")["reason"]) == (
        "Unknown",
        "Disabled",
    )


def test_results_of_virtual_nodes_are_marked(sim: Any, gpu: Any) -> None:
    sim.node("n1", gpu(), virtual=True)
    sim.apply(**GPU)
    sim.measure()

    record = sim.objects[("configmaps", "flexinfer-system", "flexinfer-benchmark-results")]
    assert '"virtual":true' in next(iter(record["data"].values()))


@pytest.mark.parametrize("text", ["", "not json", '{"type":"ai.flexinfer.bench.completed.v1","data":{}}', "\x00"])
def test_garbage_in_a_termination_message_changes_nothing(one_node: Any, text: str) -> None:
    sim = one_node
    sim.apply()
    sim.settle()
    address = sim.pods(bench=True)[0]
    sim.run_pod(address)
    ended = {"exitCode": 1, "message": text}
    sim.set_pod(address, containerStatuses=[{"name": "bench", "ready": False, "state": {"terminated": ended}}])
    sim.settle()

    assert sim.status()["phase"] == "Benchmarking"


def _with_image(sim: Any, address: Any, digest: str) -> None:
    pod = copy.deepcopy(sim.objects[address])
    kind = "initContainerStatuses" if "initContainerStatuses" in pod["status"] else "containerStatuses"
    pod["status"][kind][0]["imageID"] = f"docker.io/x@sha256:{digest}"
    sim.store(address, pod)


def test_a_tag_that_moved_is_measured_again_beside_serving(one_node: Any) -> None:
    sim = one_node
    sim.apply(idleTimeoutSeconds=0)
    sim.settle()
    bench = sim.pods(bench=True)[0]
    sim.run_pod(bench)
    _with_image(sim, bench, "aaa")
    container = sim.objects[("jobs", "default", jobs(sim)[0])]["spec"]["template"]["spec"]["initContainers"][0]
    sim.tell(sim.result(50.0, image=container["image"]))
    sim.finish_job()
    sim.run()
    assert next(iter(sim.view.fleet.results.values())).image_digest == "sha256:aaa"

    _with_image(sim, sim.pods()[0], "aaa")
    sim.pass_time(7200)
    assert claims(sim) == []

    _with_image(sim, sim.pods()[0], "bbb")
    sim.settle()
    sim.pass_time(60)
    assert sim.status()["phase"] == "Running"
    assert len(claims(sim)) == 1


def test_affinity_names_the_hostname_label_where_it_differs_from_the_node(sim: Any) -> None:
    sim.node("node-a")
    body = copy.deepcopy(sim.objects[("nodes", "", "node-a")])
    body["metadata"]["labels"]["kubernetes.io/hostname"] = "ip-10-0-0-1"
    sim.store(("nodes", "", "node-a"), body)
    sim.apply()
    sim.settle()

    assert "'values': ['ip-10-0-0-1']" in str(sim.objects[("jobs", "default", jobs(sim)[0])]["spec"])


def test_a_manager_that_starts_while_the_bus_is_away_keeps_what_was_found_out(one_node: Any) -> None:
    sim = one_node
    sim.apply(idleTimeoutSeconds=0)
    sim.run()
    before = sim.status()
    sim.bus_up = False
    sim.log.clear()
    sim.restart()
    sim.settle()

    assert sim.writes() == []
    assert sim.status() == before


def test_results_stay_in_the_status_while_their_node_is_away(one_node: Any) -> None:
    sim = one_node
    sim.apply(idleTimeoutSeconds=0)
    sim.run()
    sim.delete(("nodes", "", "n1"))
    sim.settle()

    assert sim.status()["benchmarks"][0]["tokensPerSecond"] == 50.0


def test_a_node_that_is_away_for_a_moment_does_not_cost_its_measurement(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.settle()
    before = jobs(sim)
    sim.tell(NodeStatus(node="n1", state="offline"))
    sim.settle()
    assert jobs(sim) == before

    sim.tell(NodeStatus(node="n1", state="online"))
    sim.run()
    assert sim.status()["benchmarks"][0]["tokensPerSecond"] == 50.0
    assert claims(sim) == []
