"""Notices that a machine will soon be gone: a file, systemd's scheduled shutdown, a cloud's metadata answers."""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from flexinfer.core.hardware.json_text import documents, mapping
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


AWS_SESSION = "http://169.254.169.254/latest/api/token"
AWS_ACTION = "http://169.254.169.254/latest/meta-data/spot/instance-action"
GCP_PREEMPTED = "http://metadata.google.internal/computeMetadata/v1/instance/preempted"
GCP_MAINTENANCE = "http://metadata.google.internal/computeMetadata/v1/instance/maintenance-event"
AZURE_EVENTS = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
_AZURE_GOING = frozenset({"Preempt", "Terminate", "Redeploy", "Reboot"})


def from_aws(raw: bytes | None) -> Notice | None:
    """EC2's spot instance action; there is no such page until an interruption is due."""
    for document in documents(text_of(raw)):
        action, when = words(mapping(document).get("action")), words(mapping(document).get("time"))
        if action in {"terminate", "stop", "hibernate"}:
            return Notice(f"EC2 will {action} this spot instance at {when or 'an unknown time'}")
    return None


def from_gcp(preempted: bytes | None, maintenance: bytes | None) -> Notice | None:
    """Compute Engine's two values."""
    if text_of(preempted).strip().upper() == "TRUE":
        return Notice("Compute Engine preempts this instance")
    if text_of(maintenance).strip().upper() == "TERMINATE_ON_HOST_MAINTENANCE":
        return Notice("Compute Engine stops this instance for host maintenance")
    return None


def from_azure(raw: bytes | None) -> Notice | None:
    """Azure's scheduled events; a freeze is over in seconds and no reason to drain."""
    for document in documents(text_of(raw)):
        listed = mapping(document).get("Events")
        for event in listed if isinstance(listed, list) else ():
            kind, when = words(mapping(event).get("EventType")), words(mapping(event).get("NotBefore"))
            if kind in _AZURE_GOING:
                return Notice(f"Azure event {kind} not before {when or 'now'}")
    return None


def first(notices: Sequence[Notice | None]) -> Notice | None:
    """The one that is told."""
    return next((notice for notice in notices if notice is not None), None)
