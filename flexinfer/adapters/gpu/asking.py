"""Asking a tool in one root after another, within one time budget, and keeping account of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from flexinfer.core.hardware.findings import Attempt
from flexinfer.core.hardware.readings import text_of
from flexinfer.ports import Clock, ToolResult, Tools

CALL_SECONDS = 10.0
AFTER_TIMEOUT_SECONDS = 5.0
BUDGET_SECONDS = 25.0

NO_ROOT = 125
NO_TOOL = frozenset({126, 127})


@dataclass(frozen=True, slots=True)
class Root:
    """Where tools run: ``prefix`` is empty or ``chroot DIR``; ``paths`` are tried after the bare name."""

    prefix: tuple[str, ...]
    paths: tuple[str, ...] = ()

    def argv(self, program: str, args: Sequence[str]) -> tuple[str, ...]:
        """The command line of a tool in this root."""
        return (*self.prefix, program, *args)

    @property
    def label(self) -> str:
        """``chroot /host`` or nothing, for names of sources."""
        return " ".join(self.prefix)


@dataclass(slots=True)
class Asking:
    """One probe's conversation with tools. Attempts are recorded by the caller through ``note``."""

    tools: Tools
    clock: Clock
    attempts: list[Attempt] = field(default_factory=list)
    timeouts: int = 0
    _deadline: float = field(default=0.0)

    def __post_init__(self) -> None:
        self._deadline = self.clock.monotonic() + BUDGET_SECONDS

    async def call(self, argv: Sequence[str]) -> ToolResult:
        """Run within what is left of the budget; after a first timeout with little patience."""
        limit = CALL_SECONDS if self.timeouts == 0 else AFTER_TIMEOUT_SECONDS
        left = self._deadline - self.clock.monotonic()
        if left <= 0.1:
            return ToolResult(b"", b"no time left for this call", 124, timed_out=True)
        result = await self.tools.run(argv, min(limit, left))
        if result.timed_out:
            self.timeouts += 1
        return result

    def spent(self) -> bool:
        """Two calls hung: whatever they wait for, others would wait for it too."""
        return self.timeouts >= 2 or self.clock.monotonic() >= self._deadline

    def note(self, attempt: Attempt) -> None:
        """Keep account of one source."""
        self.attempts.append(attempt)


def said(result: ToolResult) -> str:
    """Everything a tool said; messages may be on either stream."""
    return f"{text_of(result.stdout)}\n{text_of(result.stderr)}"


def unanswered(source: str, result: ToolResult, root: Root, seconds: float) -> Attempt | None:
    """The attempt if the tool did not run at all or hung; None if it answered."""
    if result.timed_out:
        return Attempt(source, "timeout", "timeout", f"no answer within {seconds:.0f} s", seconds)
    if not result.found:
        return Attempt(source, "absent", "not-installed", seconds=seconds)
    if root.prefix and result.code == NO_ROOT and "not permitted" in said(result):
        return Attempt(source, "failed", "no-permission", said(result).strip()[:200], seconds)
    if root.prefix and result.code == NO_ROOT:
        return Attempt(source, "absent", "no-root", said(result).strip()[:200], seconds)
    if root.prefix and result.code in NO_TOOL:
        return Attempt(source, "absent", "not-installed", said(result).strip()[:200], seconds)
    return None
