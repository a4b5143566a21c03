"""A fake engine that runs, and clients of it."""

from collections.abc import AsyncIterator

import pytest

from flexinfer.testing.fake_engine import FakeEngine


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    running = await FakeEngine().start()
    yield running
    await running.stop()
