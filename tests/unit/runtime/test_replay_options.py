"""``flexinfer replay`` beyond a trace: compared with then, under other weights, up to a moment, about a node."""

import gzip
from functools import partial
from pathlib import Path

import msgspec
import pytest
import yaml

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
    assert lines[0].endswith("; unpriced")
    assert lines[1:3] == [
        "recorded weights: 4 pods on 1 nodes: unpriced",
        "other weights:    4 pods on 2 nodes: unpriced",
    ]
    assert "points behind by the recorded weights; speed 100 → " in lines[0]
    assert "placements would be decided otherwise; by the recorded weights they score" in lines[-1]


def test_the_recorded_weights_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = said(capsys, str(BURST), "--weights", "tps=0.7")

    assert (code, lines[-1]) == (0, "0 of 4 placements would be decided otherwise")


def priced(folder: Path, **prices: str) -> Path:
    """A tape whose nodes have prices."""
    text = (TAPES / "scheduler" / "silence.jsonl").read_text()
    for node, price in prices.items():
        plain = f'{{"metadata":{{"name":"{node}"}}}}'
        assert plain in text
        note = f'{{"metadata":{{"name":"{node}","annotations":{{"flexinfer.ai/cost":"{price}"}}}}}}'
        text = text.replace(plain, note)
    (folder / "priced.jsonl").write_text(text)
    return folder / "priced.jsonl"


def test_what_other_weights_cost_in_money(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = said(capsys, str(priced(tmp_path, fast="2.088", slow="0.054")), "--weights", "tps=0,cost=0")

    assert code == 4
    assert lines[0].endswith("; 2.09 → 0.054 per hour, 10.00 → 1.50 per million tokens")
    assert lines[1] == "recorded weights: 4 pods on 1 nodes: 2.09 per hour, 2.50 per million tokens"
    assert lines[2].startswith("other weights:    4 pods on 2 nodes: 2.14 per hour, ")


def test_a_node_without_a_price_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, lines, _ = said(capsys, str(priced(tmp_path, fast="2.088")), "--weights", "tps=0,cost=0")

    assert lines[0].endswith("; 2.09 → unpriced per hour, 10.00 → unpriced per million tokens")
    assert lines[2].startswith("other weights:    4 pods on 2 nodes: 2.09 per hour, ")
    assert lines[2].endswith(" per million tokens; unpriced: slow")


def test_prices_are_for_programs_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tape = str(priced(tmp_path, fast="2.088", slow="0.054"))
    _, lines, _ = said(capsys, tape, "--weights", "tps=0,cost=0", "--output", "json")

    change, totals = map(msgspec.json.decode, lines)
    assert change["pod"] == "after"
    assert change["then"] == {"node": "fast", "costPerHour": 2.088, "costPerMillionTokens": pytest.approx(10.0)}
    assert change["now"] == {"node": "slow", "costPerHour": 0.054, "costPerMillionTokens": pytest.approx(1.5)}
    assert (totals["placements"], totals["changed"]) == (4, 1)
    assert totals["then"]["costPerHour"] == 2.088
    assert totals["now"]["unpriced"] == []


def test_other_weights_on_a_tape_without_placements(capsys: pytest.CaptureFixture[str]) -> None:
    proxy = TAPES / "recorded" / "home-lab-proxy.jsonl.gz"

    assert said(capsys, str(proxy), "--weights", "tps=1")[:2] == (0, ["0 of 0 placements would be decided otherwise"])


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


def test_yaml_is_the_trace_too(capsys: pytest.CaptureFixture[str]) -> None:
    run_command(["replay", str(LAB), "-o", "json"])
    trace = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert run_command(["replay", str(LAB), "-o", "yaml"]) == 0

    assert list(yaml.safe_load_all(capsys.readouterr().out)) == trace
