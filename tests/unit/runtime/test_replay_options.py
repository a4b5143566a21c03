"""``flexinfer replay`` beyond a trace: compared with then, under other weights, up to a moment, about a node."""

import gzip
from functools import partial
from pathlib import Path

import msgspec
import pytest

from flexinfer.cli import run_command
from flexinfer.contracts.envelope import EventMint
from flexinfer.local.playing import events_of
from flexinfer.runtime.journal import Header, encode_line
from flexinfer.testing.comparing import fields
from flexinfer.testing.replay import load, replay

TAPES = Path(__file__).parents[2] / "tapes"
LAB = TAPES / "recorded" / "home-lab-scheduler.jsonl.gz"
NIGHT = TAPES / "by-hand" / "bad-night-scheduler.jsonl"
BURST = TAPES / "scheduler" / "burst.jsonl"


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, list[str], str]:
    code = run_command(["replay", *argv])
    told = capsys.readouterr()
    return code, told.out.splitlines(), told.err


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """The extender's tape, and beside it one of the bus that tells what it decided."""
    tape = load(LAB)
    lines = [msgspec.json.encode(Header(
        tape="flexinfer", version=1, component="recorder", instance="pc", release="0", started=tape.header.started
    ))]  # fmt: skip
    for step in replay(tape):
        mint = EventMint.start("scheduler", tape.header.instance, f"at-{step.at}", partial(float, step.at))
        lines.append(encode_line(step.at, mint.mint(step.data)))
    (tmp_path / "bus.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    path = tmp_path / "scheduler.jsonl"
    path.write_bytes(gzip.decompress(LAB.read_bytes()))
    return path


def test_the_same_release_decides_the_same_bytes(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = said(capsys, str(lab), "--diff")

    assert (code, lines) == (0, ["3 of 3 recorded decisions are decided again: identical, byte for byte"])


@pytest.mark.parametrize("name", ["home-lab-manager", "home-lab-proxy", "demo-manager", "home-lab-scheduler"])
def test_a_trace_is_compared_line_by_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    tape = TAPES / "recorded" / f"{name}.jsonl.gz"
    code, lines, _ = said(capsys, str(tape), "--against", str(tape.with_name(f"{name}.trace.jsonl")))

    assert (code, len(lines)) == (0, 1)


def test_a_changed_weight_is_a_readable_difference(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab.write_bytes(lab.read_bytes().replace(b'"weight_tps":0.7', b'"weight_tps":0.9', 1))

    code, lines, _ = said(capsys, str(lab), "--diff")

    assert code == 4
    assert lines[0] == "placement default/bench-meta-llama-3-1-8b-instruct-gguf-e1c5ba2d4409-5ywbx: decided differently"
    assert "  candidates[0].terms[0].weight: 0.7 → 0.9" in lines
    assert lines[-1] == "0 of 3 recorded decisions are decided again: 3 differ"


def test_other_weights_show_what_changes_and_what_it_costs(capsys: pytest.CaptureFixture[str]) -> None:
    silence = TAPES / "scheduler" / "silence.jsonl"
    code, lines, _ = said(capsys, str(silence), "--weights", "weights.tps=0")

    assert code == 4
    assert "fast → slow" in lines[0]
    assert "points behind by the recorded weights; speed 100 → " in lines[0]
    assert "placements would be decided otherwise; by the recorded weights they score" in lines[-1]


def test_the_recorded_weights_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = said(capsys, str(BURST), "--weights", "tps=0.7")

    assert (code, lines) == (0, ["0 of 4 placements would be decided otherwise"])


def test_a_policy_file_is_weights_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("weights:\n  tps: 0\n  kvCache: 0.3\n")

    code, _, _ = said(capsys, str(TAPES / "scheduler" / "silence.jsonl"), "--policy", str(policy))
    assert code == 4


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--weights", "speed=1"], "no weight 'speed'; weights are tps, util, cost, kvCache, vramFree, cache"),
        (["--weights", "tps"], "'tps' is no weight"),
        (["--until", "noon"], "'noon' is no moment; write Unix seconds, 2026-11-29T19:16:00 or +90s"),
        (["--until", "+soon"], "'soon' is not a duration"),
        (["--against", str(NIGHT)], f"{NIGHT} holds no decision of this scheduler"),
        (["--against", "/nowhere/at/all"], "No such file or directory"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, err = said(capsys, str(LAB), *argv)

    assert (code, lines) == (1, [])
    assert sentence in err
    assert err.count("\n") == 1


def test_a_broken_policy_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("- 1", "{", "weights: 3"):
        policy = tmp_path / "p.yaml"
        policy.write_text(text)
        code, _, err = said(capsys, str(LAB), "--policy", str(policy))
        assert code == 1
        assert str(policy) in err


def test_up_to_a_moment(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(said(capsys, str(NIGHT), "--until", "+30s")[1]) > 1
    whole = said(capsys, str(NIGHT))[1]
    some = said(capsys, str(NIGHT), "--until", "2027-01-15T08:00:31")[1]
    same = said(capsys, str(NIGHT), "--until", "1800000031")[1]

    assert some == same
    assert some[1:] == whole[1 : len(some)]
    assert len(some) < len(whole)


def test_about_a_node(capsys: pytest.CaptureFixture[str]) -> None:
    _, lines, _ = said(capsys, str(LAB), "--node", "rtx3060")

    assert len(lines) == 2
    assert "rtx3060" in lines[1]


def test_a_tape_of_the_bus_decides_nothing_but_can_be_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tape = tmp_path / "bus.jsonl"
    tape.write_bytes(
        b'{"tape":"flexinfer","version":1,"component":"recorder","instance":"y","release":"0","started":0}\n'
    )
    code, _, err = said(capsys, str(tape))

    assert code == 1
    assert "a tape of 'recorder' cannot be replayed" in err
    assert list(events_of(load(tape))) == []


def test_a_played_extender_says_its_decisions() -> None:
    events = [event for _, event in events_of(load(LAB))]

    assert [event.data.pod for event in events if event.type.endswith("decided.v1")] == [
        "bench-meta-llama-3-1-8b-instruct-gguf-e1c5ba2d4409-5ywbx",
        "bench-meta-llama-3-1-8b-instruct-gguf-3dac456b6624-pfwqn",
        "llama3-8b-rvjz7nqrpw-wf86v",
    ]  # fmt: skip
    assert len({event.id for event in events}) == len(events)


def test_fields_that_differ_are_named() -> None:
    old = {"a": 1, "b": [{"c": 2}, {"c": 3}], "d": "x" * 100}
    new = {"a": 1, "b": [{"c": 2}, {"c": 4}], "e": None, "d": "y"}

    assert list(fields(old, new)) == ["b[1].c: 3 → 4", f'd: "{"x" * 76}... → "y"']
