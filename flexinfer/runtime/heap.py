"""What the C library does with freed memory, and how often Python looks for reference cycles."""

import ctypes
import gc
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of <malloc.h>
KEPT_BYTES = 256 << 20
LARGE_BYTES = 64 << 20
YOUNG = 50_000


def keep_freed_memory() -> bool:
    """Let blocks of up to LARGE_BYTES come from memory freed before; tells whether the C library took it.

    By default glibc hands each freed block of 128 KiB or more back to the kernel. A server that works through a
    request of that size in microseconds then spends half of them on page faults.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # other C libraries have no such knob
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGE_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES))


def collect_rarely() -> None:
    """Look for reference cycles after YOUNG new objects instead of 700.

    The facts of a fleet have no cycles, and there are hundreds of thousands: walking them again and again while they
    are read takes as long as reading them.
    """
    gc.set_threshold(YOUNG, 50, 100)
