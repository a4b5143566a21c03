"""A tape gives back what was folded, and a damaged one gives back the rest."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import NodeHardware, NodeTelemetry
from flexinfer.contracts.kubernetes import KubeDelta
from flexinfer.ports import Relisted, Snapshot
from flexinfer.runtime.journal import (
    BadLine,
    Fact,
    Header,
    Journal,
    Tick,
    Webhook,
    decode_line,
    encode_line,
    read_tape,
)

MINT = EventMint.start("agent", "n1", "b1", lambda: 1_700_000_000.25)
HEADER = Header(tape="flexinfer", version=1, component="scheduler", instance="s0", release="0.1.0", started=1.5)
FACTS: list[Fact] = [
    MINT.mint(NodeTelemetry(node="n1", interval_seconds=2)),
    Snapshot((NodeHardware, NodeTelemetry), (MINT.mint(NodeHardware(node="n1")),), 3),
    KubeDelta(plural="pods", action="DELETED", object={"metadata": {"name": "p"}}),
    Relisted("nodes", ({"metadata": {"name": "n1"}},)),
    Webhook(path="/filter", body='{"Pod":null}'),
    Tick(key="default/m"),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda f: type(f).__name__)
def test_a_line_gives_back_its_fact(fact: Fact) -> None:
    assert decode_line(encode_line(12.5, fact)) == (12.5, fact)


def _record(folder: Path) -> Path:
    journal = Journal.open(folder, HEADER)
    for at, fact in enumerate(FACTS):
        journal.write(float(at), fact)
    journal.close()
    return journal.path


def test_a_tape_gives_back_every_fact_in_order(tmp_path: Path) -> None:
    tape = read_tape(_record(tmp_path))

    assert tape.header == HEADER
    assert tape.facts == tuple((float(at), fact) for at, fact in enumerate(FACTS))
    assert tape.bad == ()


def test_the_same_facts_make_the_same_bytes(tmp_path: Path) -> None:
    assert _record(tmp_path / "a").read_bytes() == _record(tmp_path / "b").read_bytes()


def test_a_truncated_last_line_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = _record(tmp_path)
    path.write_bytes(path.read_bytes()[:-7])

    tape = read_tape(path)

    assert len(tape.facts) == len(FACTS) - 1
    assert [bad.number for bad in tape.bad] == [len(FACTS) + 1]


def test_a_corrupt_line_in_the_middle_costs_only_itself(tmp_path: Path) -> None:
    path = _record(tmp_path)
    lines = path.read_bytes().splitlines()
    lines[2] = b'{"at": 1, "kind": "surprise", "body": {}}'
    path.write_bytes(b"\n".join(lines) + b"\n")

    tape = read_tape(path)

    assert len(tape.facts) == len(FACTS) - 1
    assert tape.bad[0].number == 3
    assert "surprise" in tape.bad[0].reason


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"\x00\x01", "no FlexInfer tape"),
        (b'{"hello": 1}', "no FlexInfer tape"),
        (b"", "no FlexInfer tape"),
        (
            b'{"tape":"flexinfer","version":9,"component":"x","instance":"y","release":"9","started":0}',
            "newer than this release reads",
        ),
    ],
)
def test_foreign_and_newer_tapes_are_refused_with_the_reason(tmp_path: Path, first: bytes, reason: str) -> None:
    path = tmp_path / "tape.jsonl"
    path.write_bytes(first + b"\n")

    with pytest.raises(BadLine, match=reason):
        read_tape(path)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_fact_or_a_bad_line(raw: bytes) -> None:
    with suppress(BadLine):
        decode_line(raw, 7)
