"""The declared degraded mode of a replica that started without a bus."""

import asyncio
import logging
from collections.abc import Callable

from flexinfer.contracts.kubernetes import CONFIGMAPS
from flexinfer.contracts.labels import BENCHMARK_APP_LABEL
from flexinfer.ports import KubeApi, KubeError, KubeUnavailable
from flexinfer.runtime.placement.intake import FleetIntake

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0


class Fallback:
    """Waits for the first snapshot; when it does not come in time, reads labels and recorded results instead."""

    def __init__(
        self, intake: FleetIntake, api: KubeApi, namespace: str, after: float, nodes_known: Callable[[], bool]
    ) -> None:
        """``after``: seconds to wait. ``nodes_known`` tells that the Node list is complete."""
        self._intake = intake
        self._api = api
        self._namespace = namespace
        self._after = after
        self._nodes_known = nodes_known

    async def run(self) -> None:
        """Once; returns when degraded or when a snapshot came first."""
        await asyncio.sleep(self._after)
        while not self._intake.snapshots:
            if self._nodes_known():
                try:
                    found = await self._api.list(CONFIGMAPS, self._namespace, labels=f"app={BENCHMARK_APP_LABEL}")
                except (KubeError, KubeUnavailable) as err:
                    log.warning("recorded results cannot be read: %s", err)
                else:
                    if not self._intake.snapshots:
                        self._intake.degrade(found.items)
                    return
            await asyncio.sleep(min(RETRY_SECONDS, self._after or RETRY_SECONDS))
