"""Lines of the ``nats`` program in the documents name subjects, buckets, keys and streams that there are."""

import json
import re
import shlex
from pathlib import Path

import pytest

from flexinfer.contracts.topics import LOG_STREAM

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "charts").rglob("*.md")])
INDEX = json.loads((ROOT / "schemas" / "index.json").read_text())
VALUED = {"--server", "--creds", "--tlsca"}
PLAIN = {"--raw"}


def lines() -> list[tuple[str, str]]:
    """(page, line) of each call of the program in a fenced block."""
    return [
        (page.name, line.partition(" #")[0].strip())
        for page in PAGES
        for block in re.findall(r"^ *```\w*\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL)
        for line in block.splitlines() if re.match(r"\s*nats (--|sub|kv|stream|consumer)", line)
    ]  # fmt: skip


def arguments(line: str) -> list[str]:
    """What is neither the program nor an option we know of."""
    words = iter(shlex.split(line)[1:])
    found = []
    for word in words:
        if word in VALUED:
            next(words)
        elif word not in PLAIN:
            assert not word.startswith("-"), word
            found.append(word)
    return found


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject of the index, its places written {so}, can be one that the pattern is about."""
    wanted, there = pattern.split("."), subject.split(".")
    for position, token in enumerate(wanted):
        if token == ">":
            return len(there) > position
        if position >= len(there):
            return False
        if token != "*" and token != there[position] and not there[position].startswith("{"):
            return False
    return len(wanted) == len(there)


@pytest.mark.parametrize(("page", "line"), lines())
def test_what_a_line_names_is_there(page: str, line: str) -> None:
    match arguments(line):
        case ["sub", subject]:
            assert any(matches(subject, event["subject"]) for event in INDEX["events"]), (page, subject)
        case ["kv", "get", bucket, key]:
            assert any(e["bucket"] == bucket and matches(key, e["key"]) for e in INDEX["events"]), (page, bucket, key)
        case ["stream", "view", stream]:
            assert stream == LOG_STREAM, (page, stream)
        case other:
            pytest.fail(f"{page}: nothing checks {other}")


def test_there_are_such_lines() -> None:
    assert {arguments(line)[0] for _, line in lines()} >= {"sub", "kv", "stream"}


def test_a_wrong_subject_is_seen() -> None:
    assert not any(matches("flexinfer.v1.*.model.*.phase", event["subject"]) for event in INDEX["events"])
    assert not any(matches("flexinfer.v2.>", event["subject"]) for event in INDEX["events"])
