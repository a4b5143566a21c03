"""The real clock. Tests pass their own."""

import time


class SystemClock:
    """ports.Clock over the operating system."""

    def now(self) -> float:
        """Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        return time.monotonic()
