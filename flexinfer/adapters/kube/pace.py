"""How long to wait before asking the API server again, as a value that tests can replace."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Pace:
    """Waits of an informer, seconds.

    A watch that lived ``long_lived`` is resumed at once: that is at most one request in that time. A shorter one
    costs at least ``first``, doubled with each failure in a row up to ``ceiling``; kubernetes_asyncio's watch
    reconnects without any wait and made 1,400 requests in 1.5 s against a server that closes at once.
    """

    first: float = 1.0
    ceiling: float = 30.0
    long_lived: float = 20.0
    watch_seconds: tuple[int, int] = (240, 360)  # random, so that a fleet does not reconnect together
    random: Callable[[float, float], float] = field(default=random.uniform)
    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep)
    monotonic: Callable[[], float] = field(default=time.monotonic)

    def wait(self, failures: int, asked: float | None = None) -> float:
        """Wait after this many failures in a row (0: the one after a watch that made progress), with jitter.

        ``asked``: what the server said in Retry-After; never less than that, up to the ceiling.
        """
        base = min(self.ceiling, self.first * 2.0 ** min(failures, 16))
        jittered = min(self.ceiling, base * self.random(1.0, 1.5))
        return max(jittered, min(asked or 0.0, self.ceiling))

    def watch_timeout(self) -> int:
        """timeoutSeconds of the next watch."""
        low, high = self.watch_seconds
        return int(self.random(low, high))
