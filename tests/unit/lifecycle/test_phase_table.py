"""The table of phases: complete, and strict."""

import itertools

import pytest

from flexinfer.core.lifecycle.diagram import mermaid, phases_page
from flexinfer.core.lifecycle.phases import MEANING, PHASES, TRANSITIONS, IllegalTransition, advance, phase_of


def test_every_phase_has_a_meaning_and_can_be_reached_and_left() -> None:
    assert set(MEANING) == set(PHASES)
    for phase in PHASES:
        assert any(following == phase for _, following in TRANSITIONS)
        assert phase == "Terminating" or (phase, "Terminating") in TRANSITIONS


@pytest.mark.parametrize(("previous", "following"), list(itertools.product([None, *PHASES], PHASES)))
def test_what_is_not_listed_is_refused(previous, following) -> None:
    if previous == following:
        assert not advance(previous, following)
    elif (previous, following) in TRANSITIONS:
        assert advance(previous, following)
    else:
        with pytest.raises(IllegalTransition, match=following):
            advance(previous, following)


def test_nothing_leaves_terminating() -> None:
    assert [pair for pair in TRANSITIONS if pair[0] == "Terminating"] == []


def test_unknown_text_in_a_status_is_no_phase() -> None:
    assert [phase_of(text) for text in ("Running", "running", "", None, 3)] == ["Running", None, None, None, None]


def test_the_picture_shows_every_transition() -> None:
    assert mermaid().count("-->") == len(TRANSITIONS) + 1
    assert "stateDiagram-v2" in phases_page()
