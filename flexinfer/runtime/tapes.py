"""Tapes as a source of bus facts: what of an intake journal was said on the bus, for viewers and players."""

from collections.abc import Iterator
from pathlib import Path

from flexinfer.contracts.envelope import Event
from flexinfer.ports import BusFact, Snapshot
from flexinfer.runtime.journal import BadLine, Tape
from flexinfer.runtime.parts import following, read_parts, runs

SUFFIXES = (".jsonl", ".jsonl.gz")


def files_of(path: Path) -> list[Path]:
    """The file itself, or all tapes of a directory by name (traces left out). Raises OSError."""
    if not path.is_dir():
        return [path]
    return sorted(
        found for found in path.iterdir() if found.name.endswith(SUFFIXES) and ".trace." not in found.name
    )  # fmt: skip


def tapes_of(path: Path) -> Iterator[tuple[Path, Tape]]:
    """Each tape, the parts of a run as one. Foreign files in a directory are passed over, unless there is nothing else.

    Raises OSError, BadLine.
    """
    last: BadLine | None = None
    count = 0
    for parts in runs(files_of(path)) if path.is_dir() else [following(path)]:
        try:
            tape = read_parts(parts)
        except BadLine as err:
            last = err
            continue
        count += 1
        yield parts[0], tape
    if not count:
        raise last or BadLine(1, "there is no tape here; --record DIR and flexinfer events record write them")


def bus_facts(tape: Tape) -> Iterator[tuple[float, BusFact]]:
    """Events and snapshots of a tape with the moment they were folded."""
    for at, fact in tape.facts:
        if isinstance(fact, Event | Snapshot):
            yield at, fact
