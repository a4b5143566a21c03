"""Driving ``flexinfer up`` from outside, as a person or a script would."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
DEADLINE = 300.0


def processes_of(marker: str) -> list[str]:
    """Command lines of live processes whose environment holds ``marker``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environ = (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in environ and command:
                found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


def eventually(check: Callable[[], object], seconds: float, what: str) -> None:
    """Poll an outside condition that has no event to wait for; fails by name at the deadline."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:.0f} s: {what}; last: {check()!r}")
        threading.Event().wait(0.1)


@dataclass
class Up:
    """A ``flexinfer up`` process with its output so far; its temporary files live below ``tmp``."""

    tmp: Path
    args: tuple[str, ...] = ()
    lines: list[str] = field(default_factory=list)
    process: subprocess.Popen[str] = field(init=False)
    reader: threading.Thread = field(init=False)

    def start(self) -> "Up":
        self.process = subprocess.Popen(
            [str(BIN / "flexinfer"), "up", *self.args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=self.environ, start_new_session=True,
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        return self

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self.tmp), "XDG_RUNTIME_DIR": str(self.tmp), "COLUMNS": "200"}

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as out:
            for line in out:
                self.lines.append(line.rstrip("\n"))

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, text: str, seconds: float = DEADLINE) -> None:
        def there() -> bool:
            if self.process.poll() is not None and text not in self.output:
                pytest.fail(f"ended with {self.process.returncode} before {text!r}:\n{self.output}")
            return text in self.output

        deadline = time.monotonic() + seconds
        while not there():
            if time.monotonic() > deadline:
                pytest.fail(f"{text!r} not within {seconds:.0f} s:\n{self.output}")
            threading.Event().wait(0.1)

    def run(self, *argv: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Another command of ours, in a second terminal as it were."""
        return subprocess.run(
            [str(BIN / "flexinfer"), *argv], env=self.environ, capture_output=True, text=True, timeout=seconds,
            check=False,
        )  # fmt: skip

    @property
    def note(self) -> dict[str, str]:
        """The addresses it left for other commands."""
        [path] = self.tmp.glob("flexinfer-*/up-*.json")
        found: dict[str, str] = json.loads(path.read_text())
        return found

    def stop(self, how: signal.Signals = signal.SIGINT, seconds: float = 60) -> int:
        """Signal it and wait for its end."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.ended(seconds)

    def ended(self, seconds: float = DEADLINE) -> int:
        """Exit code, once it ended by itself."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"did not end within {seconds:.0f} s:\n{self.output}")
        finally:
            self.reader.join(10)

    def leftovers(self) -> list[str]:
        """Processes and files that should not be there any more."""
        files = [str(p.relative_to(self.tmp)) for p in self.tmp.rglob("*") if p.is_file()]
        return processes_of(f"TMPDIR={self.tmp}") + files
