"""A hub on loopback and a fetcher whose waits are recorded instead of waited."""

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hubs import Hub

from flexinfer.adapters.weights.disk import Cache
from flexinfer.adapters.weights.fetcher import Fetcher
from flexinfer.adapters.weights.sources import Addresses
from flexinfer.adapters.weights.web import Credentials, Patience, Web


class FixedClock:
    def now(self) -> float:
        return 1_800_000_000.0

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    found = await Hub().start()
    yield found
    await found.stop()


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
async def fetcher(hub: Hub, tmp_path: Path, waits: list[float]) -> AsyncIterator[Callable[..., Fetcher]]:
    sessions: list[Web] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)

    def make(credentials: Credentials | None = None, attempts: int = 4, root: Path | None = None, **rest) -> Fetcher:
        web = Web(credentials or Credentials(), hub.url, Patience(attempts, pause), FixedClock())
        sessions.append(web)
        return Fetcher(Cache(root or tmp_path / "cache"), web, Addresses(hub.url, hub.url), FixedClock(), **rest)

    yield make
    for web in sessions:
        await web.aclose()
