"""What a person sees while things start: one line per step, a spinner for the step in progress on a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from flexinfer.ports import Clock


@dataclass(slots=True)
class Progress:
    """Prints to ``console``; ``clock`` measures the steps."""

    console: Console
    clock: Clock
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock.monotonic()

    def title(self, text: str) -> None:
        """The first line."""
        self.console.print(text, style="bold", highlight=False)

    @contextmanager
    def step(self, name: str, doing: str) -> Iterator["Step"]:
        """A step in progress; its ``done`` text is printed with a check mark and the time it took."""
        step = Step(name)
        start = self.clock.monotonic()
        if self.console.is_terminal:
            with self.console.status(f"{name}: {doing}"):
                yield step
        else:
            yield step
        self.mark(name, step.text or doing, self.clock.monotonic() - start)

    def mark(self, name: str, text: str, seconds: float | None = None) -> None:
        """A finished step."""
        took = "" if seconds is None else f"  [dim]{seconds:.1f} s[/dim]"
        self.console.print(f"[green]✓[/green] {name:<11} {text}{took}", highlight=False, soft_wrap=True)

    def note(self, name: str, text: str) -> None:
        """Something that happened on the way."""
        self.console.print(f"[cyan]·[/cyan] {name:<11} {text}", highlight=False, soft_wrap=True)

    def plain(self, text: str) -> None:
        """A line for copying, printed as it is."""
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def table(self, table: Table) -> None:
        """A table."""
        self.console.print(table)

    def elapsed(self) -> float:
        """Seconds since the start."""
        return self.clock.monotonic() - self.began


@dataclass(slots=True)
class Step:
    """The step in progress."""

    name: str
    text: str = ""

    def done(self, text: str) -> None:
        """What to say when it is finished."""
        self.text = text
