"""Our executables as processes that a test kills, freezes and starts again on the same ports."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from flexinfer.local.processes import die_with_parent

PATIENCE = 240.0
PROGRAM = "import sys; from flexinfer.cli import run_program; sys.exit(run_program({!r}))"


def ours(name: str) -> tuple[str, ...]:
    """The command of one of our executables."""
    return (sys.executable, "-c", PROGRAM.format(name))


def part(name: str) -> tuple[str, ...]:
    """The command of a helper process, see parts.py."""
    return (sys.executable, str(Path(__file__).with_name("parts.py")), name)


@dataclass
class Program:
    """One executable. ``ops``: the port of its probes and metrics, 0 if it has none."""

    name: str
    argv: Sequence[str]
    log: Path
    ops: int = 0
    process: asyncio.subprocess.Process | None = None
    limits: Sequence[str] = field(default=())  # a command that starts it with less, such as prlimit

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def start(self) -> "Program":
        with self.log.open("ab") as out:
            self.process = await asyncio.create_subprocess_exec(
                *self.limits, *self.argv, stdout=out, stderr=out, stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "POD_NAMESPACE": "flexinfer-system"},
                preexec_fn=die_with_parent(),
            )  # fmt: skip
        return self

    def signal(self, how: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(how)

    async def kill(self) -> None:
        """As the kernel would."""
        self.signal(signal.SIGKILL)
        if self.process is not None:
            await self.process.wait()

    async def end(self, seconds: float = 30.0) -> int:
        """SIGTERM, and SIGKILL if it does not go; its exit code."""
        self.signal(signal.SIGTERM)
        if self.process is None:
            return 0
        try:
            return await asyncio.wait_for(self.process.wait(), seconds)
        except TimeoutError:
            await self.kill()
            return -9

    async def page(self, path: str) -> tuple[int, str]:
        """Status and text of an ops page; status 0 while nobody answers."""
        timeout = aiohttp.ClientTimeout(total=10)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://127.0.0.1:{self.ops}{path}") as answer,
            ):
                return answer.status, await answer.text()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0, ""

    async def ready(self) -> "Program":
        """Wait for /readyz. Raises AssertionError with the end of its log."""
        try:
            async with asyncio.timeout(PATIENCE):
                while (await self.page("/readyz"))[0] != 200:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{self.name} is not ready: {self.words()}") from None
        return self

    def words(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])
