"""Over a fleet: each engine is judged by the result for its workload on its node's hardware."""

from msgspec.structs import replace

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import (
    BenchCompleted,
    BenchDrifted,
    Cpu,
    Device,
    EngineTelemetry,
    NodeHardware,
    NodeStatus,
    NodeTelemetry,
)
from flexinfer.core.benchmark.watch import DriftWatch, Served
from flexinfer.core.hardware.device_class import classes_of

MINT = EventMint.start("agent", "n", "boot", lambda: 0.0)
CPU = Cpu(model="AMD EPYC", threads=2)
GPU = Device(index=0, uuid="g", vendor="NVIDIA", product="L4", arch="sm_89", memory_mib=24576, driver="575.57.08")
HARDWARE = NodeHardware(node="n", devices=(GPU,), cpu=CPU)
GPU_CLASS = classes_of(HARDWARE, 1)[0]
POD = ("default", "m-0")


def result(**changes) -> BenchCompleted:
    values = {
        "key": "m-aaaa", "namespace": "default", "model": "m", "workload": "w", "source": "s", "backend": "b",
        "device_class": GPU_CLASS, "tokens_per_second": 100.0, "iterations": 5, "duration_seconds": 30.0,
        "driver_major": "575",
    }  # fmt: skip
    return BenchCompleted(**{**values, **changes})


def watch(*results: BenchCompleted) -> DriftWatch:
    found = DriftWatch(pods={POD: Served("w", "m")})
    for data in (HARDWARE, *results):
        found.fold(MINT.mint(data))
    return found


def telemetry(speed: float, *, running: int = 1, node: str = "n", pod: str = "m-0") -> NodeTelemetry:
    engine = EngineTelemetry(namespace="default", pod=pod, requests_running=running, tokens_per_second=speed)
    return NodeTelemetry(node=node, interval_seconds=2.0, engines=(engine,))


def feed(found: DriftWatch, speed: float, begin: float, end: float, **changes) -> list[BenchDrifted]:
    told = []
    at = begin
    while at <= end:
        told += found.fold(MINT.mint(telemetry(speed, **changes), at=at))
        at += 2.0
    return told


def test_a_slow_engine_is_told_of_once_and_its_recovery_too():
    found = watch(result())
    [begun] = feed(found, 70.0, 1000.0, 1400.0)
    assert begun.drifted
    assert (begun.key, begun.model, begun.pod, begun.node) == ("m-aaaa", "m", "m-0", "n")
    assert 0.69 < begun.ratio < 0.71
    assert found.ratios("n") == {("default", "m"): begun.ratio}
    [over] = feed(found, 100.0, 1402.0, 1700.0)
    assert not over.drifted


def test_a_healthy_engine_is_never_told_of():
    assert feed(watch(result()), 99.0, 1000.0, 3000.0) == []


def test_a_new_measurement_ends_the_drift_and_is_the_new_standard():
    found = watch(result())
    feed(found, 70.0, 1000.0, 1400.0)
    [over] = found.fold(MINT.mint(result(tokens_per_second=70.0)))
    assert not over.drifted
    assert feed(found, 70.0, 1402.0, 2000.0) == []


def test_the_same_result_again_changes_nothing():
    found = watch(result())
    feed(found, 70.0, 1000.0, 1400.0)
    assert found.fold(MINT.mint(result())) == ()


def test_the_result_of_the_same_driver_is_preferred():
    other = result(key="m-zzzz", driver_major="550", tokens_per_second=10.0)
    assert feed(watch(other, result()), 70.0, 1000.0, 1400.0)[0].key == "m-aaaa"


def test_another_driver_is_better_than_nothing():
    assert feed(watch(result(driver_major="550")), 70.0, 1000.0, 1400.0)


def test_without_a_fitting_result_nothing_is_said():
    wrong = [result(workload="other"), result(device_class="nvidia-a100-sm-80-80g-x1")]
    assert feed(watch(*wrong), 1.0, 1000.0, 2000.0) == []
    assert feed(watch(result()), 1.0, 1000.0, 2000.0, node="unknown") == []
    assert feed(watch(result()), 1.0, 1000.0, 2000.0, pod="stranger") == []


def test_an_engine_that_is_gone_is_forgotten():
    found = watch(result())
    feed(found, 70.0, 1000.0, 1400.0)
    found.fold(MINT.mint(NodeTelemetry(node="n", interval_seconds=2.0), at=1402.0))
    assert found.engines == {}
    assert found.ratios("n") == {}


def test_a_pod_that_is_gone_has_no_ratio():
    found = watch(result())
    feed(found, 70.0, 1000.0, 1100.0)
    found.pods = {}
    assert found.ratios("n") == {}
    feed(found, 70.0, 1102.0, 1102.0)
    assert found.engines["n"] == {}


def test_the_slowest_replica_stands_for_the_model():
    found = watch(result())
    found.pods["default", "m-1"] = Served("w", "m")
    engines = tuple(
        EngineTelemetry(namespace="default", pod=pod, requests_running=1, tokens_per_second=speed)
        for pod, speed in (("m-0", 90.0), ("m-1", 60.0))
    )
    found.fold(MINT.mint(replace(telemetry(0.0), engines=engines), at=1000.0))
    assert found.ratios("n") == {("default", "m"): 0.6}


def test_other_events_change_nothing():
    assert DriftWatch().fold(MINT.mint(NodeStatus(node="n", state="online"))) == ()
