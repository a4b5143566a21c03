"""Runs the stages of a benchmark against a server: waits for it, fits the prompt, sends, collects.

What to send and when to stop is decided in core.benchmark; this module only waits and counts.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flexinfer.contracts.events import BenchSample, BenchSettings
from flexinfer.core.benchmark import prompts, schedule
from flexinfer.core.benchmark.findings import (
    Failure,
    Measured,
    StageResult,
    Unusable,
    check_request,
    check_stage,
)
from flexinfer.core.benchmark.schedule import Stage
from flexinfer.ports import Clock, Completion, EngineError, InferenceClient

log = logging.getLogger(__name__)

# While these last the instance may still be starting: its proxy does not know it, or limits, or it loads.
_STARTING = frozenset({"NotReady", "Connection", "WrongModel", "Limited", "Http", "Timeout"})
_FITTING_TRIES = 4
_ERROR_PAUSE = 0.25
_MOST_FAILURES = 8


@dataclass(frozen=True, slots=True)
class Target:
    """Who is asked, for what, and how long we wait. ``options`` are body fields of every request."""

    client: InferenceClient
    model: str
    clock: Clock
    options: Mapping[str, Any]
    seed: int
    ready_timeout: float = 300.0
    time_limit: float = 480.0


@dataclass(slots=True)
class Findings:
    """All that a run found."""

    results: list[StageResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Driver:
    """One run against one target. ``on_sample`` is awaited after each finished request, warm-ups too."""

    def __init__(
        self, target: Target, settings: BenchSettings, key: str, on_sample: Callable[[BenchSample], Awaitable[None]]
    ) -> None:
        self._target = target
        self._settings = settings
        self._key = key
        self._on_sample = on_sample
        self._options = dict(target.options)
        self._words: dict[int, int] = {}  # prompt length in tokens -> in words
        self._number = 0
        self._first: Measured | None = None
        self._notes: list[str] = []

    async def ready(self) -> float:
        """Wait until one token comes back; the seconds it took. Raises Unusable at the deadline, or at once for
        what waiting does not cure."""
        clock = self._target.clock
        began = clock.monotonic()
        pause = 0.1
        limit = self._target.ready_timeout
        last = EngineError("NotReady", "it holds the request")
        while True:
            try:
                async with asyncio.timeout(max(0.0, limit - (clock.monotonic() - began))):
                    await self._ask(self._prompt(8), 1)
                return clock.monotonic() - began
            except EngineError as err:
                if err.reason not in _STARTING:
                    raise Unusable(err.reason, str(err)) from err
                last = err
                log.debug("waiting for %s: %s", self._target.model, err)
            except TimeoutError:
                log.debug("waiting for %s: the ready timeout ended an attempt", self._target.model)
            if clock.monotonic() - began + pause > limit:
                final = last.reason if last.reason in {"WrongModel", "Limited"} else "NotReady"
                raise Unusable(final, f"no answer within {limit:g} s: {last}") from last
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 2.0)

    async def run(self) -> Findings:
        """Every stage in order, after ``ready``. Raises Unusable: then there is no result at all."""
        clock = self._target.clock
        began = clock.monotonic()
        found = Findings(notes=self._notes)
        for stage in schedule.stages(self._settings):
            left = self._target.time_limit - (clock.monotonic() - began)
            if stage.tolerant and left <= 0:
                self._notes.append(f"time limit of {self._target.time_limit:g} s: the curve is incomplete")
                break
            if not await self._fits(stage):
                continue
            result = await self._stage(stage, left)
            note = check_stage(result)
            if note:
                self._notes.append(note)
            found.results.append(result)
        found.seconds = clock.monotonic() - began
        return found

    async def _fits(self, stage: Stage) -> bool:
        """Find the number of words that gives the stage's prompt length; False if the point cannot be measured."""
        wanted = stage.prompt_tokens
        if wanted in self._words:
            return True
        seen: list[tuple[int, int]] = []
        try:
            while len(seen) < _FITTING_TRIES:
                words = prompts.corrected(wanted, seen)
                told = (await self._ask(self._prompt(words), 1)).prompt_tokens
                seen.append((words, told))
                if told == wanted:
                    break
        except EngineError as err:
            if stage.tolerant and err.reason in {"ContextTooLong", "Limited"}:
                self._notes.append(f"no points with {wanted} prompt tokens: {err}")
                return False
            raise Unusable(err.reason, str(err)) from err
        self._words[wanted] = min(seen, key=lambda pair: abs(pair[1] - wanted))[0]
        return True

    async def _stage(self, stage: Stage, left: float) -> StageResult:
        clock = self._target.clock
        work = _Work(stage, clock.monotonic(), left)
        began_at = clock.now()
        try:
            async with asyncio.TaskGroup() as streams:
                for _ in range(stage.concurrency):
                    streams.create_task(self._worker(work))
        except ExceptionGroup as group:
            unusable, others = group.split(Unusable)
            if unusable is None or others is not None:
                raise
            raise unusable.exceptions[0] from group
        seconds = clock.monotonic() - work.began
        return StageResult(stage, tuple(work.measured), tuple(work.failures), seconds, began_at, clock.now())

    async def _worker(self, work: "_Work") -> None:
        stage = work.stage
        while work.wants_more(self._target.clock.monotonic()):
            iteration = work.begun
            work.begun += 1
            try:
                completion = await self._ask(self._prompt(self._words[stage.prompt_tokens]), self._settings.batch_size)
            except EngineError as err:
                if not stage.tolerant:
                    raise Unusable(err.reason, str(err)) from err
                work.failures.append(Failure(err.reason, str(err)))
                await asyncio.sleep(_ERROR_PAUSE)
                continue
            measured = _measured(completion)
            check_request(measured, self._settings.batch_size, self._first)
            self._first = self._first or measured
            work.measured.append(measured)
            await self._on_sample(self._sample(stage, iteration, measured))

    def _sample(self, stage: Stage, iteration: int, measured: Measured) -> BenchSample:
        return BenchSample(
            key=self._key,
            iteration=iteration,
            warmup=stage.kind == "warmup",
            concurrency=stage.concurrency,
            completion_tokens=measured.completion_tokens,
            duration_seconds=measured.duration,
            tokens_per_second=measured.tokens_per_second,
            first_token_seconds=measured.first_token,
            engine_tokens_per_second=measured.engine_tokens_per_second,
            planned_iterations=stage.at_least,
            prompt_tokens=stage.prompt_tokens,
        )

    async def _ask(self, prompt: str, max_tokens: int) -> Completion:
        try:
            return await self._target.client.complete(self._target.model, prompt, max_tokens, self._options)
        except EngineError as err:
            plain = prompts.plain_options(self._options)
            if err.reason != "Refused" or plain == self._options:
                raise
            # Strict servers refuse fields they do not know; then answers may end early, which the result notes.
            self._options = plain
            self._notes.append("the server refuses ignore_eos and cache_prompt; answers may end early or use a cache")
            return await self._target.client.complete(self._target.model, prompt, max_tokens, plain)

    def _prompt(self, words: int) -> str:
        self._number += 1
        return prompts.prompt(self._target.seed, self._number, words)


@dataclass(slots=True)
class _Work:
    """A stage in progress, shared by its streams; ``began`` is monotonic."""

    stage: Stage
    began: float
    left: float
    begun: int = 0
    measured: list[Measured] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def wants_more(self, now: float) -> bool:
        """Raises Unusable if the time limit ends a stage the result cannot do without."""
        elapsed = now - self.began
        if not schedule.wants_more(self.stage, self.begun, elapsed) or len(self.failures) >= _MOST_FAILURES:
            return False
        if elapsed < self.left:
            return True
        if self.begun >= self.stage.at_least or self.stage.tolerant:
            return False
        raise Unusable(
            "TooSlow", f"{self.begun} of {self.stage.at_least} {self.stage.kind} requests within {self.left:.0f} s"
        )


def _measured(done: Completion) -> Measured:
    return Measured(
        completion_tokens=done.completion_tokens,
        duration=done.duration,
        prompt_tokens=done.prompt_tokens,
        first_token=done.first_token,
        token_times=done.token_times,
        engine_tokens_per_second=done.engine_tokens_per_second,
        cached_tokens=done.cached_tokens,
        endpoint=done.endpoint,
        model=done.model,
    )
