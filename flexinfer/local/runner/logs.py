"""Container logs: one file per run, written by the process itself, kept small by cutting off the front."""

import os
from pathlib import Path

LIMIT = 10 << 20
KEPT = 4 << 20
FALLBACK_LINES = 80
FALLBACK_BYTES = 2048


class LogFiles:
    """Files of one container: the current run and the one before."""

    def __init__(self, folder: Path, limit: int = LIMIT, kept: int = KEPT) -> None:
        self._folder = folder
        self._limit = limit
        self._kept = kept
        self._run = -1

    def path(self, *, previous: bool = False) -> Path:
        """File of the current or previous run; it may not exist."""
        return self._folder / f"{self._run - previous}.log"

    def open_next(self) -> int:
        """A descriptor for the next run's output; the run before the previous one is removed. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._run += 1
        (self._folder / f"{self._run - 2}.log").unlink(missing_ok=True)
        # Appending, so that a process goes on at the new end after the file was cut.
        return os.open(self.path(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)

    def trim(self) -> bool:
        """Cut the file to its last part if it has grown beyond the limit; tells whether it was.

        A line written in the same instant may be lost: the price for the process writing without us in between.
        """
        try:
            with self.path().open("ab+") as file:
                size = file.seek(0, os.SEEK_END)
                if size <= self._limit:
                    return False
                file.seek(size - self._kept)
                tail = file.read()
                file.truncate(0)
                file.write(b"[flexinfer: older lines were cut off]\n" + tail[tail.find(b"\n") + 1 :])
        except OSError:
            return False
        return True

    def read(self, tail: int | None = None, limit: int | None = None, *, previous: bool = False) -> bytes:
        """The log, its last ``tail`` lines, at most the first ``limit`` bytes of those. Raises FileNotFoundError."""
        text = self.path(previous=previous).read_bytes()
        if tail is not None:
            text = _last_lines(text, tail)
        return text if limit is None else text[:limit]

    def last_words(self) -> str:
        """What a container that failed without a termination message is remembered by."""
        try:
            text = _last_lines(self.path().read_bytes(), FALLBACK_LINES)
        except OSError:
            return ""
        return text[-FALLBACK_BYTES:].decode(errors="replace")


def _last_lines(text: bytes, count: int) -> bytes:
    """
    >>> _last_lines(b"a\\nb\\nc\\n", 2), _last_lines(b"a\\nb", 1), _last_lines(b"a\\n", 0), _last_lines(b"a", 5)
    (b'b\\nc\\n', b'b', b'', b'a')
    """
    if count <= 0:
        return b""
    position = len(text) - text.endswith(b"\n")
    for _ in range(count):
        position = text.rfind(b"\n", 0, position)
        if position < 0:
            return text
    return text[position + 1 :]
