"""Run as a script, first thing after a start: cleans up after a parent that was killed.

Reads one instruction per line from standard input: ``+p PID START`` and ``-p PID`` (process group leaders), ``+d
PATH`` and ``-d PATH`` (directories). At end of file, which the kernel delivers however the parent died, it stops the
groups still listed, then removes the directories. Standard library only, so that it starts in milliseconds.
"""

import os
import shutil
import signal
import sys
import time

GRACE = 2.0


def started_at(pid: int) -> str:
    """Start time of a process in clock ticks since boot; empty where there is no /proc or no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib doubles the start-up of this script
            # The command name in parentheses may itself hold spaces and parentheses.
            return file.read().rpartition(b")")[2].split()[19].decode()
    except OSError:
        return ""


def send(groups: dict[int, str], signum: int) -> dict[int, str]:
    """Signal each group; returns those that still exist. A leader with another start time is a reused number."""
    alive = {}
    for pid, start in groups.items():
        now = started_at(pid)
        if start and now and now != start:
            continue
        try:
            os.killpg(pid, signum)
        except (ProcessLookupError, PermissionError):
            continue
        alive[pid] = start
    return alive


def clean(groups: dict[int, str], folders: set[str]) -> None:
    """SIGTERM, up to GRACE seconds, SIGKILL, then the directories."""
    deadline = time.monotonic() + GRACE
    groups = send(groups, signal.SIGTERM)
    while groups and time.monotonic() < deadline:
        time.sleep(0.02)
        groups = send(groups, 0)
    send(groups, signal.SIGKILL)
    for folder in folders:
        # A process that was just killed may still have a write in flight.
        for _ in range(5):
            shutil.rmtree(folder, ignore_errors=True)
            if not os.path.lexists(folder):
                break
            time.sleep(0.05)


def main() -> None:
    """Until end of file."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    groups: dict[int, str] = {}
    folders: set[str] = set()
    for line in sys.stdin:
        what, _, rest = line.rstrip("\n").partition(" ")
        if what == "+p":
            pid, _, start = rest.partition(" ")
            groups[int(pid)] = start
        elif what == "-p":
            groups.pop(int(rest), None)
        elif what == "+d":
            folders.add(rest)
        elif what == "-d":
            folders.discard(rest)
    clean(groups, folders)


if __name__ == "__main__":
    main()
