"""The pods bound to this node: which are engines, and which ask for hardware that is not here."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import msgspec

from flexinfer.contracts.events import NodeHardware, PodMismatch
from flexinfer.contracts.extender import PodObject
from flexinfer.contracts.kubernetes import Object
from flexinfer.contracts.labels import POD_CACHE_ENTRY
from flexinfer.core.fleet.bound import misfits
from flexinfer.core.fleet.pods import ended
from flexinfer.core.hardware.engine_pods import EnginePod, engine_of
from flexinfer.ports import KubeFact, Relisted
from flexinfer.runtime.agent.board import Board
from flexinfer.telemetry import metrics

REASON = "HardwareMismatch"

Emit = Callable[[Object, Literal["Normal", "Warning"], str, str], None]

_MISMATCHES = metrics.counter("flexinfer_agent_pod_mismatches_total", "Pods bound here that do not fit the hardware.")


class PodWatch:
    """``take`` is the sink of this node's Pod informer. ``emit`` writes a Kubernetes Event, ``tell`` a bus event."""

    def __init__(self, board: Board, emit: Emit | None, tell: Callable[[PodMismatch], Awaitable[None]]) -> None:
        self._board = board
        self._emit = emit
        self._tell = tell
        self._pods: dict[str, Object] = {}
        self._engines: dict[str, EnginePod] = {}
        self._said: dict[str, tuple[str, ...]] = {}
        self._known = False
        self._wake = board.listen()

    def engines(self) -> Mapping[str, EnginePod] | None:
        """Engines by pod uid; None until the pods of the node were listed."""
        return self._engines if self._known else None

    def cache_entries(self) -> frozenset[str] | None:
        """Entries of the node's cache that its pods use; None until the pods were listed."""
        if not self._known:
            return None
        found: set[str] = set()
        for pod in self._pods.values():
            if (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
                continue
            written = ((pod.get("metadata") or {}).get("annotations") or {}).get(POD_CACHE_ENTRY, "")
            found.update(name for name in str(written).split(",") if name)
        return frozenset(found)

    def take(self, fact: KubeFact) -> None:
        """A list or a change of pods."""
        if isinstance(fact, Relisted):
            self._pods.clear()
            self._engines.clear()
            for pod in fact.objects:
                self._put(pod)
            self._known = True
            self._said = {uid: said for uid, said in self._said.items() if uid in self._pods}
        elif fact.action == "DELETED":
            uid = _uid(fact.object)
            self._pods.pop(uid, None)
            self._engines.pop(uid, None)
            self._said.pop(uid, None)
        else:
            self._put(fact.object)
        self._wake.set()

    def _put(self, pod: Object) -> None:
        uid = _uid(pod)
        self._pods[uid] = pod
        engine = engine_of(pod)
        if engine:
            self._engines[uid] = engine
        else:
            self._engines.pop(uid, None)

    async def run(self) -> None:
        """Check pods when they or the hardware change, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.check()
            await asyncio.sleep(0.2)  # a burst of changes is one check

    async def check(self) -> None:
        """Compare every pod with the hardware and say what is new."""
        hardware = self._board.hardware
        if hardware is None:
            return
        for uid, pod in list(self._pods.items()):
            reasons = _misfits(pod, hardware)
            if reasons == self._said.get(uid, ()):
                continue
            self._said[uid] = reasons
            if reasons:
                await self._say(pod, reasons)

    async def _say(self, pod: Object, reasons: tuple[str, ...]) -> None:
        meta = pod.get("metadata") or {}
        _MISMATCHES.inc()
        if self._emit:
            self._emit(
                {"apiVersion": "v1", "kind": "Pod", "metadata": meta},
                "Warning",
                REASON,
                f"does not fit node {self._board.station.node}: {'; '.join(reasons)}",
            )
        await self._tell(
            PodMismatch(
                node=self._board.station.node,
                namespace=str(meta.get("namespace") or "default"),
                pod=str(meta.get("name") or "unnamed"),
                pod_uid=str(meta.get("uid") or ""),
                reasons=reasons,
            )
        )


def _uid(pod: Object) -> str:
    meta = pod.get("metadata") or {}
    return str(meta.get("uid") or f"{meta.get('namespace')}/{meta.get('name')}")


def _misfits(pod: Object, hardware: NodeHardware) -> tuple[str, ...]:
    try:
        read = msgspec.convert(pod, PodObject)
    except msgspec.ValidationError:
        return ()  # an API server would not have let it pass; nothing to compare
    return () if ended(read) else misfits(read, hardware)
