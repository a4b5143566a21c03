"""How many lines of an access log are written: a steady few per second, and how many were left out between them."""

from dataclasses import dataclass


@dataclass(slots=True)
class Sampler:
    """A bucket of ``rate`` tokens per second that holds two seconds' worth; ``rate`` 0 takes nothing."""

    rate: float
    left_out: int = 0
    _tokens: float = 0.0
    _at: float = float("-inf")

    def takes(self, now: float) -> int | None:
        """How many were left out since the last line if this one is taken, else None. ``now`` is in seconds."""
        if self.rate <= 0:
            return None
        self._tokens = min(max(1.0, 2 * self.rate), self._tokens + self.rate * min(now - self._at, 60.0))
        self._at = now
        if self._tokens < 1.0:
            self.left_out += 1
            return None
        self._tokens -= 1.0
        found, self.left_out = self.left_out, 0
        return found
