"""``flexinfer replay TAPE``: what a recorded process decided, decided again by the same reducers."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flexinfer.config.people import ReplaySettings
from flexinfer.core.placement.explanation import sentence
from flexinfer.runtime.process import fail
from flexinfer.testing.replay import BadLine, NotReplayable, Step, Tape, load, replay

SOME_LINES_LOST = 3


async def run(settings: ReplaySettings) -> int:
    """0 if every line was read, 3 if some were not, 1 if the tape is none of ours."""
    if settings.tape is None:
        return fail(
            "flexinfer replay: name a tape; --record DIR of manager, extender, proxy and flexinfer up writes one", 2
        )
    try:
        tape = load(_file(settings.tape))
        steps = replay(tape)
        if settings.output == "text":
            _say(_title(tape))
        for step in steps:
            _say(line(step) if settings.output == "text" else step.line().decode())
    except OSError as err:
        if isinstance(err, BrokenPipeError):
            return 0
        return fail(f"flexinfer replay: {settings.tape}: {err.strerror or err}")
    except (BadLine, NotReplayable) as err:
        return fail(f"flexinfer replay: {settings.tape}: {getattr(err, 'reason', err)}")
    for bad in tape.bad:
        sys.stderr.write(f"flexinfer replay: {settings.tape}: {bad}\n")
    return SOME_LINES_LOST if tape.bad else 0


def _file(path: Path) -> Path:
    """The only tape of a directory, if it is one. Raises OSError."""
    if not path.is_dir():
        return path
    tapes = sorted(found for found in path.iterdir() if found.name.endswith((".jsonl", ".jsonl.gz")))
    if len(tapes) != 1:
        names = ", ".join(found.name for found in tapes) or "none"
        raise IsADirectoryError(0, f"is a directory; name one of its tapes: {names}")
    return tapes[0]


def _title(tape: Tape) -> str:
    head = tape.header
    first = f"{head.component} {head.instance}, recorded by release {head.release} from {_date(head.started)}"
    return f"{first}, {len(tape.facts)} facts"


def _date(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def line(step: Step) -> str:
    """``12:34:56.789 placement  default/pod  n1 leads 2 of 3 nodes ...``, on one line."""
    when = datetime.fromtimestamp(step.at, UTC)
    text = " ".join(_WORDS[step.kind](step.data).split())
    return f"{when:%H:%M:%S}.{when.microsecond // 1000:03d} {step.kind:<10} {step.key}  {text}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _preemption(data: dict[str, Any]) -> str:
    names = sorted(data.get("NodeNameToMetaVictims") or {})
    return f"evictions would help on {', '.join(names)}" if names else "evictions would help nowhere"


def _phase(data: dict[str, Any]) -> str:
    if data.get("gone"):
        return "gone"
    change = f"{data['previous']} → {data['phase']}" if data.get("previous") else str(data["phase"])
    return f"{change} ({data['reason']}): {data['message']}"


def _effect(data: dict[str, Any]) -> str:
    match data.get("do"):
        case "Note":
            return f"{data['type']} event {data['reason']}: {data['message']}"
        case "Publish":
            return f"publish {data['type'].removeprefix('ai.flexinfer.')}{_published(data['data'])}"
        case "Error":
            return f"planning failed: {data['error']}"
        case _:
            meta = (data.get("body") or {}).get("metadata") or {}
            names = [data.get("namespace") or meta.get("namespace"), data.get("name") or meta.get("name")]
            part = f"/{data['subresource']}" if data.get("subresource") else ""
            return f"{data['do'].lower()} {data['resource']['kind']}{part} {'/'.join(filter(None, names))}"


def _published(data: dict[str, Any]) -> str:
    if data.get("gone"):
        return f" {data.get('namespace')}/{data.get('model')}: gone"
    if "endpoints" in data:
        return f" {data['namespace']}/{data['model']}: {_endpoints(data['endpoints'])}"
    return ""


def _endpoints(entries: list[dict[str, Any]]) -> str:
    return ", ".join(f"{entry['url']} {entry['state']}" for entry in entries) or "no endpoint"


def _route(spec: Any) -> str:
    if spec is None:
        return "gone"
    return ", ".join(f"{entry.url} {entry.state}" for entry in spec.endpoints) or "no endpoint, waits for demand"


def _placement(decided: Any) -> str:
    return f"{decided.outcome}: {sentence(decided)}"


_WORDS: dict[str, Callable[[Any], str]] = {
    "placement": _placement,
    "preemption": _preemption,
    "phase": _phase,
    "effect": _effect,
    "route": _route,
}
