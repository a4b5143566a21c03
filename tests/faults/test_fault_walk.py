"""A short random walk through faults, always the same one; ``make faults MINUTES=60 SEED=n`` walks for an hour."""

from pathlib import Path

import pytest

from tests.faults.deck import plan
from tests.faults.walk import Plan, judge, walk

SEED = 4


@pytest.mark.slow
async def test_what_must_hold_holds_on_a_walk_through_faults(tmp_path: Path) -> None:
    made = await walk(tmp_path, Plan(plan(SEED, pace=1.0, longest=8.0), seconds=16.0, breath=16.0))

    assert made.seen.broken == []
    assert made.rests == 2
    figures = made.figures()
    assert figures["faults_survived"] == figures["faults_injected"] > 0
    assert figures["answers"]["200"] > 0
    assert figures["benchmarks_completed"] > 0
    again = judge(tmp_path / "walk.jsonl")
    assert (again.broken, again.facts, again.transitions) == ([], made.seen.facts, made.seen.transitions)
