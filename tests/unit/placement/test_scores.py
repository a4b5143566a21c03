"""Properties of the score: bounds, monotony in every input, independence of order, and the rules for unknowns."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from flexinfer.contracts.events import BenchCompleted, CachedModel
from flexinfer.core.placement.offers import Offer
from flexinfer.core.placement.ranking import rank
from flexinfer.core.placement.scoring import Scale, Weights, cost_share, terms, total
from flexinfer.core.placement.speeds import Speeds

WANTED = frozenset({"m", "adapter"})
MODEL, ADAPTER = (CachedModel(entry=entry, source="hf://m", bytes=1) for entry in ("m", "adapter"))
percent = st.floats(0, 100)
offers = st.builds(
    Offer,
    node=st.just(""),
    capacity=st.just(1.0),
    util=percent,
    kv=percent,
    ratio=st.floats(0, 1),
    cost=st.none() | st.floats(0, 1000),
    device_class=st.sampled_from(["a", "b", "c", "unmeasured"]),
    cached=st.sampled_from([UNSET, (), (ADAPTER,), (MODEL,), (MODEL, ADAPTER)]),
)
fleets = st.lists(offers, min_size=1, max_size=8).map(
    lambda found: [replace(offer, node=f"n{position}") for position, offer in enumerate(found)]
)
speeds = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.floats(0.1, 5000))


def measured(by_class: dict[str, float]) -> Speeds:
    return Speeds(
        (
            BenchCompleted(
                key=name, namespace="d", model="m", workload="w", source="s", backend="vllm", device_class=name,
                tokens_per_second=speed, iterations=1, duration_seconds=1.0,
            ),
            0.0,
        )
        for name, speed in by_class.items()
    )  # fmt: skip


def scores(fleet: list[Offer], by_class: dict[str, float], weights: Weights | None = None) -> dict[str, int]:
    by_name = {offer.node: offer for offer in fleet}
    found = rank(list(by_name), by_name, measured(by_class), weights or Weights(cache=0.3), WANTED)
    return dict(zip(found.names, found.translated(range(10, -1, -1)), strict=True))


@given(fleets, speeds, st.builds(Weights, *[st.floats(0, 1e6)] * 6))
def test_scores_are_whole_numbers_from_0_to_10_and_somebody_gets_10(fleet, by_class, weights):
    found = scores(fleet, by_class, weights)

    assert all(type(value) is int and 0 <= value <= 10 for value in found.values())
    assert max(found.values()) == 10


@given(fleets, speeds, st.randoms())
def test_the_order_of_nodes_changes_nothing(fleet, by_class, random):
    shuffled = fleet.copy()
    random.shuffle(shuffled)

    assert scores(shuffled, by_class) == scores(fleet, by_class)


@given(fleets, speeds, st.sampled_from(["util", "kv", "ratio", "cost"]), st.floats(0, 1))
def test_a_node_that_gets_better_never_loses_points(fleet, by_class, field, part):
    first = fleet[0]
    value = getattr(first, field)
    if value is None:
        return
    better = value + (1 - value) * part if field == "ratio" else value * part
    improved = [replace(first, **{field: better}), *fleet[1:]]

    assert scores(improved, by_class)[first.node] >= scores(fleet, by_class)[first.node]


@given(fleets, speeds, st.floats(0, 10))
def test_a_node_that_fetched_the_weights_never_loses_points(fleet, by_class, weight):
    weights = Weights(cache=weight)
    fetched = [replace(fleet[0], cached=(MODEL, ADAPTER)), *fleet[1:]]

    assert scores(fetched, by_class, weights)["n0"] >= scores(fleet, by_class, weights)["n0"]


@given(fleets, speeds, st.floats(1, 10))
def test_a_faster_class_never_loses_points(fleet, by_class, factor):
    name = fleet[0].device_class
    if name not in by_class:
        return

    faster = scores(fleet, by_class | {name: by_class[name] * factor})

    assert faster[fleet[0].node] >= scores(fleet, by_class)[fleet[0].node]


@given(offers, speeds, st.builds(Weights, *[st.floats(0, 100)] * 6))
def test_terms_add_up_to_the_sum(offer, by_class, weights):
    speed = measured(by_class).of(offer.device_class, "")
    scale = Scale(max(by_class.values(), default=None), 1000.0, 33.0, WANTED)

    found = 0.0
    for term in terms(offer, speed, scale, weights, (None, None)):
        found += term.contribution

    assert found == total(offer, speed, scale, weights)


def node(name: str, **changes) -> Offer:
    return replace(Offer(name, 1.0, device_class=name, ratio=1.0), **changes)


def test_a_lone_node_gets_10_whatever_its_sum():
    assert scores([node("a", util=100.0, kv=100.0, ratio=0.0)], {}) == {"a": 10}


def test_nobody_measured_counts_half_for_all():
    assert scores([node("a"), node("b", util=10.0)], {}) == {"a": 10, "b": 9}


def test_unmeasured_among_measured_counts_half_of_the_best():
    # 0.7 * 50 points behind the best, 0.7 * 90 the slowest, over a spread of 63: losses of 5.6 and 10.
    assert scores([node("a"), node("x"), node("b")], {"a": 100.0, "b": 10.0}) == {"a": 10, "x": 4, "b": 0}


def test_noise_of_under_a_point_is_a_tie():
    assert scores([node("a"), node("b", util=4.9)], {}) == {"a": 10, "b": 10}


def test_a_bad_third_node_leaves_two_good_ones_apart():
    good = [node("a"), node("b", util=60.0)]

    assert scores(good, {})["b"] < 10
    assert scores([*good, node("c", util=100.0, kv=100.0, ratio=0.0)], {})["b"] < 10


@pytest.mark.parametrize(
    ("cost", "scale", "share"),
    [
        (None, Scale(), 0.0),
        (2.0, Scale(dearest=4.0), 50.0),
        (None, Scale(dearest=4.0, unpriced_share=75.0), 75.0),
        (0.0, Scale(dearest=0.0), 0.0),
    ],
    ids=["no prices", "share of the dearest", "unpriced among priced", "all free"],
)
def test_cost_share(cost, scale, share):
    assert cost_share(cost, scale) == share


def test_unpriced_among_priced_get_the_median():
    found = scores([node("a", cost=100.0), node("b", cost=50.0), node("c", cost=10.0), node("d")], {})

    assert found["d"] == found["b"]


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_weights_that_make_no_sense_are_refused(value):
    with pytest.raises(ValueError, match="weight util"):
        Weights(util=value)


def test_each_term_decides_when_all_else_is_equal():
    for better, worse in (
        ({"util": 0.0}, {"util": 50.0}), ({"kv": 0.0}, {"kv": 50.0}), ({"ratio": 1.0}, {"ratio": 0.5}),
        ({"cost": 1.0}, {"cost": 9.0}), ({"cached": (MODEL, ADAPTER)}, {"cached": (MODEL,)}),
    ):  # fmt: skip
        found = scores([node("a", **better), node("b", **worse)], {})
        assert found["a"] == 10 > found["b"], better
