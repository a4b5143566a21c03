"""``flexinfer replay TAPE``: what a recorded process decided, decided again by the same reducers."""

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import yaml

from flexinfer.config.common import parse_duration
from flexinfer.config.people import ReplaySettings
from flexinfer.core.placement.explanation import parse_weights
from flexinfer.local import playing
from flexinfer.local.nats_server import BusNotInstalled, BusNotStarted
from flexinfer.local.replay_words import line
from flexinfer.ports import BusUnavailable
from flexinfer.runtime.documents import document
from flexinfer.runtime.parts import following, read_parts, runs
from flexinfer.runtime.process import fail
from flexinfer.runtime.tapes import SUFFIXES
from flexinfer.testing.comparing import (
    SHOWN_FIELDS,
    Changes,
    about,
    compare,
    fields,
    otherwise,
    recorded,
    trace_of,
    until,
    what_of,
)
from flexinfer.testing.replay import BadLine, NotReplayable, Step, Tape, replay

SOME_LINES_LOST = 3
DIFFERENT = 4


async def run(settings: ReplaySettings) -> int:
    """0 if every line was read, 3 if some were not, 4 if a comparison finds differences, 1 if the tape is none."""
    if settings.tape is None:
        return fail(
            "flexinfer replay: name a tape; --record DIR of manager, extender, proxy and flexinfer up writes one, "
            "flexinfer events record another", 2
        )  # fmt: skip
    try:
        files = _files(settings.tape)
        tape = read_parts(files)
        if settings.until:
            tape = until(tape, _moment(settings.until, tape.header.started))
        code = await _do(settings, files[0], tape)
    except OSError as err:
        if isinstance(err, BrokenPipeError):
            return 0
        return fail(f"flexinfer replay: {err.filename or settings.tape}: {err.strerror or err}")
    except (BadLine, NotReplayable, ValueError, BusNotInstalled, BusNotStarted, BusUnavailable) as err:
        return fail(f"flexinfer replay: {settings.tape}: {getattr(err, 'reason', err)}")
    for bad in tape.bad:
        sys.stderr.write(f"flexinfer replay: {settings.tape}: {bad}\n")
    return code or (SOME_LINES_LOST if tape.bad else 0)


async def _do(settings: ReplaySettings, path: Path, tape: Tape) -> int:
    if settings.serve:
        return await playing.serve(tape, settings.speed, settings.port)
    weights = _weights(settings)
    if weights:
        return _what_if(tape, weights, settings.output)
    if settings.diff or settings.against:
        return _compare(settings, path, tape)
    steps: Iterator[Step] = replay(tape)
    if settings.output == "text":
        _say(_title(tape))
    for step in steps:
        if not settings.node or about(step, settings.node):
            _say(_shown(step, settings.output))
    return 0


def _shown(step: Step, output: str) -> str:
    if output == "text":
        return line(step)
    return step.line().decode() if output == "json" else document(step, "yaml").rstrip()


def _files(path: Path) -> list[Path]:
    """The parts of one run in order: a tape and those after it, or all there are in a directory or by a pattern, if
    they are of one run. Raises OSError."""
    if path.is_dir():
        found = [one for one in path.iterdir() if one.name.endswith(SUFFIXES) and ".trace." not in one.name]
        complaint = "is a directory; name one of its tapes"
    elif not path.exists() and set(path.name) & set("*?["):
        found, complaint = list(path.parent.glob(path.name)), "matches more than one tape; name one"
    else:
        return following(path)
    tapes = runs(found)
    if len(tapes) != 1:
        names = ", ".join(sorted(parts[0].name for parts in tapes)) or "none"
        raise IsADirectoryError(0, f"{complaint}: {names}")
    return tapes[0]


def _moment(text: str, started: float) -> float:
    """Raises ValueError."""
    if text.startswith("+"):
        return started + float(str(parse_duration(text[1:])))
    if re.fullmatch(r"[0-9.]+", text):
        return float(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no moment; write Unix seconds, 2026-11-29T19:16:00 or +90s") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _weights(settings: ReplaySettings) -> dict[str, float]:
    """Raises ValueError, OSError."""
    found: dict[str, float] = {}
    if settings.policy:
        try:
            document = yaml.safe_load(settings.policy.read_text())
        except (yaml.YAMLError, UnicodeDecodeError) as err:
            raise ValueError(f"{settings.policy} is no YAML: {err}") from None
        weights = document.get("weights", document) if isinstance(document, dict) else None
        if not isinstance(weights, dict):
            raise ValueError(f"{settings.policy} holds no weights; write for example tps: 0.7")
        found = parse_weights([f"{name}={value}" for name, value in weights.items()])
    return found | parse_weights([settings.weights])


def _what_if(tape: Tape, weights: dict[str, float], output: str) -> int:
    found = otherwise(tape, weights)
    if output != "text":
        _say_documents(found, "json" if output == "json" else "yaml")
        return DIFFERENT if found.others else 0
    for other in found.others:
        _say(f"{_clock(other.at)} {other.line}")
    behind = [other.lost for other in found.others if other.lost is not None]
    mean = (
        f"; by the recorded weights they score {sum(behind) / len(behind):.1f} points less on average" if behind else ""
    )
    if found.then.pods:
        _say(f"recorded weights: {found.then.line}")
        _say(f"other weights:    {found.now.line}")
    _say(f"{len(found.others)} of {found.count} placements would be decided otherwise{mean}")
    return DIFFERENT if found.others else 0


def _say_documents(found: Changes, output: Literal["json", "yaml"]) -> None:
    """One document for each placement that changes, then one of the totals."""
    bills = {
        name: {
            "pods": bill.pods, "nodes": bill.nodes, "costPerHour": bill.per_hour,
            "costPerMillionTokens": bill.per_million, "unpriced": bill.unpriced,
        }
        for name, bill in (("then", found.then), ("now", found.now))
    }  # fmt: skip
    totals = {"placements": found.count, "changed": len(found.others), **bills}
    for told in (*(other.document() for other in found.others), totals):
        sys.stdout.write(document(told, output))


def _compare(settings: ReplaySettings, path: Path, tape: Tape) -> int:
    against = settings.against or path.parent
    if settings.against and settings.against.is_file() and _is_trace(settings.against):
        then = trace_of(settings.against)
    else:
        then = list(recorded(tape, [against]))
    if not then:
        raise ValueError(
            f"nothing tells what was decided then: {against} holds no decision of this {tape.header.component}"
        )
    found = compare(then, replay(tape))
    for old, new in found.changed:
        name = what_of(old.data) or f"{old.kind} {old.key}"
        _say(f"{name}: decided differently" if new is not None else f"{name}: not decided")
        if new is not None:
            lines = list(fields(old.data, new))
            for text in lines[:SHOWN_FIELDS]:
                _say(f"  {text}")
            if len(lines) > SHOWN_FIELDS:
                _say(f"  ... and {len(lines) - SHOWN_FIELDS} more fields")
    more = f"; {found.more} more were decided now, which no tape tells" if found.more else ""
    verdict = "identical, byte for byte" if not found.changed else f"{len(found.changed)} differ"
    _say(f"{found.same} of {len(then)} recorded decisions are decided again: {verdict}{more}")
    return DIFFERENT if found.changed else 0


def _is_trace(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(6) == b'{"at":'


def _title(tape: Tape) -> str:
    head = tape.header
    first = f"{head.component} {head.instance}, recorded by release {head.release} from {_date(head.started)}"
    return f"{first}, {len(tape.facts)} facts"


def _date(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
