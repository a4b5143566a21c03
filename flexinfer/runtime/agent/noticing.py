"""Online or draining: asks the sources of shutdown notices each second and tells transitions."""

import asyncio
from collections.abc import Sequence

from flexinfer.core.hardware.notices import Look, first
from flexinfer.runtime.agent.telling import Teller

TICK_SECONDS = 1.0


class Noticer:
    """``looks`` are asked in order; the first notice is the reason told."""

    def __init__(self, teller: Teller, looks: Sequence[Look]) -> None:
        self._teller = teller
        self._looks = looks

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(TICK_SECONDS)

    async def step(self) -> None:
        """One look at every source."""
        notice = first([await look() for look in self._looks])
        if notice is None:
            await self._teller.status("online")
        else:
            await self._teller.status("draining", notice.reason)
