"""``flexinfer bench run``: a measurement with live progress on stderr and the result on stdout."""

import asyncio
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from flexinfer.adapters.inference.client import OpenAIClient
from flexinfer.adapters.inference.session import Listener, measure_server
from flexinfer.apps.bench_tools import tables
from flexinfer.config.bench_tools import BenchRunSettings
from flexinfer.contracts.envelope import EventMint, encode_event
from flexinfer.contracts.events import BenchCompleted, BenchSample, BenchSettings
from flexinfer.core.benchmark import plot
from flexinfer.core.benchmark.comparison import Run
from flexinfer.core.benchmark.failures import EXIT_STOPPED, EXIT_UNDELIVERED, failed, kind_of
from flexinfer.core.benchmark.findings import Unusable
from flexinfer.core.benchmark.summary import Subject, summarise
from flexinfer.core.fleet.identity import result_key, workload_id
from flexinfer.ports import EngineError
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.process import boot_id, fail, stop_signals
from flexinfer.runtime.tasks import Supervisor


async def run(settings: BenchRunSettings) -> int:
    """Measure and print; exit codes as of flexinfer-bench."""
    stop = stop_signals()
    tasks = Supervisor("bench")
    work = tasks.once("measure", _measured(settings))
    stopping = tasks.once("stop", stop.wait())
    try:
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            return fail("flexinfer bench run: stopped before the end, no result", EXIT_STOPPED)
        outcome: BenchCompleted | int = work.result()
    finally:
        await tasks.close()
    return outcome if isinstance(outcome, int) else _tell(settings, outcome)


async def _measured(settings: BenchRunSettings) -> BenchCompleted | int:
    clock = SystemClock()
    live = _Live(Console(stderr=True))
    try:
        settings = await _with_model(settings)
        subject = _subject(settings)
        plan, found = await measure_server(
            settings, settings.backend, subject.key, clock, Listener(live.ready, live.sample)
        )
        return summarise(
            subject, plan, found.results, found.seconds, notes=found.notes, cost_per_hour=settings.cost_per_hour
        )
    except Unusable as err:
        event = failed(_subject(settings), err.reason, str(err))
    finally:
        live.progress.stop()
    sys.stderr.write(f"flexinfer bench run: {event.reason}: {event.message}\n{event.remedy}\n")
    return kind_of(event.reason).exit_code


async def _with_model(settings: BenchRunSettings) -> BenchRunSettings:
    """Settings with a model the server lists. Raises Unusable for a name it does not list.

    Some servers answer for any name; then a wrong one would be measured as if it were right. A server that
    cannot be asked is left to the measurement, which waits for it.
    """
    if not settings.url.startswith(("http://", "https://")):
        return settings
    try:
        async with OpenAIClient(settings.url, api_key=settings.api_key, ca=settings.ca) as client:
            listed = tuple(await client.models())
    except EngineError as err:
        if settings.model:
            return settings
        reason = "NotReady" if err.reason in {"Connection", "Timeout"} else err.reason
        raise Unusable(reason, f"no model is named and the server does not list its models: {err}") from err
    except OSError as err:
        raise Unusable("BadSettings", f"the CA file {settings.ca} cannot be used: {err.strerror or err}") from err
    if not settings.model and len(listed) == 1:
        return settings.model_copy(update={"model": listed[0]})
    if not listed or settings.model in listed:
        return settings
    asked = f"model {settings.model!r} is not listed" if settings.model else "no model is named"
    raise Unusable("WrongModel", f"{asked}; the server has {', '.join(sorted(listed)[:10])}")


def _subject(settings: BenchRunSettings) -> Subject:
    model = settings.model or "unset"
    backend = settings.backend or "unknown"
    device_class = settings.device_class or "unknown"
    workload = workload_id(model, backend, (), None)
    return Subject(
        key=result_key(workload, "", "", device_class),
        namespace="default",
        model=model,
        workload=workload,
        source=model,
        backend=backend,
        device_class=device_class,
    )


class _Live:
    """Progress while it measures: one bar per stage with the speed of its last request."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[speed]}"),
            console=console,
        )
        self._bars: dict[tuple[bool, int, int | None], TaskID] = {}

    async def ready(self, plan: BenchSettings, waited: float) -> None:
        self.progress.start()
        self.progress.console.print(
            f"answers after {waited:.1f} s; {plan.batch_size} tokens per request", style="dim", highlight=False
        )

    async def sample(self, sample: BenchSample) -> None:
        planned = sample.planned_iterations
        stage = (sample.warmup, sample.concurrency, sample.prompt_tokens)
        if stage not in self._bars:
            name = "warm-up" if sample.warmup else f"{sample.concurrency} at once, {sample.prompt_tokens} prompt tokens"
            self._bars[stage] = self.progress.add_task(name, total=planned, speed="")
        bar = self._bars[stage]
        self.progress.update(bar, advance=1, speed=f"{sample.tokens_per_second:.1f} tokens/s per request")
        # A stage also lasts its least duration, so it may need more requests than planned.
        task = next(task for task in self.progress.tasks if task.id == bar)
        if task.total is not None and task.completed > task.total:
            self.progress.update(bar, total=task.completed)


def _tell(settings: BenchRunSettings, result: BenchCompleted) -> int:
    mint = EventMint.start("bench", result.key, boot_id(), SystemClock().now)
    event = mint.mint(result)
    try:
        if settings.svg:
            settings.svg.write_text(plot.curve_svg(f"{result.model}", plot.lines_of(result)))
        if settings.save:
            _append(settings.save, encode_event(event) + b"\n")
    except OSError as err:
        fail(f"flexinfer bench run: cannot write {err.filename}: {err.strerror}")
        return EXIT_UNDELIVERED
    tables.write([Run(event.at, result)], settings.output, lambda console: tables.result(console, result))
    return 0


def _append(path: Path, line: bytes) -> None:
    with path.open("ab") as file:
        file.write(line)
