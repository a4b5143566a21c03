"""The proxy's rig as a fixture."""

from collections.abc import AsyncIterator

import pytest

from tests.contract.proxy.rig import Rig, rig_of


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with rig_of() as made:
        yield made
