"""Child processes that do not outlive us, however we end.

Two nets: on Linux the kernel kills a direct child when its parent dies (PR_SET_PDEATHSIG); everywhere a small reaper
process (reaper.py) sees the end of a pipe and kills the process groups and removes the directories it was told of.
"""

import asyncio
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from flexinfer.local.reaper import started_at

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1

Output = int | IO[bytes]


class Reaper:
    """Handle of the reaper process. Start it before anything that must not be left behind."""

    def __init__(self) -> None:
        self._pids: dict[int, str] = {}
        self._folders: set[Path] = set()
        self._pipe = -1
        self._process: asyncio.subprocess.Process | None = None

    @classmethod
    async def start(cls) -> "Reaper":
        """Start the process. Raises OSError if that is impossible."""
        reaper = cls()
        await reaper._launch()
        return reaper

    def track_pid(self, pid: int) -> None:
        """The process group of ``pid`` (its leader) dies with us."""
        self._pids[pid] = started_at(pid)
        self._tell(f"+p {pid} {self._pids[pid]}")

    def forget_pid(self, pid: int) -> None:
        """It ended, with its group."""
        if self._pids.pop(pid, None) is not None:
            self._tell(f"-p {pid}")

    def track_dir(self, path: Path) -> None:
        """The directory is removed when we die or close. Raises ValueError for a name that cannot be sent."""
        if "\n" in str(path) or not path.is_absolute():
            raise ValueError(f"cannot track {path!r}: an absolute path without line breaks is needed")
        self._folders.add(path)
        self._tell(f"+d {path}")

    def forget_dir(self, path: Path) -> None:
        """It was removed, or is to be kept."""
        if path in self._folders:
            self._folders.discard(path)
            self._tell(f"-d {path}")

    async def spawn(self, program: str, *args: str, **options: Any) -> asyncio.subprocess.Process:
        """asyncio.create_subprocess_exec for a process that is tracked from its start, as leader of its own group.

        A watcher of its end calls ``forget_pid``; one that is never forgotten is only signalled if it still exists.
        """
        process = await asyncio.create_subprocess_exec(
            program, *args, start_new_session=True, preexec_fn=die_with_parent(), **options
        )
        self.track_pid(process.pid)
        return process

    async def close(self) -> None:
        """Stop every group and remove every directory still tracked, then the reaper; returns when that is done."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        if self._process is not None:
            await self._process.wait()
            self._process = None
        self._pids.clear()
        self._folders.clear()

    async def _launch(self) -> None:
        receive, self._pipe = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-IS",
                str(Path(__file__).with_name("reaper.py")),
                stdin=receive,
                stdout=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C on a terminal goes to our group, not to the reaper
            )
        finally:
            os.close(receive)

    def _tell(self, line: str) -> None:
        """Written before the call returns, so that a kill -9 in the next instant is covered."""
        if self._pipe < 0:
            return
        try:
            os.write(self._pipe, f"{line}\n".encode())
        except BrokenPipeError:
            log.warning("the reaper process is gone; what is started now may outlive a killed parent")
            os.close(self._pipe)
            self._pipe = -1


def die_with_parent(signum: int = signal.SIGKILL) -> Callable[[], None] | None:
    """A preexec function that makes the kernel send ``signum`` to the child when we die; None where there is none."""
    if not sys.platform.startswith("linux"):
        return None
    # Looked up here: after the fork only async-signal-safe work is allowed.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # the parent died before the request reached the kernel

    return prepare


async def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    output: Output = asyncio.subprocess.DEVNULL,
    reaper: Reaper | None = None,
) -> asyncio.subprocess.Process:
    """Start a process as leader of its own group, without a shell; standard error joins standard output.

    Raises OSError with the reason (no such program, not executable). Call from the main thread: the kernel ties the
    death signal to the thread that forked.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        env=dict(env),
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=die_with_parent(),  # a single system call: nothing that could deadlock after the fork
    )
    if reaper is not None:
        reaper.track_pid(process.pid)
    return process


def signal_group(pid: int, signum: int) -> None:
    """Signal the whole group of a process; no error if it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signum)


async def stop(process: asyncio.subprocess.Process, grace: float) -> int:
    """SIGTERM to the group, SIGKILL after ``grace`` seconds (0: at once); the exit code, negative for a signal."""
    if process.returncode is None and grace > 0:
        signal_group(process.pid, signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await process.wait()
    # Also after a clean exit: children of the process that stayed in its group end with it.
    signal_group(process.pid, signal.SIGKILL)
    return await process.wait()
