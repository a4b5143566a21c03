"""The note a running ``flexinfer up`` leaves for the other commands on this machine: its addresses."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct


class Running(Struct, frozen=True, kw_only=True):
    """Addresses of one running system."""

    pid: int
    nats_url: str
    kubeconfig: str
    proxy_url: str
    scheduler_url: str
    state_dir: str
    cluster: str = "default"


def _folder() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"flexinfer-{os.getuid()}"


def leave(note: Running) -> Path:
    """Write the note, readable by this user only; returns its path, which the owner removes at the end."""
    folder = _folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"up-{note.pid}.json"
    path.write_bytes(msgspec.json.encode(note))
    path.chmod(0o600)
    return path


def remove(path: Path) -> None:
    """Take the note away, and the folder with the last one."""
    path.unlink(missing_ok=True)
    with suppress(OSError):  # others still run, or it is gone already
        path.parent.rmdir()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def find() -> Running | None:
    """The newest system that still runs; notes of dead ones are removed."""
    notes = sorted(_folder().glob("up-*.json"), key=lambda p: p.stat().st_mtime, reverse=True)
    for path in notes:
        try:
            note = msgspec.json.decode(path.read_bytes(), type=Running)
        except (OSError, msgspec.DecodeError):
            continue
        if _alive(note.pid):
            return note
        path.unlink(missing_ok=True)
    return None
