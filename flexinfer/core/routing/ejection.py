"""When a replica is left alone, and how it comes back.

``FAILURES`` failures in a row eject it for ``FIRST_SECONDS``, doubled each time up to ``LONGEST_SECONDS``. Then it is
half open: exactly one request probes it; a good answer closes the case, a bad one ejects it again.
"""

from dataclasses import dataclass

FAILURES = 3
FIRST_SECONDS = 5.0
LONGEST_SECONDS = 60.0
_FORGIVEN_SECONDS = 120.0  # in good standing for so long: the next ejection is short again


@dataclass(slots=True)
class Ejection:
    """The standing of one replica; times are Unix seconds."""

    failures: int = 0
    until: float = 0.0  # 0: in good standing
    times: int = 0
    probing: bool = False
    good_since: float = 0.0

    @property
    def ejected(self) -> bool:
        """Ejected or half open."""
        return self.until > 0.0

    def admits(self, now: float) -> bool:
        """Whether a request may go there: in good standing, or half open with nobody probing."""
        return not self.until or (now >= self.until and not self.probing)

    def began(self, now: float) -> bool:
        """A request is sent there; tells whether it is the probe, which must end in good, bad or gave_up."""
        if not self.until or now < self.until or self.probing:
            return False
        self.probing = True
        return True

    def good(self, now: float) -> None:
        """It answered."""
        self.failures = 0
        if self.until:
            self.until, self.probing, self.good_since = 0.0, False, now

    def bad(self, now: float) -> bool:
        """It failed; tells whether it was ejected with this."""
        self.failures += 1
        if self.until:
            if not self.probing:
                return False
        elif self.failures < FAILURES:
            return False
        if self.times and not self.until and now - self.good_since > _FORGIVEN_SECONDS:
            self.times = 0
        self.until = now + min(LONGEST_SECONDS, FIRST_SECONDS * 2.0**self.times)
        self.times = min(self.times + 1, 8)
        self.probing = False
        return True

    def gave_up(self) -> None:
        """The probe ended without a verdict (its client left)."""
        self.probing = False
