"""What one proxy does for one model: counters, and rates over the last window."""

from collections import deque
from dataclasses import dataclass, field

WINDOW_SECONDS = 10.0


@dataclass(slots=True)
class Usage:
    """``last_used`` is Unix seconds of the last request that counts as use (not a background one)."""

    outstanding: int = 0
    requests: int = 0
    tokens: int = 0
    last_used: float | None = None
    _marks: deque[tuple[float, int, int]] = field(default_factory=deque)  # (time, requests, tokens)

    def begin(self, now: float, *, background: bool) -> None:
        """A request was taken on."""
        self.outstanding += 1
        self.requests += 1
        if not background:
            self.last_used = now

    def end(self, now: float, *, background: bool) -> None:
        """It ended, however; a long answer is use until its end."""
        self.outstanding -= 1
        if not background:
            self.last_used = now

    def rates(self, now: float) -> tuple[float, float]:
        """(requests/s, tokens/s) over about the last WINDOW_SECONDS; call at a steady pace."""
        marks = self._marks
        while len(marks) > 1 and now - marks[1][0] >= WINDOW_SECONDS:
            marks.popleft()
        marks.append((now, self.requests, self.tokens))
        then, requests, tokens = marks[0]
        span = now - then
        if span <= 0:
            return 0.0, 0.0
        return (self.requests - requests) / span, (self.tokens - tokens) / span
