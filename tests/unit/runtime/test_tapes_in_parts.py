"""Tapes of executables in parts: by size, age and count, packed, and replayed as if they were one."""

from pathlib import Path

import pytest

from flexinfer.cli import run_command
from flexinfer.config.manager import ManagerSettings
from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import NodeHardware, NodeStatus
from flexinfer.contracts.kubernetes import KubeDelta
from flexinfer.ports import Relisted, Snapshot
from flexinfer.runtime.journal import Header, Journal, read_tape
from flexinfer.runtime.parts import Limits, PartedJournal, following, journal_for, order, read_parts, runs
from flexinfer.testing.replay import load, trace

TAPES = Path(__file__).parents[2] / "tapes"
START = 1_800_000_000.0
HEADER = Header(tape="flexinfer", version=1, component="agent", instance="n1", release="0", started=START)
NODE = {"metadata": {"name": "n1"}}


def parted(folder: Path, tape: Path, size: int, *, keep: int = 0, compress: bool = True) -> list[Path]:
    """A recorded tape written again in parts of this size."""
    found = load(tape)
    journal = PartedJournal(folder, found.header, Limits(size=size, keep=keep), compress=compress)
    for at, fact in found.facts:
        journal.write(at, fact)
    journal.close()
    return sorted(folder.iterdir(), key=order)


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize(
    "name", ["recorded/home-lab-manager.jsonl.gz", "recorded/home-lab-scheduler.jsonl.gz",
             "recorded/home-lab-proxy.jsonl.gz", "by-hand/bad-night-scheduler.jsonl"],
)  # fmt: skip
def test_parts_are_replayed_to_the_same_bytes(name: str, compress: bool, tmp_path: Path) -> None:
    parts = parted(tmp_path, TAPES / name, 5_000, compress=compress)

    assert len(parts) > 2
    assert [part.name.endswith(".jsonl.gz") for part in parts] == [*[compress] * (len(parts) - 1), False]
    whole = read_parts(parts)
    assert whole.bad == ()
    assert whole.facts == load(TAPES / name).facts
    assert trace(whole) == trace(load(TAPES / name))


@pytest.mark.parametrize("how", ["first", "directory", "pattern"])
def test_the_command_finds_the_parts(how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tape = TAPES / "recorded" / "home-lab-manager.jsonl.gz"
    parts = parted(tmp_path, tape, 100_000)
    named = {"first": parts[0], "directory": tmp_path, "pattern": tmp_path / "manager-*"}[how]

    assert run_command(["replay", str(named), "--output", "json"]) == 0
    assert capsys.readouterr().out == tape.with_name("home-lab-manager.trace.jsonl").read_text()


def test_a_pattern_of_two_runs_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["replay", str(TAPES / "recorded" / "demo-*.gz")]) == 1
    assert "matches more than one tape; name one: demo-manager.jsonl.gz, " in capsys.readouterr().err


def test_a_missing_part_is_named_and_the_rest_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = parted(tmp_path, TAPES / "recorded" / "home-lab-manager.jsonl.gz", 100_000)
    assert len(parts) > 3
    parts[1].unlink()

    assert run_command(["replay", str(parts[0])]) == 3
    told = capsys.readouterr()
    assert f"of {parts[2].name}: the part before it is missing, facts are lost" in told.err
    assert len(told.out.splitlines()) > 10


def test_a_damaged_part_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    parts = parted(tmp_path, TAPES / "recorded" / "home-lab-manager.jsonl.gz", 100_000)
    parts[1].write_bytes(b"no tape")
    parts[2].write_bytes(parts[2].read_bytes()[:-100])

    bad = [str(line) for line in read_parts(parts).bad]
    assert f"line 1: of {parts[1].name}: this is no FlexInfer tape" in bad[0]
    assert f"of {parts[2].name}: the part before it is missing" in bad[1]
    assert f"of {parts[2].name}: the compressed file is damaged from here on" in bad[2]


def test_the_oldest_go_and_the_first_that_is_left_holds_the_state(tmp_path: Path) -> None:
    tape = TAPES / "recorded" / "home-lab-scheduler.jsonl.gz"
    parts = parted(tmp_path, tape, 30_000, keep=2)

    assert len(parts) == 3
    assert read_tape(parts[0]).header.number > 1
    found = read_parts(parts)
    assert found.bad == ()
    kinds = [type(fact).__name__ for _, fact in found.facts[: found.again]]
    assert kinds == ["Relisted", "Relisted", "Snapshot"]
    assert trace(load(tape)).endswith(trace(found))
    assert trace(found)


def test_what_stands_is_repeated_at_the_beginning_of_a_part(tmp_path: Path) -> None:
    mint = EventMint.start("agent", "n1", "boot-1", lambda: START)
    first, second = (mint.mint(NodeHardware(node=name)) for name in ("n1", "n2"))
    status = mint.mint(NodeStatus(node="n1", state="online"))
    journal = PartedJournal(tmp_path, HEADER, Limits(age=10.0), compress=False)
    journal.write(START, Relisted("nodes", (NODE, {"metadata": {"name": "n2"}})))
    journal.write(START, Snapshot((NodeHardware, NodeStatus), (first, second), 1))
    journal.write(START + 1, KubeDelta(plural="nodes", action="DELETED", object={"metadata": {"name": "n2"}}))
    journal.write(START + 2, Snapshot((NodeHardware,), (first,), 2))
    journal.write(START + 10, status)
    journal.write(START + 20, status)
    journal.close()

    parts = sorted(tmp_path.iterdir(), key=order)
    assert [part.name for part in parts] == [f"agent-n1-{int(START * 1000)}{x}.jsonl" for x in ("", ".0002", ".0003")]
    third = read_tape(parts[2])
    assert third.again == 2
    assert third.facts == (
        (START + 20, Relisted("nodes", (NODE,))),
        (START + 20, Snapshot((NodeHardware, NodeStatus), (first, status), 2)),
        (START + 20, status),
    )
    assert [part.name for part in following(parts[1])] == [part.name for part in parts[1:]]


def test_a_state_that_is_larger_than_a_part_does_not_make_parts_of_it_alone(tmp_path: Path) -> None:
    journal = PartedJournal(tmp_path, HEADER, Limits(size=1), compress=False)
    for step in range(3):
        journal.write(START + step, Relisted("nodes", (NODE,)))
    journal.close()

    assert [len(read_tape(path).facts) for path in sorted(tmp_path.iterdir(), key=order)] == [1, 2, 2]


def test_a_next_part_that_cannot_be_opened_is_written_into_this_one(tmp_path: Path) -> None:
    folder = tmp_path / "tapes"
    journal = PartedJournal(folder, HEADER, Limits(size=1), compress=False)
    journal.write(START, Relisted("nodes", (NODE,)))
    (folder / "agent-n1-1800000000000.0002.jsonl").mkdir()
    journal.write(START + 1, Relisted("nodes", ()))
    journal.close()

    assert len(read_tape(journal.path).facts) == 2


def test_other_instances_are_not_pruned_and_are_runs_of_their_own(tmp_path: Path) -> None:
    for instance in ("n1", "n1-2"):
        for started in (1.0, 2.0, 3.0):
            Journal.open(
                tmp_path, Header(tape="flexinfer", version=1, component="agent", instance=instance, release="0",
                                 started=started),
            ).close()  # fmt: skip
    journal = PartedJournal(tmp_path, HEADER, Limits(size=1, keep=1), compress=True)
    journal.write(START, Relisted("nodes", ()))
    journal.write(START, Relisted("nodes", ()))
    journal.close()

    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [
        "agent-n1-1800000000000.0002.jsonl", "agent-n1-1800000000000.jsonl.gz",
        "agent-n1-2-1000.jsonl", "agent-n1-2-2000.jsonl", "agent-n1-2-3000.jsonl",
    ]  # fmt: skip
    assert [len(run) for run in runs(list(tmp_path.iterdir()))] == [2, 1, 1, 1]


def test_settings_say_when(tmp_path: Path) -> None:
    assert journal_for(ManagerSettings(), "manager", "m", START) is None
    journal = journal_for(
        ManagerSettings(record=tmp_path, record_max_size=0, record_max_age=5.0, record_compress=False),
        "manager", "m", START,
    )  # fmt: skip
    assert journal is not None
    for step in range(11):
        journal.write(START + step, Relisted("nodes", ()))
    journal.close()

    assert len(list(tmp_path.iterdir())) == 3
    assert read_tape(journal.path).header.settings["record_max_age"] == 5.0
