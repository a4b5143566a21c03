"""Reading and following only what is about some names."""

import pytest

from flexinfer.contracts.events import (
    BenchCompleted,
    BenchSettings,
    Endpoint,
    ModelEndpoint,
    NodeHardware,
    NodeTelemetry,
)
from flexinfer.contracts.topics import TOPIC_OF, key_pattern, narrowed
from flexinfer.ports import Snapshot
from flexinfer.testing.bus import Reader, stepping_mint, until


def telemetry(node: str, util: float) -> NodeTelemetry:
    return NodeTelemetry(node=node, interval_seconds=2.0, cpu_util_percent=util)


def endpoint(namespace: str, model: str) -> ModelEndpoint:
    replica = Endpoint(url="http://10.0.0.1:80", pod="p")
    return ModelEndpoint(namespace=namespace, model=model, backend="vllm", endpoints=(replica,))


async def test_state_of_some_names_is_only_theirs(rig):
    bus, mint = await rig.ready(), stepping_mint()
    for data in (
        NodeHardware(node="gpu-1.example.com"),
        NodeHardware(node="gpu-1"),
        endpoint("a", "m"),
        endpoint("b", "m"),
        endpoint("a", "n"),
    ):
        await bus.publish(mint.mint(data), durable=True)

    hardware = await bus.state((NodeHardware,), ("gpu-1.example.com",))
    models = await bus.state((ModelEndpoint,), ("a",))

    assert [event.data.node for event in hardware] == ["gpu-1.example.com"]
    assert sorted(event.data.model for event in models) == ["m", "n"]
    assert [event.data.namespace for event in await bus.state((ModelEndpoint,), ("b", "m"))] == ["b"]
    assert await bus.state((NodeHardware,), ("nobody",)) == ()


async def test_a_follow_of_one_node_sees_no_other(rig):
    bus, mint, reader = await rig.ready(), stepping_mint(), Reader()
    for node in ("n1", "n2"):
        await bus.publish(mint.mint(telemetry(node, 1.0)), durable=True)
    await bus.follow((NodeTelemetry,), reader, ("n1",))
    for util in (2.0, 3.0):
        for node in ("n2", "n1"):
            await bus.publish(mint.mint(telemetry(node, util)))

    await until(lambda: [data.cpu_util_percent for data in reader.state()] == [3.0])
    nodes = {
        event.data.node for fact in reader.facts for event in (fact.events if isinstance(fact, Snapshot) else [fact])
    }
    assert nodes == {"n1"}


def test_names_take_the_places_of_the_wildcards():
    assert narrowed(TOPIC_OF[ModelEndpoint], ("a", "m.1")).wildcard == "model.a.m_1.endpoint"
    assert key_pattern(narrowed(TOPIC_OF[ModelEndpoint], ("a",))) == "a.*.endpoint"
    assert key_pattern(narrowed(TOPIC_OF[BenchCompleted], ("k",))) == "k"
    assert key_pattern(TOPIC_OF[BenchCompleted]) == "*"
    assert narrowed(TOPIC_OF[NodeHardware], ()) is TOPIC_OF[NodeHardware]
    with pytest.raises(ValueError, match="room for 1"):
        narrowed(TOPIC_OF[NodeHardware], ("a", "b"))


async def test_results_are_read_by_key(rig):
    bus, mint = await rig.ready(), stepping_mint(component="bench")
    for key in ("k-1", "k-2"):
        done = BenchCompleted(
            key=key, namespace="a", model="m", workload="w", source="s", backend="b", device_class="c",
            tokens_per_second=1.0, iterations=1, settings=BenchSettings(), duration_seconds=1.0,
        )  # fmt: skip
        await bus.publish(mint.mint(done), durable=True)

    assert [event.data.key for event in await bus.state((BenchCompleted,), ("k-2",))] == ["k-2"]
