"""Readiness as a set of named conditions, each with the sentence a person reads in /readyz."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Readiness:
    """``/readyz`` is 200 when every check passes. A check returns None when fine, else why not."""

    checks: dict[str, Callable[[], str | None]] = field(default_factory=dict)
    draining: bool = False
    degraded: Callable[[], str | None] | None = None

    def require(self, name: str, check: Callable[[], str | None]) -> None:
        """Add a condition."""
        self.checks[name] = check

    def report(self) -> tuple[bool, dict[str, str]]:
        """(ready, lines): one line per check, ``ok`` or the reason, plus ``degraded`` if declared."""
        lines = {name: check() or "ok" for name, check in self.checks.items()}
        ready = all(line == "ok" for line in lines.values()) and not self.draining
        if self.draining:
            lines["draining"] = "the process is shutting down"
        note = self.degraded() if self.degraded else None
        if note:
            lines["degraded"] = note
        return ready, lines
