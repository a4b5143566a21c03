"""Whether a cluster is up, with hysteresis, and how carefully one that returned is loaded again.

Down after ``FAILURES`` failures in a row (of requests or checks), up after ``SUCCESSES`` good checks in a row: a
flapping cluster stays down, a single lost packet changes nothing. After a return its share of traffic grows over
``RAMP_SECONDS``, so that it is not met by everybody's requests at once with cold caches.
"""

from dataclasses import dataclass

FAILURES = 3
SUCCESSES = 2
RAMP_SECONDS = 30.0
FIRST_SHARE = 0.1


@dataclass(slots=True)
class Health:
    """Times are Unix seconds. A cluster nobody has checked yet counts as up."""

    up: bool = True
    failures: int = 0
    successes: int = 0
    changed_at: float | None = None  # last transition; None: never
    error: str = ""
    _credit: float = 0.0

    def good(self, now: float, *, checked: bool) -> bool:
        """A request (or, with ``checked``, an active check) worked; tells whether it came up with it."""
        self.failures = 0
        if self.up:
            self.error = ""
            return False
        # An answer to a last-resort request is luck; only checks, which come at a steady pace, bring a cluster back.
        self.successes += checked
        if self.successes < SUCCESSES:
            return False
        self.up, self.changed_at, self.error, self._credit = True, now, "", 0.0
        return True

    def bad(self, now: float, why: str) -> bool:
        """A request or check failed; tells whether it went down with it."""
        self.successes = 0
        self.failures += 1
        self.error = why
        if not self.up or self.failures < FAILURES:
            return False
        self.up, self.changed_at = False, now
        return True

    def share(self, now: float) -> float:
        """Part of its normal traffic it should get, 0..1."""
        if not self.up:
            return 0.0
        if self.changed_at is None:
            return 1.0
        return min(1.0, FIRST_SHARE + (1 - FIRST_SHARE) * (now - self.changed_at) / RAMP_SECONDS)

    def admits(self, now: float) -> bool:
        """Whether this request is among its share; deterministic, so that ten requests at 0.1 admit one."""
        share = self.share(now)
        if share >= 1.0:
            return True
        self._credit += share
        if self._credit < 1.0:
            return False
        self._credit -= 1.0
        return True
