"""docs/numbers.md from the result files: each goal, our figure, what stood beside it in the same run, met or missed.

    python -m benchmarks --page

What is read from which file is numbers_rows.py; why a goal is missed is WHY, kept here because a figure cannot tell.
A row whose figure is not in its file says so.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numbers_rows import EXTENDER, MANAGER, PROXIES, REST, Row, Section
from numbers_scale import PLACEMENT, SCALE, on_paper

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "numbers.md"
SECTIONS = (EXTENDER, SCALE, PLACEMENT, MANAGER, PROXIES, REST)
ABSENT = (KeyError, IndexError, TypeError, ValueError, StopIteration, ZeroDivisionError)

# Row -> why it is missed; shown only while it is.
WHY: dict[str, str] = {
    "`/filter`, 200 names, new demand": (
        "What a request costs whatever its length (decoding the pod, deciding, keeping the decision for `/explain`) is "
        "as much as the echo of so few bytes takes. In absolute terms it is under half a millisecond."
    ),
    "1,000 whole Nodes (6 MB)": (
        "The 6 MB are gone through once to tell the Nodes apart; the echo does not look at its bytes. The shipped "
        "configuration (`nodeCacheCapable: true`) sends names instead."
    ),
    "99th percentile with 1,000 events/s, 200 names": (
        "A request that arrives while an event is folded waits for it. At 5,000 names, where answers are longest, the "
        "goal is met."
    ),
    "99th percentile with 1,000 events/s, 1,000 names": (
        "A request that arrives while an event is folded waits for it, and the figure is a ratio of two tails of a few "
        "milliseconds each. At 5,000 names, where answers are longest, the goal is met."
    ),
    "5,000 nodes on the bus to a warm view": (
        "10,000 events are sent, received, decoded and folded by two processes on two cores; decoding and folding "
        "alone take most of it (see the view of 5,000 nodes under Scale)."
    ),
    "kube-scheduler, 1,000 nodes, client limits raised": (
        "kube-scheduler, the API server, etcd and the extender share two cores, so each microsecond of ours is taken "
        "from them; beyond answering, ours publishes each decision and writes its line on the pod."
    ),
    "within 3 % of aiperf, 4 at once": (
        "aiperf is further from the engine's own account than ours is: it shares the cores with the engine and counts "
        "its own delays in."
    ),
    "pods that share a device, against the best online policy": (
        "Utilisation weighs 0.2 and speed 0.7, so a fast card that is already asked for all it has still beats an idle "
        "one of up to about half its speed, and pods pile up on fast cards until memory ends it. Speed that nobody "
        "measured counts as half of the best unless vendor and architecture are the same, where the best policies go "
        "by memory bandwidth. The weights are documented defaults; with `--weight-util 0.7` most of the first "
        "part is gone (see the table of changes)."
    ),
    "whole devices, against the best online policy": (
        "Cards that nobody measured a model on all count as half of the best and are told apart by chance, where the "
        "best policies go by bandwidth or by the larger memory. Where everything is measured hardly anything is lost."
    ),
    "5,000 agents at 1 Hz: extender": (
        "Each event costs the extender about a tenth of a millisecond, most of it in decoding, folding and keeping "
        "answers ready (the cost of a telemetry event below). At the default interval of 2 s it is half of this."
    ),
    "5,000 agents at 1 Hz: freshness, p99": (
        "Bus, agents and extender share two cores; what is measured here is mostly waiting for one."
    ),
    "view of 5,000 nodes, processor time to warm": (
        "10,000 events of two devices each are decoded and validated field by field, one after the other."
    ),
}

HEAD = """# Numbers

Written by `make bench` (or, from committed results alone, `python -m benchmarks --page`); do not edit. Each goal is
that of the design, or of the script that measures it. "Beside it" is the floor or the peer of the same run. Scripts
say their method with `--help`. Ratios are what to look at: all of this ran on small virtual machines that others use,
too.
"""


def results(folder: Path = RESULTS) -> dict[str, Any]:
    """Script name -> its result file."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def page(found: Mapping[str, Any]) -> str:
    """The whole page."""
    parts = [HEAD]
    counts = [met for section in SECTIONS for row in section.rows if (met := verdict(row, found)) is not None]
    parts.append(f"{sum(counts)} of {len(counts)} goals are met; for the others the reason is below their table.\n")
    parts += [_section(section, found) for section in SECTIONS]
    parts.append(on_paper(found))
    return "\n".join(parts)


def _section(section: Section, found: Mapping[str, Any]) -> str:
    lines = [f"## {section.title}", ""]
    if section.text:
        lines += [section.text, ""]
    lines += ["| What | Goal | Figure | Beside it | |", "|---|---|---|---|---|"]
    reasons = []
    for row in section.rows:
        met = verdict(row, found)
        mark = {True: "met", False: "**missed**", None: ""}[met]
        lines.append(f"| {row.what} | {row.goal} | {_text(row.figure, found)} | {_text(row.beside, found)} | {mark} |")
        if met is False:
            reasons.append(f"- *{row.what}* is missed. {WHY.get(row.what, 'The reason is not known yet.')}")
    if reasons:
        lines += ["", *reasons]
    if section.more is not None:
        try:
            lines += ["", section.more(found)]
        except ABSENT:
            lines += ["", "Not measured yet."]
    lines += ["", *(f"- {_source(name, command, found)}" for name, command in section.commands.items()), ""]
    return "\n".join(lines)


def _source(name: str, command: str, found: Mapping[str, Any]) -> str:
    if name not in found:
        return f"`{command}`: not run yet"
    return f"`{command}` → [{name}.json](../benchmarks/results/{name}.json), {machine(found[name])}"


def machine(result: Mapping[str, Any]) -> str:
    """Cores and Python of the machine it ran on, as far as the result tells."""
    told = result.get("machine")
    if isinstance(told, str):
        return told
    told = told or result
    cores, python = told.get("cpus") or told.get("cores"), told.get("python")
    parts = [f"{cores} cores" if cores else "", f"Python {python}" if python else ""]
    return ", ".join(part for part in parts if part) or "the same on every machine"


def verdict(row: Row, found: Mapping[str, Any]) -> bool | None:
    """None: not measured, or there is no goal."""
    if row.met is None:
        return None
    try:
        return bool(row.met(found))
    except ABSENT:
        return None


def _text(make: Any, found: Mapping[str, Any]) -> str:
    if isinstance(make, str):
        return make
    try:
        return str(make(found))
    except ABSENT:
        return "not measured yet"


def write() -> Path:
    """The page from what is committed."""
    text = page(results())
    PAGE.write_text(text if text.endswith("\n") else text + "\n")
    return PAGE


if __name__ == "__main__":
    print(os.path.relpath(write()))
