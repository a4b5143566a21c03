"""Notices that a machine will soon be gone: a file, systemd's scheduled shutdown, a cloud's metadata answers."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from flexinfer.core.hardware.readings import text_of, words

SCHEDULED_FILE = "/run/systemd/shutdown/scheduled"
_GOING = frozenset({"poweroff", "reboot", "halt", "kexec", "soft-reboot"})
_FIELD = re.compile(r"^([A-Z_]+)=(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Notice:
    """Why the node is draining, in one line."""

    reason: str


Look = Callable[[], Awaitable[Notice | None]]


def from_file(raw: bytes | None) -> Notice | None:
    """The operator's file: its first line is the reason. None if it is not there."""
    if raw is None:
        return None
    return Notice(words(text_of(raw).partition("\n")[0]) or "the drain file exists")


def from_logind(raw: bytes | None) -> Notice | None:
    """systemd-logind's /run/systemd/shutdown/scheduled, written by ``shutdown +10``; ``dry-`` modes are rehearsals."""
    found = dict(_FIELD.findall(text_of(raw)))
    mode = found.get("MODE", "")
    if mode not in _GOING:
        return None
    when = found.get("USEC", "")
    at = ""
    if when.isdigit() and len(when) < 17:
        at = f" at {datetime.fromtimestamp(int(when) / 1e6, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return Notice(f"systemd-logind will {mode}{at}")


def first(notices: Sequence[Notice | None]) -> Notice | None:
    """The one that is told."""
    return next((notice for notice in notices if notice is not None), None)
