"""What a desk keeps of the past, and what it lets go."""

import pytest

from flexinfer.core.placement import desk as desks
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.roster import Asked
from flexinfer.core.placement.scoring import Weights


@pytest.fixture
def desk(fleet):
    for name in ("a", "b", "c"):
        fleet.node(name, "4090")
    return Desk(fleet.view, Weights())


def written(desk):
    found = []
    while (decided := desk.take()) is not None:
        found.append(decided)
    return found


def test_a_rejection_is_decided_by_the_filter_alone(desk, fleet, pod):
    desk.filter(pod("p", vram="90000"), Asked(["a", "b"]), fleet.now)

    (decided,) = written(desk)
    assert (decided.outcome, decided.considered) == ("rejected", 2)
    assert decided.reasons == {"flexinfer: installed VRAM is too small": 2}


def test_filter_and_prioritize_of_one_attempt_are_one_decision(desk, fleet, pod):
    desk.filter(pod("p"), Asked(["a", "b", "ghost"]), fleet.now)
    desk.prioritize(pod("p"), Asked(["a", "b"]), fleet.now)

    (decided,) = written(desk)
    assert (decided.outcome, decided.considered, len(decided.candidates)) == ("ranked", 3, 2)
    assert decided.reasons == {"flexinfer: no hardware facts from this node": 1}


def test_an_attempt_nobody_asked_to_rank_is_decided_after_a_while(desk, fleet, pod):
    desk.filter(pod("p"), Asked(["a", "b"]), fleet.now)

    desk.flush(fleet.now + 1)
    early = written(desk)
    desk.flush(fleet.now + 2)

    assert early == []
    assert [decided.message for decided in written(desk)] == ["the scheduler did not ask for a ranking"]


def test_a_pod_decided_again_before_it_was_published_is_published_once(desk, fleet, pod):
    for _ in range(3):
        desk.prioritize(pod("p"), Asked(["a", "b"]), fleet.now)

    assert len(written(desk)) == 1
    assert desk.coalesced == 2


def test_a_decision_shows_its_moment_however_late_it_is_written(desk, fleet, pod):
    desk.prioritize(pod("p"), Asked(["a", "b"]), fleet.now)
    fleet.live("a", util=100.0)
    desk.prioritize(pod("q"), Asked(["a", "b"]), fleet.now)

    first, second = written(desk)
    assert {c.node: c.terms[1].value for c in first.candidates} == {"a": 0.0, "b": 0.0}
    assert {c.node: c.terms[1].value for c in second.candidates} == {"b": 0.0}, "a is reserved for p"


def test_explain_shows_every_candidate_while_they_are_kept_and_the_best_after(fleet, pod, monkeypatch):
    monkeypatch.setattr(desks, "KEPT_CANDIDATES", 60)
    names = [f"n{number:02d}" for number in range(30)]
    for name in names:
        fleet.node(name, "4090", "4090", "4090")
    desk = Desk(fleet.view, Weights())

    for asker in ("p", "q", "r"):
        desk.prioritize(pod(asker), Asked(names), fleet.now)

    counts = {asker: len(desk.explain("default", asker).candidates) for asker in ("p", "q", "r")}
    assert counts == {"p": 30, "q": 30, "r": 30}, "each is written up when it is asked for"
    assert {asker: len(desk.explain("default", asker).candidates) for asker in ("p", "q", "r")} == {
        "p": 20, "q": 30, "r": 30,
    }  # fmt: skip


@pytest.mark.parametrize("count", [3, 30])
def test_among_equals_the_first_by_name_is_reserved(fleet, pod, count):
    names = [f"n{number:02d}" for number in range(count)]
    for name in names:
        fleet.node(name, "4090")
    desk = Desk(fleet.view, Weights())
    desk.filter(pod("other", vram="90000"), Asked([*names[1:], names[0]]), fleet.now)

    desk.prioritize(pod("p"), Asked(names[::-1]), fleet.now)

    assert fleet.view.claimed_on["uid-p"] == "n00"


def test_the_oldest_decisions_are_forgotten(desk, fleet, pod, monkeypatch):
    monkeypatch.setattr(desks, "KEPT_DECISIONS", 2)

    for asker in ("p", "q", "r"):
        desk.prioritize(pod(asker), Asked(["a", "b", "c"]), fleet.now)
        written(desk)

    assert desk.explain("default", "p") is None
    assert desk.explain("default", "r") is not None
    assert desk.explain("elsewhere", "r") is None


def test_names_never_heard_of_do_not_pile_up(desk, fleet, pod, monkeypatch):
    monkeypatch.setattr(desks, "MAX_NAMES", 10)

    for turn in range(5):
        names = ["a", "b", *(f"ghost-{turn}-{number}" for number in range(8))]
        assert desk.filter(pod("p"), Asked(names), fleet.now).passed == ["a", "b"]
        found = desk.prioritize(pod("p"), Asked(names), fleet.now).ranking
        assert found.translated(range(10, -1, -1)) == [10, 10, *[0] * 8]
