"""The cache of a node as its agent sees it: what is there, how much room there is, and taking one out."""

import contextlib
import fcntl
import json
import shutil
from pathlib import Path

import msgspec

from flexinfer.contracts.events import GgufFacts
from flexinfer.core.lifecycle.fetching.entries import ABOUT, ENTRIES, LOCKS, PARTS, USES
from flexinfer.core.lifecycle.fetching.eviction import Shelved

STALE_SECONDS = 3 * 86400.0


class Shelf:
    """Blocking; nothing here raises for what it finds, or for a cache that is not there yet."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def entries(self) -> tuple[Shelved, ...]:
        """Whole entries, by name."""
        with contextlib.suppress(OSError):
            folders = sorted((self._root / ENTRIES).iterdir())
            return tuple(found for folder in folders if (found := self._read(folder)) is not None)
        return ()

    def free(self) -> int:
        """Bytes free on its file system; 0 if there is none."""
        try:
            return shutil.disk_usage(self._root).free
        except OSError:
            return 0

    def remove(self, entry: str, used: float) -> bool:
        """Take an entry out, unless a pod gets it right now or has asked for it after ``used``."""
        folder, gone = self._root / ENTRIES / entry, self._root / PARTS / f"{entry}.gone"
        try:
            with (self._root / LOCKS / f"{entry}.lock").open("ab") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                now_used = self._used(folder)
                if now_used is None or now_used > used:
                    return False
                shutil.rmtree(gone, ignore_errors=True)
                folder.rename(gone)  # whoever looks sees it whole or not at all
                (self._root / USES / entry).unlink(missing_ok=True)
        except OSError:
            return False
        shutil.rmtree(gone, ignore_errors=True)
        return True

    def tidy(self, now: float) -> int:
        """Throw away what fetches left behind that nobody has gone on with for days; how many."""
        count = 0
        with contextlib.suppress(OSError):
            for part in sorted((self._root / PARTS).iterdir()):
                count += self._forget(part, now)
        return count

    def _forget(self, part: Path, now: float) -> bool:
        try:
            newest = max(p.stat().st_mtime for p in (part, *part.rglob("*")))
            if now - newest < STALE_SECONDS:
                return False
            with (self._root / LOCKS / f"{part.name.removesuffix('.gone')}.lock").open("ab") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(part)
        except OSError:
            return False
        return True

    def _read(self, folder: Path) -> Shelved | None:
        try:
            about = json.loads((folder / ABOUT).read_text())
            source, size = str(about["source"]), int(about["bytes"])
            facts = msgspec.convert(about.get("gguf"), GgufFacts | None)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        used = self._used(folder)
        return None if used is None else Shelved(folder.name, source, size, used, facts)

    def _used(self, folder: Path) -> float | None:
        """When it was last asked for, at the latest when it came; None if it is gone."""
        for mark in (self._root / USES / folder.name, folder / ABOUT):
            with contextlib.suppress(OSError):
                return mark.stat().st_mtime
        return None
