"""Energy per token from power readings inside the stage; unknown rather than guessed."""

from dataclasses import replace

import pytest

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import (
    Cpu,
    Device,
    DeviceTelemetry,
    Endpoint,
    ModelEndpoint,
    NodeHardware,
    NodeStatus,
    NodeTelemetry,
)
from flexinfer.core.benchmark.energy import PowerSample, demanded_count, joules_per_token
from flexinfer.core.benchmark.findings import Unusable
from flexinfer.core.benchmark.summary import Subject
from flexinfer.core.benchmark.witness import Witness
from flexinfer.core.hardware.device_class import classes_of


def sample(at: float, *watts: float | None) -> PowerSample:
    devices = tuple(DeviceTelemetry(index=i, uuid=f"gpu-{i}", power_watts=w) for i, w in enumerate(watts))
    return PowerSample(at, NodeTelemetry(node="n", interval_seconds=2.0, devices=devices))


EVEN = [sample(at, 100.0, 300.0) for at in (0.0, 2.0, 4.0, 6.0, 8.0, 10.0)]


@pytest.mark.parametrize(
    ("name", "count"), [("nvidia-geforce-rtx-4090-sm-89-24g-x1", 1), ("amd-x-24g-x8", 8), ("cpu-amd-epyc-2t", 0)]
)
def test_the_class_tells_how_many_devices(name: str, count: int):
    assert demanded_count(name) == count


def test_the_devices_that_drew_most_count():
    assert joules_per_token(EVEN, 1, (0.0, 10.0), 1000) == pytest.approx(3.0)
    assert joules_per_token(EVEN, 2, (0.0, 10.0), 1000) == pytest.approx(4.0)


def test_uneven_samples_are_weighted_by_time():
    uneven = [sample(0.0, 100.0), sample(1.0, 100.0), sample(9.0, 100.0), sample(10.0, 300.0)]
    assert joules_per_token(uneven, 1, (0.0, 10.0), 10) == pytest.approx(110.0)


@pytest.mark.parametrize(
    ("samples", "count", "window", "tokens"),
    [
        (EVEN, 0, (0.0, 10.0), 1000),
        (EVEN, 3, (0.0, 10.0), 1000),
        (EVEN, 1, (0.0, 10.0), 0),
        (EVEN, 1, (10.0, 10.0), 10),
        (EVEN, 1, (20.0, 30.0), 10),
        (EVEN[:2], 1, (0.0, 10.0), 10),
        (EVEN[:3], 1, (0.0, 10.0), 10),
        ([sample(at, None) for at in (0.0, 5.0, 10.0)], 1, (0.0, 10.0), 10),
    ],
)
def test_without_enough_readings_it_is_unknown(samples, count, window, tokens):
    assert joules_per_token(samples, count, window, tokens) is None


MINT = EventMint.start("agent", "n", "boot", lambda: 1000.0)
GPU = Device(index=0, uuid="gpu-0", vendor="NVIDIA", product="NVIDIA L4", arch="sm_89", memory_mib=24576)
HARDWARE = NodeHardware(node="n", devices=(GPU,), cpu=Cpu(model="AMD EPYC", threads=2))


def witness(*data) -> Witness:
    found = Witness("default", "bench-k", "n")
    for payload in data:
        found.fold(MINT.mint(payload))
    return found


def endpoint(*nodes: str, model: str = "bench-k", gone: bool = False) -> ModelEndpoint:
    return ModelEndpoint(
        namespace="default", model=model, backend="b", gone=gone,
        endpoints=tuple(Endpoint(url="http://x", pod="p", node=node) for node in nodes),
    )  # fmt: skip


def test_a_witness_keeps_what_its_node_says():
    telemetry = sample(0.0, 100.0).telemetry
    other = NodeTelemetry(node="other", interval_seconds=2.0)
    found = witness(HARDWARE, telemetry, other, NodeHardware(node="other"), NodeStatus(node="n", state="online"))
    assert found.hardware == HARDWARE
    assert [s.at for s in found.samples] == [1000.0]


def test_the_node_of_the_endpoint_serves():
    found = witness(HARDWARE, NodeHardware(node="other", virtual=True), endpoint("other"))
    assert found.node == "other"
    subject = Subject("k", "d", "m", "w", "s", "b", "c", node="n")
    assert found.located(subject) == replace(subject, node="other", virtual=True)


@pytest.mark.parametrize("told", [endpoint(), endpoint("a", "b"), endpoint("a", model="x"), endpoint("a", gone=True)])
def test_without_one_clear_endpoint_our_own_node_is_meant(told: ModelEndpoint):
    assert witness(told).node == "n"


def test_a_class_the_node_offers_is_true():
    found = witness(HARDWARE)
    for count in (0, 1):
        for name in classes_of(HARDWARE, count):
            found.check(name)


def test_a_node_nobody_told_of_is_believed():
    witness().check("anything-x1")
    witness(NodeHardware(node="other")).check("anything-x1")
    assert Witness("default", "x", None).hardware is None


@pytest.mark.parametrize("name", ["nvidia-a100-sm-80-80g-x1", "cpu-intel-xeon-64t", "nvidia-l4-sm-89-24g-x2"])
def test_a_class_the_node_does_not_offer_is_no_result(name: str):
    with pytest.raises(Unusable) as caught:
        witness(HARDWARE).check(name)
    assert caught.value.reason == "WrongDeviceClass"
