"""Recorded and hand-made histories replay to their golden traces, in any process, in part and repeated."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

import golden_tapes

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.kubernetes import KubeDelta
from flexinfer.ports import Relisted, Snapshot
from flexinfer.runtime.journal import Tape
from flexinfer.testing.replay import assert_trace, load, replay, trace

TAPES = golden_tapes.tapes()
FACTS = Event | Snapshot | KubeDelta | Relisted

every_tape = pytest.mark.parametrize("tape", TAPES, ids=lambda tape: tape.name.split(".")[0])


@every_tape
def test_a_tape_gives_its_golden_trace(tape: Path) -> None:
    assert_trace(tape, golden_tapes.golden(tape))


@every_tape
def test_no_decision_failed(tape: Path) -> None:
    steps = list(replay(load(tape)))

    assert steps
    assert [step for step in steps if step.kind == "effect" and step.data["do"] == "Error"] == []


@pytest.mark.parametrize("seed", ["0", "12345"])
def test_other_processes_with_other_hash_seeds_give_the_same_bytes(seed: str) -> None:
    code = (
        "import sys; from pathlib import Path; from flexinfer.testing.replay import load, trace; "
        "[sys.stdout.buffer.write(trace(load(Path(name)))) for name in sys.argv[1:]]"
    )
    argv = [sys.executable, "-c", code, *map(str, TAPES)]

    told = subprocess.run(argv, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True)

    assert told.stdout == b"".join(golden_tapes.golden(tape).read_bytes() for tape in TAPES)


@every_tape
def test_facts_told_twice_give_the_same_decisions(tape: Path) -> None:
    once = load(tape)
    facts = [line for line in once.facts for _ in range(2 if isinstance(line[1], FACTS) else 1)]

    assert trace(Tape(once.header, tuple(facts), ())) == trace(once)


@every_tape
@given(data=st.data())
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_left_of_a_torn_tape_replays(tape: Path, data: st.DataObject) -> None:
    whole = load(tape)
    end = data.draw(st.integers(0, len(whole.facts)))
    begin = data.draw(st.integers(0, end))
    gap = data.draw(st.sets(st.integers(begin, max(end - 1, begin)), max_size=30))
    prefix = Tape(whole.header, whole.facts[:end], ())
    torn = Tape(whole.header, tuple(line for i, line in enumerate(whole.facts[begin:end], begin) if i not in gap), ())

    assert golden_tapes.golden(tape).read_bytes().startswith(trace(prefix))
    trace(torn)


def test_the_home_lab_is_placed_on_the_node_that_measured_fastest() -> None:
    tape = golden_tapes.FOLDER / "recorded" / "home-lab-scheduler.jsonl.gz"
    placements = {step.key: step.data for step in replay(load(tape))}

    served = next(data for key, data in placements.items() if "/llama3-8b-" in key)
    assert served.candidates[0].node == "rx7900xtx"
    assert "tokens/s" in served.candidates[0].terms[0].note


def test_hand_made_tapes_are_what_their_stories_tell() -> None:
    for name, story in golden_tapes.STORIES.items():
        told = golden_tapes.encoded(name.rpartition("-")[2], story())

        assert told == (golden_tapes.BY_HAND / f"{name}.jsonl").read_bytes(), "make regold, and look"
        assert b"hf_never_on_a_tape" not in told


def test_a_changed_trace_is_shown_line_by_line(tmp_path: Path) -> None:
    tape = golden_tapes.BY_HAND / "bad-night-scheduler.jsonl"
    golden = tmp_path / "golden.jsonl"
    golden.write_bytes(
        golden_tapes.golden(tape).read_bytes().replace(b'"outcome":"rejected"', b'"outcome":"ranked"', 1)
    )

    with pytest.raises(AssertionError, match=r'-\s+"outcome": "ranked"') as err:
        assert_trace(tape, golden)

    assert '"outcome": "rejected"' in str(err.value)
