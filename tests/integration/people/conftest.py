"""A private bus, and the commands people type as processes."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flexinfer.local.nats_server import NatsServer

DEADLINE = 120.0


class Typed:
    """A command line that runs; its output so far is in ``out`` and ``err``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.out: list[str] = []
        self.err: list[str] = []

    @classmethod
    async def start(cls, *argv: str, env: dict[str, str] | None = None) -> "Typed":
        program, *rest = argv
        binary = str(Path(sys.executable).parent / program)
        return cls(
            await asyncio.create_subprocess_exec(
                binary, *rest, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                stdin=asyncio.subprocess.DEVNULL, env={**os.environ, **(env or {})}, limit=1 << 24,
            )
        )  # fmt: skip

    async def says(self, words: str, *, error: bool = False) -> str:
        """The first line from here on that holds these words."""
        stream = self.process.stderr if error else self.process.stdout
        assert stream
        async with asyncio.timeout(DEADLINE):
            while raw := await stream.readline():
                line = raw.decode().rstrip()
                (self.err if error else self.out).append(line)
                if words in line:
                    return line
        rest = await self.process.stderr.read() if self.process.stderr else b""
        raise AssertionError(f"it never said {words!r}: {self.out} {self.err} {rest.decode()}")

    async def end(self, *, stop: bool = False) -> tuple[int, str, str]:
        """Its exit code and what was not read yet; ``stop`` sends SIGTERM first."""
        if stop:
            self.process.terminate()
        async with asyncio.timeout(DEADLINE):
            out, err = await self.process.communicate()
        return self.process.returncode or 0, out.decode(), err.decode()


@pytest.fixture(autouse=True)
def no_system_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands without an address look for a ``flexinfer up`` here; whoever runs the tests may have one."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
async def bus_url(tmp_path: Path) -> AsyncIterator[str]:
    server = NatsServer(tmp_path / "nats")
    await server.start(timeout=DEADLINE)
    yield server.url
    await server.stop()
