"""A stage per test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.proxy.rig import Rig, rig_of
from tests.integration.proxy.processes import Stage, stage_in


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage_in(tmp_path) as made:
        yield made


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with rig_of() as made:
        yield made
