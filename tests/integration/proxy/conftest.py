"""A stage per test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.proxy.processes import Stage, stage_in


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage_in(tmp_path) as made:
        yield made
