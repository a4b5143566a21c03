"""Every command line of ours in the documents is one the program takes, and every make target is there."""

import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

from flexinfer.cli import _BENCH, _COMMANDS, _PROGRAMS
from flexinfer.config import people
from flexinfer.config.common import Settings, parse

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "charts").rglob("*.md")])
_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_SHELLS = {"", "sh", "bash", "console", "shell"}
_PLACE = re.compile(r"<\w+>|…|\.\.\.")  # a line that stands for others
_OPTIONAL = str.maketrans("", "", "[]")
_ENDS = re.compile(r"\s(?:#|\||>|>>|&&|;|2>|&)(?:\s|$)")


def commands() -> list[tuple[str, str]]:
    """(page, command line) of each line in a fenced block that calls one of our programs."""
    found = []
    for page in PAGES:
        for language, block in _FENCE.findall(page.read_text()):
            if language not in _SHELLS:
                continue
            for line in block.replace("\\\n", " ").splitlines():
                text = line.strip().removeprefix("$ ")
                if re.match(r"flexinfer(-\w+)* ", text) and not _PLACE.search(text):
                    found.append((str(page.relative_to(ROOT)), _ENDS.split(text)[0].strip().translate(_OPTIONAL)))
    return found


def settings_of(words: list[str]) -> tuple[type[Settings], list[str]]:
    program, *rest = words
    if program in _PROGRAMS:
        module, name, _ = _PROGRAMS[program]
        return getattr(importlib.import_module(module), name), rest
    assert program == "flexinfer", program
    if rest[0] == "bench":
        return importlib.import_module(_BENCH).ACTIONS[rest[1]][0], rest[2:]
    return getattr(people, _COMMANDS[rest[0]][0]), rest[1:]


@pytest.mark.parametrize(("page", "line"), commands())
def test_a_documented_command_is_understood(page: str, line: str) -> None:
    cls, rest = settings_of(shlex.split(line))

    assert parse(cls, line.partition(" ")[0], rest, {})


def test_there_are_documented_commands_for_each_command() -> None:
    named = {line.split()[1] for _, line in commands() if line.startswith("flexinfer ")}

    assert named >= {*_COMMANDS, "bench"} - {"doctor"}


def test_documented_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        (page.name, target) for page in PAGES for target in re.findall(r"(?:^|`)make ([a-z][a-z-]+)", page.read_text())
    }

    assert {(page, target) for page, target in named if target not in targets} == set()


def test_the_table_of_events_is_the_index() -> None:
    text = (ROOT / "docs" / "events.md").read_text()
    for row in json.loads((ROOT / "schemas" / "index.json").read_text())["events"]:
        short = row["type"].removeprefix("ai.flexinfer.")
        subject = row["subject"].removeprefix("flexinfer.v1.{cluster}.").replace("{", "<").replace("}", ">")
        noun, verb, _ = short.split(".")
        line = next(
            (x for x in text.splitlines() if x.startswith("|") and (f"`{short}`" in x or f"`.{verb}`" in x)), ""
        )
        assert noun in line, short
        assert subject.split("<")[0] in line
        log = {"all": "every one", "sampled": "one a minute", "none": "–"}[row["log"]]
        assert line.rstrip(" |").endswith(log), short
        assert (row["bucket"] or "–") in line, short
