"""Labels and annotations on the Node object: patched when they changed, nothing else touched."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from flexinfer.contracts.kubernetes import NODES, Object
from flexinfer.core.hardware.projection import Figures, annotation_changes, label_changes, moved
from flexinfer.ports import Clock, KubeApi, KubeError, KubeFact, KubeUnavailable, NotFound, Relisted
from flexinfer.runtime.agent.board import Board
from flexinfer.telemetry import metrics

log = logging.getLogger(__name__)

_PATCHES = metrics.counter("flexinfer_agent_node_patches_total", "Patches of our Node object.", ("result",))
_RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
TICK_SECONDS = 1.0


class Projector:
    """Keeps one Node's labels and annotations as the board says. ``take`` is the sink of a Node informer."""

    def __init__(self, board: Board, api: KubeApi, clock: Clock) -> None:
        self._board = board
        self._api = api
        self._clock = clock
        self._node: Object | None = None
        self._wake = board.listen()
        self._told = Figures()
        self._told_at = float("-inf")
        self._failures = 0
        self._not_before = 0.0
        self.problem: str | None = "the Node object was not seen yet"

    def take(self, fact: KubeFact) -> None:
        """A list or a change of Node objects; only ours matters."""
        if isinstance(fact, Relisted):
            self._see(next((node for node in fact.objects if self._ours(node)), None))
        elif self._ours(fact.object):
            self._see(None if fact.action == "DELETED" else fact.object)

    def _ours(self, node: Object) -> bool:
        return bool(node.get("metadata", {}).get("name") == self._board.station.node)

    def _see(self, node: Object | None) -> None:
        if node is None:
            self.problem = f"there is no Node named {self._board.station.node}"
        elif self._node is None:
            self.problem = None
        self._node = node
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            await self.step()

    async def once(self) -> None:
        """Read the Node and bring it up to date; a failure is in ``problem``."""
        try:
            self._see(await self._api.get(NODES, self._board.station.node))
        except (KubeError, KubeUnavailable) as err:
            self._failed(err, self._clock.monotonic())
            return
        await self.step()

    async def step(self) -> None:
        """One look: patch what differs, if it is due."""
        now = self._clock.monotonic()
        if self._node is None or self._board.hardware is None or now < self._not_before:
            return
        figures = self._board.figures
        patch = self._difference(self._node, figures, now)
        if not patch:
            return
        try:
            self._node = await self._api.patch(NODES, self._board.station.node, {"metadata": patch}, kind="merge")
        except (KubeError, KubeUnavailable) as err:
            self._failed(err, now)
            return
        _PATCHES.labels(result="ok").inc()
        self._failures = 0
        self.problem = None
        if "annotations" in patch:
            self._told, self._told_at = figures, now

    def _difference(self, node: Object, figures: Figures, now: float) -> dict[str, dict[str, str | None]]:
        meta: Mapping[str, Any] = node.get("metadata") or {}
        prefix = self._board.station.prefix
        labels = label_changes(meta.get("labels") or {}, self._board.labels, self._board.cache_labels, prefix)
        patch: dict[str, dict[str, str | None]] = {}
        if labels:
            patch["labels"] = labels
        age = now - self._told_at
        if age >= self._board.station.interval:
            annotations = annotation_changes(meta.get("annotations") or {}, self._board.annotations(figures), prefix)
            devices = prefix + "gpu-devices"
            if annotations and (devices in annotations or moved(self._told, figures, age)):
                patch["annotations"] = annotations
        return patch

    def _failed(self, err: KubeError | KubeUnavailable, now: float) -> None:
        """The bus side goes on; say what is wrong once per kind and wait longer each time."""
        if isinstance(err, NotFound):
            self._node = None
        wait = _RETRY_SECONDS[min(self._failures, len(_RETRY_SECONDS) - 1)]
        self._failures += 1
        self._not_before = now + max(wait, getattr(err, "retry_after", None) or 0.0)
        reason = err.reason if isinstance(err, KubeError) else "Unavailable"
        _PATCHES.labels(result=reason).inc()
        problem = f"labels of node {self._board.station.node} cannot be written: {err}"
        if reason == "Forbidden":
            problem += "; the agent's ServiceAccount needs the verbs get, list, watch and patch on nodes"
        if problem != self.problem:
            log.error(problem, extra={"node": self._board.station.node})
        self.problem = problem
