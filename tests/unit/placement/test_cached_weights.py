"""Weights that a node holds already are a term of their own: off by default, and then nothing is as it was not."""

import msgspec
import pytest

from flexinfer.contracts.events import PlacementDecided
from flexinfer.core.placement.explanation import what_if
from flexinfer.core.placement.scoring import Weights

NAMES = ["holds", "lacks", "shares-none"]


@pytest.fixture
def three(fleet):
    fleet.node("holds", "4090", util=30.0, held=["llama3-1", "adapter-1"])
    fleet.node("lacks", "4090", util=10.0, held=["llama3-1"])
    fleet.node("shares-none", "4090", util=20.0)
    return fleet


def decided(asking, fleet, pod, weights, **annotations) -> PlacementDecided:
    asker = asking(fleet, weights)
    asker.prioritize(pod("p", **annotations), NAMES)
    return asker.decided()


def terms(found: PlacementDecided) -> dict[str, dict[str, tuple[float, float, str]]]:
    return {c.node: {t.name: (t.value, t.contribution, t.note) for t in c.terms} for c in found.candidates}


def test_the_node_that_holds_all_weights_leads_when_they_count(three, asking, pod):
    found = decided(asking, three, pod, Weights(cache=0.2), entries="llama3-1,adapter-1")

    assert [candidate.node for candidate in found.candidates] == ["holds", "lacks", "shares-none"]
    assert {node: parts["cache"] for node, parts in terms(found).items()} == {
        "holds": (100.0, 20.0, ""), "lacks": (0.0, 0.0, "1 of 2 here"),
        "shares-none": (0.0, 0.0, "not known: this node shares no cache"),
    }  # fmt: skip
    assert all(candidate.sum == sum(t.contribution for t in candidate.terms) for candidate in found.candidates)
    assert found.demand["cacheEntries"] == "adapter-1,llama3-1"


def test_by_default_it_is_shown_and_counts_for_nothing(three, asking, pod):
    found = decided(asking, three, pod, Weights(), entries="llama3-1,adapter-1")

    assert [candidate.node for candidate in found.candidates] == ["lacks", "shares-none", "holds"]
    assert terms(found)["holds"]["cache"] == (100.0, 0.0, "")


def test_what_if_ranks_again_by_what_was_recorded(three, asking, pod):
    found = decided(asking, three, pod, Weights(), entries="llama3-1,adapter-1")

    assert what_if(found, {"cache": 0.2}).candidates[0].node == "holds"


def test_a_pod_that_names_no_weights_gets_the_bytes_it_always_got(three, asking, pod):
    found = decided(asking, three, pod, Weights())

    assert [term.name for term in found.candidates[0].terms] == ["tps", "util", "cost", "kvCache", "vramFree"]
    assert b"cache" not in msgspec.json.encode(found).replace(b"kvCache", b"")


def test_no_weights_named_while_they_count_is_said(three, asking, pod):
    found = decided(asking, three, pod, Weights(cache=0.2))

    assert found.candidates[0].node == "lacks"
    assert {parts["cache"] for parts in terms(found).values()} == {(0.0, 0.0, "the pod names no weights")}


def test_weights_that_arrive_or_are_evicted_count_at_once(three, asking, pod):
    asker, wanted = asking(three, Weights(cache=1.0)), pod("p", entries="llama3-1")
    first = dict(asker.prioritize(wanted, NAMES))
    three.node("lacks", "4090", util=10.0, held=[])
    three.node("shares-none", "4090", util=20.0, held=["llama3-1"])
    then = dict(asker.prioritize(wanted, NAMES))

    assert (first["lacks"], first["shares-none"]) == (10, 0)
    assert (then["lacks"], then["shares-none"]) == (0, 10)


def test_a_pod_without_accelerators_has_weights_too(fleet, asking, pod):
    fleet.node("holds", held=["m"])
    fleet.node("lacks", held=[])
    asker = asking(fleet, Weights(cache=0.3))

    assert asker.prioritize(pod("p", gpus=0, entries="m"), ["lacks", "holds"])[0][1] < 10
    assert asker.decided().candidates[0].node == "holds"


@pytest.mark.parametrize("text", [",", " , ,", "x" * 300_000, "a," * 100_000, "\x00"])
def test_absurd_annotations_hold_nobody_up(three, asking, pod, text):
    found = decided(asking, three, pod, Weights(cache=0.2), entries=text)

    assert found.candidates[0].node == "lacks"
    assert len(msgspec.json.encode(found)) < 32 * 1024
