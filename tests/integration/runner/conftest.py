"""Waiting on real processes: by looking until it is so, with a deadline, never by sleeping and hoping."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest


def process_exists(pid: int) -> bool:
    """False for a process that is gone or only waits for its parent to read the exit code."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return not Path("/proc").exists()
    return state != b"Z"


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    async def wait(condition: Callable[[], object], what: str = "the condition", seconds: float = 10.0) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not condition():  # noqa: ASYNC110 - a process elsewhere sets no event of ours
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pytest.fail(f"{what} did not come true in {seconds} s")

    return wait


@pytest.fixture
def alive() -> Callable[[int], bool]:
    return process_exists
