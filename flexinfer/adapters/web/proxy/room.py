"""What the limits of this process leave room for: clients by open files, request bodies by memory."""

import resource
import sys
from pathlib import Path

OWN_FILES = 24  # the bus, the listener, the loop's own, logs, and whoever is being turned away
BODY_SHARE = 3  # a body is there as it came, once more as it is sent on, and Python keeps what it freed for a while
CGROUP = Path("/sys/fs/cgroup")


def for_clients() -> int:
    """How many clients the limit on open files leaves room for, each with a connection to an engine.

    Without this bound clients take every file, and those that were let in get 502 because no engine can be reached.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return max((soft - OWN_FILES) // 2, 1)


def for_bodies(cgroup: Path = CGROUP) -> int:
    """Bytes of request bodies that may be held at once: over it a container is killed with all its streams.

    ``cgroup``: where a container sees its own limits, version 2 or 1.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    limits = [sys.maxsize if soft == resource.RLIM_INFINITY else soft]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = (cgroup / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():  # or "max"
            limits.append(int(text))
    return min(limits) // BODY_SHARE
