"""Weights under trial are evaluated on the same inputs, recorded, and change nothing."""

import msgspec
import pytest

from flexinfer.apps.scheduler import shadow_of
from flexinfer.config.scheduler import SchedulerSettings
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.roster import Asked
from flexinfer.core.placement.scoring import Weights
from flexinfer.core.placement.shadow import Comparison, compare, overridden

NAMES = ["fast", "slow"]


@pytest.fixture
def mixed(fleet):
    fleet.node("fast", "4090", util=80.0)
    fleet.node("slow", "3090", util=0.0)
    fleet.result("w", "4090", 58.0)
    fleet.result("w", "3090", 40.0)
    return fleet


def decided(fleet, pod, shadow):
    desk = Desk(fleet.view, Weights(), shadow=shadow)
    asker = pod("p", key="w")
    answer = desk.prioritize(asker, Asked(NAMES), fleet.now).ranking.translated(range(10, -1, -1))
    leader = fleet.view.claimed_on["uid-p"]
    found = desk.take()
    assert found is not None
    return answer, leader, found


def test_a_shadow_is_recorded_and_acts_on_nothing(mixed, pod):
    plain = decided(mixed, pod, None)
    tried = decided(mixed, pod, overridden(Weights(), {"util": 1.0}))

    assert tried[:2] == plain[:2]
    shadow = tried[2].shadow
    # speed: 70 against 70 * 40 / 58; load: 80 against 0; memory free alike
    assert (shadow.node, shadow.lost) == ("slow", 10)
    assert shadow.behind == pytest.approx(80 - 70 * (1 - 40 / 58), abs=1e-3)
    assert shadow.weights == {"tps": 0.7, "util": 1.0, "cost": 0.1, "kvCache": 0.3, "vramFree": 10.0}


def test_without_a_shadow_the_event_is_what_it_always_was(mixed, pod):
    found = decided(mixed, pod, None)[2]

    assert "shadow" not in msgspec.to_builtins(found)
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found


def test_the_same_weights_lead_to_the_same_node(mixed, pod):
    shadow = decided(mixed, pod, Weights())[2].shadow

    assert (shadow.node, shadow.behind, shadow.lost) == ("fast", 0.0, 0)


def test_a_comparison_says_how_often_and_by_how_much(mixed, pod):
    moved = decided(mixed, pod, overridden(Weights(), {"util": 1.0}))[2]
    same = decided(mixed, pod, Weights())[2]
    none = decided(mixed, pod, None)[2]

    found = compare([moved, same, none])

    assert (found.decisions, found.moved, found.lost) == (2, 1, 10)
    assert found.lines()[1:] == [
        "1 of 2 decisions (50 %) would have led to another node",
        "there the node that led is 58.3 behind in its sum and 10.0 points of score",
        "1 × slow instead of fast",
    ]
    assert Comparison().lines()[0].startswith("no decision in the log has a shadow")


def test_weights_are_given_by_the_names_of_terms():
    assert shadow_of(SchedulerSettings(shadow_weights="")) is None
    assert shadow_of(SchedulerSettings(shadow_weights="tps=1,kvCache=0")) == Weights(tps=1.0, kv_cache=0.0)


@pytest.mark.parametrize("text", ["speed=1", "tps=-1", "tps=fast"])
def test_weights_that_make_no_sense_are_refused(text):
    with pytest.raises(ValueError, match=r"term|weight"):
        shadow_of(SchedulerSettings(shadow_weights=text))
