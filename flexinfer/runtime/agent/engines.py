"""Live figures of the engines on this node, read from their own pages each telemetry period."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from flexinfer.contracts.events import EngineTelemetry
from flexinfer.core.hardware.engine_metrics import Page, parse_budget, parse_page, parse_slots, rate_of
from flexinfer.core.hardware.engine_pods import EnginePod
from flexinfer.core.hardware.readings import text_of
from flexinfer.ports import Clock
from flexinfer.runtime.agent.board import Board
from flexinfer.telemetry import metrics

Read = Callable[[str], Awaitable[bytes | None]]
Pods = Callable[[], Mapping[str, EnginePod] | None]

AT_ONCE = 8

_SCRAPES = metrics.counter("flexinfer_agent_engine_scrapes_total", "Engine pages asked for.", ("result",))


@dataclass(slots=True)
class _Seen:
    """What the last reading of one engine left for the next: its token count and when, and TGI's room."""

    generated: float | None = None
    at: float = 0.0
    room: float | None = None


class EngineWatch:
    """``pods`` gives the engines of the node now, None while they are not known."""

    def __init__(self, board: Board, read: Read, clock: Clock, pods: Pods) -> None:
        self._board = board
        self._read = read
        self._clock = clock
        self._pods = pods
        self._seen: dict[str, _Seen] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(self._board.station.telemetry_interval)

    async def step(self) -> None:
        """Read every engine once, a few at a time."""
        pods = self._pods()
        if pods is None:
            self._board.engines = None
            return
        for gone in set(self._seen) - {pod.uid for pod in pods.values()}:
            del self._seen[gone]
        gate = asyncio.Semaphore(AT_ONCE)
        found = await asyncio.gather(*(self._gated(gate, pod) for pod in pods.values()))
        self._board.engines = tuple(sorted(found, key=lambda engine: (engine.namespace, engine.pod)))

    async def _gated(self, gate: asyncio.Semaphore, pod: EnginePod) -> EngineTelemetry:
        async with gate:
            return await self._engine(pod)

    async def _engine(self, pod: EnginePod) -> EngineTelemetry:
        raw = await self._read(f"{pod.url}/metrics")
        page = parse_page(text_of(raw)) if raw is not None else None
        _SCRAPES.labels(result="ok" if page else "unreadable" if raw is not None else "no answer").inc()
        kv, decoding, running = (page.kv_ratio, 0, page.running) if page else (None, 0, None)
        if kv is None and (pod.backend == "llamacpp" or (page and page.engine == "llamacpp")):
            slots = parse_slots(text_of(await self._read(f"{pod.url}/slots")))
            if slots:
                kv, decoding, running = slots.kv_ratio, slots.decoding, slots.running
        if kv is None and page and page.budget is not None:
            kv = await self._budget_ratio(pod, page.budget)
        return EngineTelemetry(
            namespace=pod.namespace,
            pod=pod.name,
            model=pod.model,
            backend=page.engine if page else pod.backend or None,
            requests_running=running,
            requests_waiting=page.waiting if page else None,
            kv_cache_ratio=kv,
            tokens_per_second=self._rate(pod, page, decoding),
        )

    async def _budget_ratio(self, pod: EnginePod, used: float) -> float | None:
        seen = self._seen.setdefault(pod.uid, _Seen())
        if seen.room is None:
            seen.room = parse_budget(text_of(await self._read(f"{pod.url}/info")))
        return min(1.0, used / seen.room) if seen.room else None

    def _rate(self, pod: EnginePod, page: Page | None, decoding: int) -> float | None:
        if page is None:
            return None
        if page.rate is not None:
            return page.rate
        now = self._clock.monotonic()
        generated = None if page.generated is None else page.generated + decoding
        seen = self._seen.setdefault(pod.uid, _Seen())
        found = rate_of(seen.generated, generated, now - seen.at)
        seen.generated, seen.at = generated, now
        return found
