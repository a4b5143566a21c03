"""A state directory between two runs: who uses it, the ports of the last run, the objects."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from flexinfer.local.errors import UserError
from flexinfer.local.kubeapi.keeping import DamagedState, Kept, read_kept
from flexinfer.local.ports import bindable, free_port

LOCK = "in-use"
PORTS = "ports.json"
OBJECTS = "api"


def claim(folder: Path) -> int:
    """Make the directory and hold it for this process; the handle of the lock. Raises UserError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as err:
        raise UserError(f"--state-dir {folder}: cannot be used: {err.strerror or err}") from err
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as err:
        os.close(handle)
        raise UserError(f"--state-dir {folder}: another flexinfer up uses it; stop that one or name another") from err
    return handle


def kept_objects(folder: Path) -> Kept | None:
    """The objects of the run before, None for a new directory. Raises UserError."""
    try:
        return read_kept(folder / OBJECTS)
    except DamagedState as err:
        raise UserError(str(err)) from err
    except OSError as err:
        raise UserError(f"--state-dir {folder}: the kept objects cannot be read: {err.strerror or err}") from err


class Ports:
    """Ports by name: those of the run before where they are free, for addresses in kept objects are still about them.

    Without a folder they are new each time.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file = folder / PORTS if folder else None
        self._before: dict[str, int] = {}
        self._now: dict[str, int] = {}
        if self._file:
            with suppress(OSError, msgspec.DecodeError):  # missing or damaged: new ports do as well
                self._before = msgspec.json.decode(self._file.read_bytes(), type=dict[str, int])

    def pick(self, name: str) -> int:
        """A port that can be bound now."""
        before = self._before.get(name)
        found = before if before and bindable("127.0.0.1", before) else free_port()
        self.note(name, found)
        return found

    def note(self, name: str, port: int) -> None:
        """Remember a port for the next run."""
        self._now[name] = port
        if self._file:
            with suppress(OSError):  # the next run takes new ones
                self._file.write_bytes(msgspec.json.encode(self._now))
