"""What people say a node costs reaches the benchmark that is made on its class."""

import copy
from typing import Any

import pytest

GPU = {"gpu": {"vendor": "nvidia", "count": 1, "vramEstimateMB": 8000}}
PRICE = "flexinfer.ai/cost"


def _price(sim: Any, node: str, text: str) -> None:
    body = copy.deepcopy(sim.objects[("nodes", "", node)])
    body["metadata"].setdefault("annotations", {})[PRICE] = text
    sim.store(("nodes", "", node), body)


def _told(sim: Any) -> str | None:
    job = next(o for a, o in sim.objects.items() if a[0] == "jobs")
    env = job["spec"]["template"]["spec"]["containers"][0]["env"]
    return next((entry["value"] for entry in env if entry["name"] == "FLEXINFER_COST_PER_HOUR"), None)


@pytest.mark.parametrize(
    ("prices", "told"),
    [
        ({}, None),
        ({"a": "1.25"}, "1.25"),
        ({"a": "0"}, "0"),
        ({"a": "3", "b": "1", "c": "2"}, "2"),
        ({"a": "cheap", "b": "-1"}, None),
    ],
)
def test_the_bench_is_told_the_price_of_its_class(sim: Any, gpu: Any, prices: dict[str, str], told: str | None) -> None:
    for name in "abc":
        sim.node(name, gpu())
    for name, text in prices.items():
        _price(sim, name, text)
    sim.apply(**GPU)
    sim.settle()

    assert _told(sim) == told


def test_a_new_price_measures_nothing_again(sim: Any, gpu: Any) -> None:
    sim.node("a", gpu())
    sim.apply(**GPU)
    sim.run("a")
    before = len(sim.writes())
    _price(sim, "a", "2.5")
    sim.settle()

    assert len(sim.writes()) == before
