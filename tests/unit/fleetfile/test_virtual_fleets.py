"""A virtual fleet is what its file says, and an impossible file is refused with path and reason."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.core.hardware.inventory import take
from flexinfer.testing.fleet import ImpossibleFleet, load_fleet, parse_fleet
from flexinfer.testing.virtual import signals

EXAMPLES = Path(__file__).resolve().parents[3] / "flexinfer" / "local" / "examples"
GPU = {"vendor": "NVIDIA", "product": "L4", "arch": "sm_89", "memory": "24Gi", "count": 2}
NODE = {"name": "n", "gpus": [GPU], "speed": {"tokens_per_second": 10}}


def _node(**changes: object):
    return parse_fleet({"nodes": [{**NODE, **changes}]}, "file").nodes[0]


def test_the_examples_are_the_fleets_they_claim() -> None:
    assert [node.name for node in load_fleet(EXAMPLES / "home-lab.yaml").expanded()] == [
        "rtx3060", "rx7900xtx", "cpu-box",
    ]  # fmt: skip
    rack = load_fleet(EXAMPLES / "rack.yaml").expanded()
    assert len(rack) == 30
    assert {gpu.vendor for node in rack for gpu in node.gpus} == {"NVIDIA", "AMD", "INTEL"}


@pytest.mark.parametrize("example", ["home-lab", "rack"])
def test_every_node_of_the_examples_has_an_inventory_of_all_its_devices(example: str) -> None:
    for node in load_fleet(EXAMPLES / f"{example}.yaml").expanded():
        found = take(signals.findings(node, 0.0), signals.cpu(node))

        assert len(found.counted) == sum(gpu.count for gpu in node.gpus)
        assert found.vendor == (node.gpus[0].vendor if node.gpus else None)


@pytest.mark.parametrize(
    ("document", "path", "reason"),
    [
        ({"nodes": []}, "nodes", "at least 1 item"),
        ({"nodes": [{**NODE, "gpus": [{**GPU, "memory": "lots"}]}]}, "nodes.0.gpus.0.memory", "write 12Gi"),
        ({"nodes": [{**NODE, "gpus": [{**GPU, "arch": "gfx1100"}]}]}, "nodes.0.gpus.0", "is none of NVIDIA"),
        ({"nodes": [{**NODE, "speed": {"tokens_per_second": 0}}]}, "nodes.0.speed.tokens_per_second", "greater than 0"),
        ({"nodes": [{**NODE, "colour": "red"}]}, "nodes.0.colour", "Extra inputs"),
        ({"nodes": [NODE, NODE]}, "the file", "node name 'n' is used twice"),
        ({"nodes": [{**NODE, "name": "Not_A_Name"}]}, "nodes.0.name", "match pattern"),
        ({"nodes": [{**NODE, "replicas": 2000}]}, "nodes.0.replicas", "less than or equal to 1000"),
        ({"nodes": [{**NODE, "gpus": [], "faults": [{"kind": "lost-device", "at": 1}]}]}, "nodes.0", "needs gpus"),
        ({"nodes": [{**NODE, "telemetry": {"period": "0s"}}]}, "nodes.0.telemetry", "period must be longer"),
        ([1], "the file", "valid dictionary"),
        (None, "the file", "valid dictionary"),
    ],
)  # fmt: skip
def test_an_impossible_fleet_is_refused_with_path_and_reason(document: object, path: str, reason: str) -> None:
    with pytest.raises(ImpossibleFleet) as refused:
        parse_fleet(document, "file")

    assert str(refused.value).startswith(f"file: {path}: ")
    assert reason in str(refused.value)


def test_a_file_that_is_no_yaml_or_is_missing_is_one_sentence(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("nodes: [")

    with pytest.raises(ImpossibleFleet, match="is not YAML"):
        load_fleet(bad)
    with pytest.raises(ImpossibleFleet, match="cannot be read"):
        load_fleet(tmp_path / "none.yaml")


def test_a_model_gets_the_first_matching_speed_else_the_nodes_own() -> None:
    node = _node(speeds={"llama*": {"tokens_per_second": 55}})

    assert node.speed_of("llama3").tokens_per_second == 55
    assert node.speed_of("qwen").tokens_per_second == 10


def test_faults_hold_from_their_time_for_as_long_as_declared() -> None:
    node = _node(faults=[{"kind": "silent", "at": "10s", "for": "5s"}, {"kind": "draining", "at": "20s"}])

    assert signals.active(node, 9.9) == frozenset()
    assert signals.active(node, 10) == {"silent"}
    assert signals.active(node, 15) == frozenset()
    assert signals.active(node, 1e6) == {"draining"}
    assert (signals.state(node, 0), signals.state(node, 20)) == ("online", "draining")


def test_a_lost_device_is_a_fault_and_has_no_figures() -> None:
    node = _node(faults=[{"kind": "lost-device", "at": 5}])

    assert [unit.usable for unit in signals.units(node, 4)] == [True, True]
    assert [unit.usable for unit in signals.units(node, 5)] == [False, True]
    assert set(signals.live(node, 5, 0, 0, 0)) == {"virtual-n-1"}


def test_a_slow_node_starts_engines_at_a_tenth() -> None:
    node = _node(faults=[{"kind": "slow", "at": 5}])

    assert signals.speed(node, "m", 0).tokens_per_second == 10
    assert signals.speed(node, "m", 5).tokens_per_second == 1


@given(st.floats(0, 1e6), st.integers(0, 100_000), st.floats(0, 1), st.tuples(*[st.floats(0, 100)] * 3))
def test_figures_are_repeatable_and_possible(
    elapsed: float, used: int, load: float, pattern: tuple[float, float, float]
) -> None:
    base, amplitude, noise = pattern
    node = _node(telemetry={"base": base, "amplitude": amplitude, "noise": noise})

    figures = signals.live(node, elapsed, 3, used, load)

    assert figures == signals.live(node, elapsed, 3, used, load)
    for live in figures.values():
        assert 0 <= (live.util_percent or 0) <= 100
        assert (live.memory_used_mib or 0) + (live.memory_free_mib or 0) == 24 * 1024
    assert sum(live.memory_used_mib or 0 for live in figures.values()) == min(used, 2 * 24 * 1024)
