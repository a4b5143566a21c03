"""Tapes of the extender give their golden answers and decisions, twice."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scheduler_tapes import FOLDER, STORIES, golden


@pytest.mark.parametrize("name", STORIES)
def test_a_tape_gives_its_golden_decisions(name):
    tape = FOLDER / f"{name}.jsonl"

    first, second = golden(tape), golden(tape)

    assert first == second
    assert first == (FOLDER / f"{name}.golden.json").read_bytes(), "python tests/replay/scheduler_tapes.py, and look"
