"""The machine's files below a root: the real one, or a directory that replays another machine."""

import os
from pathlib import Path


class RootedFiles:
    """ports.HostFiles over a directory. ``/`` is this machine itself."""

    def __init__(self, root: Path) -> None:
        self._root = str(root).rstrip("/")

    def read(self, path: str, limit: int = 1 << 20) -> bytes | None:
        """Up to ``limit`` bytes of a file; None if it is missing, unreadable, or fails while read (sysfs does)."""
        try:
            # Not Path.read_bytes: files of /proc and /sys have no size, and a device file has no end.
            handle = os.open(self._root + path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        try:
            parts: list[bytes] = []
            while limit > 0:
                part = os.read(handle, min(limit, 1 << 16))
                if not part:
                    break
                parts.append(part)
                limit -= len(part)
        except OSError:
            return None
        else:
            return b"".join(parts)
        finally:
            os.close(handle)

    def listdir(self, path: str) -> tuple[str, ...]:
        """Sorted names in a directory, empty if it is missing."""
        try:
            return tuple(sorted(os.listdir(self._root + path)))  # noqa: PTH208 - names, and no Path per entry
        except (OSError, ValueError):
            return ()

    def readlink(self, path: str) -> str | None:
        """Target of a symbolic link as written, or None."""
        try:
            return os.readlink(self._root + path)  # noqa: PTH115 - the text as it is
        except (OSError, ValueError):
            return None
