"""The textbook case: five nodes, three results, and the sums a person can check by hand."""

import pytest

from flexinfer.core.placement.explanation import sentence, what_if
from flexinfer.core.placement.scoring import Weights

KEY = "llama3-8b-0123456789ab"
NODES = ["cpu-only", "fast", "fast-busy", "slow", "other-vendor"]


@pytest.fixture
def five(fleet):
    fleet.node("fast", "4090")
    fleet.node("fast-busy", "4090", util=90.0, free=0.8)
    fleet.node("slow", "3090")
    fleet.node("other-vendor", "7900")
    fleet.node("cpu-only")
    fleet.result(KEY, "4090", 58.0)
    fleet.result(KEY, "3090", 10.0)
    fleet.result(KEY, "7900", 40.0)
    return fleet


def test_the_fastest_idle_node_leads_and_the_sums_are_right(five, pod, asking):
    desk = asking(five)

    verdicts = desk.filter(pod(key=KEY, vram="9000"), NODES)
    scores = dict(desk.prioritize(pod(key=KEY, vram="9000"), verdicts.passed))

    assert verdicts.passed == ["fast", "fast-busy", "slow"]
    assert {name: reason.code for name, reason in verdicts.failed.items()} == {
        "cpu-only": "WrongVendor", "other-vendor": "WrongVendor",
    }  # fmt: skip
    decided = desk.decided()
    sums = {candidate.node: candidate.sum for candidate in decided.candidates}
    assert sums["fast"] == pytest.approx(0.7 * 100 + 10)
    assert sums["fast-busy"] == pytest.approx(0.7 * 100 - 0.2 * 90 + 10 * 0.8, abs=0.01)
    assert sums["slow"] == pytest.approx(0.7 * 100 * 10 / 58 + 10)
    assert scores == {"fast": 10, "fast-busy": 7, "slow": 0}


def test_terms_add_up_to_the_sum_exactly(five, pod, asking):
    desk = asking(five)

    desk.prioritize(pod(key=KEY), ["fast", "fast-busy", "slow"])

    for candidate in desk.decided().candidates:
        total = 0.0
        for term in candidate.terms:
            total += term.contribution
        assert total == candidate.sum


def test_the_line_on_the_pod_names_the_winner_and_why_others_are_out(five, pod, asking):
    desk = asking(five)
    passed = desk.filter(pod(key=KEY), NODES).passed
    desk.prioritize(pod(key=KEY), passed)

    line = sentence(desk.decided())

    assert line == (
        "fast leads 3 of 5 nodes with score 10 (sum 80.0, 58.0 tokens/s, 0% busy, 100% memory free); "
        "next fast-busy with score 7 (sum 60.0, 58.0 tokens/s, 90% busy, 80% memory free); "
        "out: 2 no accelerator of the demanded vendor"
    )


def test_what_if_speed_did_not_count(five, pod, asking):
    desk = asking(five)
    desk.prioritize(pod(key=KEY), ["fast-busy", "slow"])

    changed = what_if(desk.decided(), {"tps": 0.0})

    assert [candidate.node for candidate in changed.candidates] == ["slow", "fast-busy"]
    assert [candidate.node for candidate in desk.decided().candidates] == ["fast-busy", "slow"]


def test_weights_of_the_first_releases_can_be_set(five, pod, asking):
    desk = asking(five, Weights(tps=0.8, util=0.1, cost=0.1))

    desk.prioritize(pod(key=KEY), ["fast-busy"])

    first = desk.decided().candidates[0]
    assert first.sum == pytest.approx(0.8 * 100 - 0.1 * 90 + 10 * 0.8, abs=0.01)


def test_two_pods_racing_for_one_free_card_land_apart(five, pod, asking):
    desk = asking(five)
    first, second = pod("one", key=KEY), pod("two", key=KEY)

    winner = desk.prioritize(first, ["fast", "slow"])
    verdicts = desk.filter(second, ["fast", "slow"])

    assert max(winner, key=lambda pair: pair[1])[0] == "fast"
    assert verdicts.passed == ["slow"]
    assert verdicts.failed["fast"].code == "NoFreeDevice"
    assert "fast" in desk.filter(first, ["fast", "slow"]).passed
