"""Tapes in tests: load one, replay it through the reducers of the real executables, compare what they decided.

>>> from pathlib import Path
>>> from flexinfer.testing.replay import assert_trace
>>> assert_trace(Path("tests/tapes/manager-late-boot.jsonl"), Path("tests/tapes/manager-late-boot.golden.jsonl"))

A trace has one JSON line per decision. The same tape gives the same bytes, in any process.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from flexinfer.contracts.events import ModelPhase
from flexinfer.contracts.topics import TOPIC_OF
from flexinfer.runtime.journal import BadLine, Fact, Header, Tape, read_tape
from flexinfer.testing.replay_manager import Body, ManagerReplay
from flexinfer.testing.replay_proxy import ProxyReplay
from flexinfer.testing.replay_scheduler import SchedulerReplay

__all__ = ["BadLine", "NotReplayable", "Step", "Tape", "assert_trace", "load", "replay", "trace"]

DIFF_LINES = 60
DIFF_WIDTH = 400

_encode = msgspec.json.Encoder(order="deterministic").encode
_PHASE = TOPIC_OF[ModelPhase].name


class NotReplayable(ValueError):
    """A tape of a component that decides nothing here, or with settings that make no sense; the text says which."""


class Step(Struct, frozen=True, kw_only=True):
    """One decision. ``at``: Unix seconds on the clock of the recorded process; ``key``: the pod or model.

    ``kind`` and ``data``: ``placement`` a PlacementDecided payload; ``preemption`` the answer to kube-scheduler;
    ``phase`` a ModelPhase payload; ``effect`` what the manager does, with ``do``; ``route`` a ModelEndpoint payload,
    None when it is gone.
    """

    at: float
    kind: str
    key: str
    data: Any

    def line(self) -> bytes:
        """One line of a trace, without its newline."""
        return _encode(self)


Player = Callable[[float, Fact], Iterator[Step]]


def load(path: Path) -> Tape:
    """A tape from disk; its unreadable lines are in ``bad``. Raises BadLine for a foreign or newer one, OSError."""
    return read_tape(path)


def replay(tape: Tape) -> Iterator[Step]:
    """Every decision in order, as it is taken. Raises NotReplayable."""
    play = player(tape.header)  # refused here, not at the first step
    return (step for at, fact in tape.facts for step in play(at, fact))


def player(header: Header) -> Player:
    """What folds facts as this component does and tells what it decides. Raises NotReplayable."""
    makers = {"scheduler": _scheduler, "manager": _manager, "proxy": _proxy}
    make = makers.get(header.component)
    if make is None:
        raise NotReplayable(f"a tape of {header.component!r} cannot be replayed, only of {', '.join(sorted(makers))}")
    try:
        return make(header)
    except (ValueError, TypeError) as err:
        reason = " ".join(str(err).split())
        raise NotReplayable(f"the settings in the tape of {header.component!r} make no sense: {reason}") from err


def trace(tape: Tape | Iterable[Step]) -> bytes:
    """The lines of all steps."""
    steps = replay(tape) if isinstance(tape, Tape) else tape
    return b"".join(step.line() + b"\n" for step in steps)


def assert_trace(tape: Path | Tape, golden: Path) -> None:
    """Raises AssertionError with a diff if the trace is not the one in ``golden``, or if the tape has bad lines."""
    found = load(tape) if isinstance(tape, Path) else tape
    if found.bad:
        raise AssertionError("\n".join(str(bad) for bad in found.bad))
    now, before = trace(found), golden.read_bytes() if golden.exists() else b""
    if now != before:
        raise AssertionError(f"the trace differs from {golden}:\n{_diff(before, now)}")


def _diff(before: bytes, now: bytes) -> str:
    """A unified diff, field by field where only fields changed."""
    old, new = ([*map(_spread, text.decode().splitlines())] for text in (before, now))
    lines = difflib.unified_diff([x for s in old for x in s], [x for s in new for x in s], "golden", "now", lineterm="")
    shown = [line if len(line) <= DIFF_WIDTH else line[:DIFF_WIDTH] + " ..." for line in lines]
    rest = len(shown) - DIFF_LINES
    return "\n".join([*shown[:DIFF_LINES], *([f"... and {rest} more lines"] if rest > 0 else [])])


def _spread(line: str) -> list[str]:
    try:
        return msgspec.json.format(line, indent=1).splitlines()
    except msgspec.DecodeError:
        return [line]


def _scheduler(header: Header) -> Player:
    extender = SchedulerReplay(header.settings)

    def play(at: float, fact: Fact) -> Iterator[Step]:
        answer = extender.feed(at, fact)
        if answer is not None and answer[0] == "preempt":
            yield Step(at=at, kind="preemption", key="", data=msgspec.json.decode(answer[1]))
        for decided in extender.decided():
            yield Step(at=at, kind="placement", key=f"{decided.namespace}/{decided.pod}", data=decided)

    return play


def _manager(header: Header) -> Player:
    manager = ManagerReplay(header.settings)

    def play(at: float, fact: Fact) -> Iterator[Step]:
        for key, body in manager.feed(at, fact):
            yield _effect(at, "/".join(part for part in key if part), body)

    return play


def _effect(at: float, key: str, body: Body) -> Step:
    if body.get("type") == _PHASE:
        return Step(at=at, kind="phase", key=key, data=body["data"])
    return Step(at=at, kind="effect", key=key, data=body)


def _proxy(header: Header) -> Player:
    proxy = ProxyReplay(header.instance)

    def play(at: float, fact: Fact) -> Iterator[Step]:
        for key, spec in proxy.feed(at, fact):
            yield Step(at=at, kind="route", key=key, data=spec)

    return play
