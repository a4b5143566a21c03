"""The cache on disk: one writer per entry, whole entries only, and a kill at any step leaves a usable state."""

import fcntl
import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from errno import EACCES, EDQUOT, ENOSPC, EPERM, EROFS
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import IO, Any

from flexinfer.core.lifecycle.fetching.entries import ABOUT, ENTRIES, LOCKS, PARTS, USES
from flexinfer.core.lifecycle.fetching.failures import FetchFailed
from flexinfer.core.lifecycle.fetching.listing import RemoteFile

CHUNK = 1 << 20


@contextmanager
def told() -> Iterator[None]:
    """Errors of the file system as reasons."""
    try:
        yield
    except OSError as err:
        if err.errno in {ENOSPC, EDQUOT}:
            raise FetchFailed("DiskFull", "the cache's file system is full") from err
        if err.errno in {EACCES, EPERM, EROFS}:
            raise FetchFailed("CacheNotWritable", f"{err.filename or 'the cache'}: {err.strerror}") from err
        raise


class Cache:
    """``step`` is called before each change of the disk; tests end the process there."""

    def __init__(self, root: Path, step: Callable[[], None] = lambda: None) -> None:
        self.root = root
        self._step = step

    def entry(self, name: str) -> Path:
        """Where the whole model lies."""
        return self.root / ENTRIES / name

    def has(self, name: str) -> bool:
        """It is there, whole."""
        return (self.entry(name) / ABOUT).is_file()

    def prepare(self, name: str) -> None:
        """Folders of one entry. Raises FetchFailed."""
        with told():
            for folder in (ENTRIES, LOCKS, USES, f"{PARTS}/{name}/blobs", f"{PARTS}/{name}/files"):
                (self.root / folder).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self, name: str) -> Iterator[bool]:
        """Whether this process is the one that writes the entry; the kernel frees the lock of one that dies."""
        with told(), (self.root / LOCKS / f"{name}.lock").open("ab") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def used(self, name: str, now: float) -> None:
        """Note that a pod wants the entry. Raises FetchFailed."""
        with told():
            mark = self.root / USES / name
            mark.touch()
            os.utime(mark, (now, now))

    def room(self, needed: int, floor: int) -> None:
        """Raises FetchFailed unless ``needed`` bytes leave ``floor`` bytes free."""
        free = shutil.disk_usage(self.root).free
        if needed + floor > free:
            text = f"{needed:,} bytes are needed, {free:,} are free and {floor:,} must stay so"
            raise FetchFailed("DiskFull", text)

    def part(self, name: str, file: RemoteFile) -> Path:
        """The partial copy of a file; another content has another one."""
        return self.root / PARTS / name / "blobs" / file.identity

    def missing(self, name: str, files: tuple[RemoteFile, ...]) -> int:
        """Bytes still to come."""
        return sum(max(0, f.size - size_of(self.part(name, f))) for f in files if not self.done(name, f))

    def whole(self, name: str, file: RemoteFile) -> Path:
        """The verified copy of a file."""
        return self.root / PARTS / name / "blobs" / f"{file.identity}.whole"

    def done(self, name: str, file: RemoteFile) -> bool:
        """The file is here and was verified."""
        return self.whole(name, file).exists()

    def append(self, out: IO[bytes], data: bytes) -> None:
        """Raises FetchFailed when the disk is full."""
        with told():
            self._step()
            out.write(data)

    def discard(self, name: str, file: RemoteFile) -> None:
        """Forget a partial copy."""
        self._step()
        self.part(name, file).unlink(missing_ok=True)

    def place(self, name: str, file: RemoteFile) -> None:
        """The partial copy was verified."""
        with told():
            sync(self.part(name, file))
            self._step()
            self.part(name, file).replace(self.whole(name, file))

    def assemble(self, name: str, files: tuple[RemoteFile, ...]) -> None:
        """The entry-to-be, anew: verified files under their names, archives unpacked."""
        folder = self.root / PARTS / name / "files"
        with told():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for file in (one for one in files if not one.unpack):
                (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
                self._step()
                os.link(self.whole(name, file), folder / file.path)
        for file in (one for one in files if one.unpack):
            self._unpack(self.whole(name, file), folder)

    def write(self, name: str, path: str, data: bytes) -> None:
        """A small file of the entry-to-be."""
        target = self.root / PARTS / name / "files" / path
        with told():
            target.parent.mkdir(parents=True, exist_ok=True)
            self._step()
            target.write_bytes(data)

    def _unpack(self, archive: Path, folder: Path) -> None:
        """Members of an archive; names and links that leave the folder are refused by the filter."""
        try:
            with told(), tarfile.open(archive) as members:
                self._step()
                members.extractall(folder, filter="data")
        except tarfile.TarError as err:
            raise FetchFailed("BadArtifact", f"an archive of the source cannot be unpacked: {err}") from err

    def link(self, name: str, path: str, target: str) -> None:
        """A name in the entry-to-be for one of its files."""
        link = self.root / PARTS / name / "files" / path
        with told():
            self._step()
            link.unlink(missing_ok=True)
            link.symlink_to(target)

    def files(self, name: str) -> list[str]:
        """Names of regular files in the entry-to-be."""
        folder = self.root / PARTS / name / "files"
        return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and not p.is_symlink())

    @contextmanager
    def heads(self, name: str, most: int) -> Iterator[dict[str, tuple[mmap, int]]]:
        """Files of the entry-to-be by name: the first ``most`` bytes of each, without reading them, and its size.
        Empty ones are left out."""
        folder = self.root / PARTS / name / "files"
        found: dict[str, tuple[mmap, int]] = {}
        with ExitStack() as stack, told():
            for path in self.files(name):
                file = stack.enter_context((folder / path).open("rb"))
                size = size_of(folder / path)
                if size:
                    found[path] = stack.enter_context(mmap(file.fileno(), min(size, most), access=ACCESS_READ)), size
            yield found

    def there(self, name: str, path: str) -> bool:
        """A file or folder of the entry-to-be."""
        return (self.root / PARTS / name / "files" / path).exists()

    def publish(self, name: str, about: dict[str, Any]) -> None:
        """The entry-to-be becomes the entry, in one step."""
        folder = self.root / PARTS / name / "files"
        about["bytes"] = sum((folder / path).stat().st_size for path in self.files(name))
        with told():
            self._step()
            (folder / ABOUT).write_text(json.dumps(about, sort_keys=True) + "\n")
            sync(folder / ABOUT)
            self._step()
            if self.entry(name).exists():  # without ABOUT, so not whole: somebody removed a part of it
                shutil.rmtree(self.entry(name))
            self._step()
            folder.rename(self.entry(name))
            self._step()
            shutil.rmtree(self.root / PARTS / name)


def size_of(path: Path) -> int:
    """0 where there is no file."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def sync(path: Path) -> None:
    """On disk, not only on its way there."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


class Digest:
    """Checks a file while it arrives. ``git``: git hashes a header with the size first."""

    def __init__(self, file: RemoteFile) -> None:
        kind, _, self._expected = file.digest.partition(":")
        if kind == "git":
            self._hash = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)
        else:
            self._hash = hashlib.sha256()

    def feed(self, data: bytes) -> None:
        """More of the file."""
        self._hash.update(data)

    def feed_file(self, path: Path) -> int:
        """What is there of it already; its size."""
        size = 0
        with path.open("rb") as file:
            while data := file.read(CHUNK):
                self.feed(data)
                size += len(data)
        return size

    @property
    def right(self) -> bool:
        """It is what was announced; unknown counts as right."""
        return not self._expected or self._hash.hexdigest() == self._expected
