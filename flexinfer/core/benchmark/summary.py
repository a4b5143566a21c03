"""Stages to a result: the headline is a median, everything else says how far to trust it."""

from collections.abc import Sequence
from dataclasses import dataclass

from flexinfer.contracts.events import BenchCompleted, BenchSettings, BenchStarted, CurvePoint
from flexinfer.core.benchmark.findings import Measured, StageResult, Unusable
from flexinfer.core.benchmark.statistics import latencies, median, spread_percent

SPREAD_NOTE_PERCENT = 20.0
MAX_NOTES = 16


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured; the fields of the same names in the events."""

    key: str
    namespace: str
    model: str
    workload: str
    source: str
    backend: str
    device_class: str
    node: str | None = None
    image: str = ""
    image_digest: str | None = None
    driver_major: str = ""
    virtual: bool = False


def started(subject: Subject, settings: BenchSettings) -> BenchStarted:
    """The event that opens a run."""
    return BenchStarted(
        key=subject.key,
        namespace=subject.namespace,
        model=subject.model,
        device_class=subject.device_class,
        node=subject.node,
        settings=settings,
    )


def summarise(  # noqa: PLR0913 - the last three are optional facts of other sources
    subject: Subject,
    settings: BenchSettings,
    results: Sequence[StageResult],
    seconds: float,
    *,
    notes: Sequence[str] = (),
    joules_per_token: float | None = None,
    cost_per_hour: float | None = None,
) -> BenchCompleted:
    """The whole result. Raises Unusable if the headline stage has no usable request."""
    headline = next((r for r in results if r.stage.kind == "headline"), None)
    if headline is None or not headline.measured:
        raise Unusable("NoTokens", "no measured request finished")
    requests = headline.measured
    rates = [m.tokens_per_second for m in requests]
    speed = median(rates)
    if speed <= 0:
        raise Unusable("NoTokens", "the measured speed is zero")
    spread = spread_percent(rates)
    engine = [m.engine_tokens_per_second for m in requests if m.engine_tokens_per_second is not None]
    decode = [rate for m in requests if (rate := m.decode_tokens_per_second) is not None]
    curve = tuple(point(r) for r in results if r.stage.kind != "warmup" and r.measured)
    return BenchCompleted(
        key=subject.key,
        namespace=subject.namespace,
        model=subject.model,
        workload=subject.workload,
        source=subject.source,
        backend=subject.backend,
        device_class=subject.device_class,
        node=subject.node,
        virtual=subject.virtual,
        tokens_per_second=speed,
        iterations=len(requests),
        duration_seconds=seconds,
        spread_percent=spread,
        engine_tokens_per_second=median(engine) if len(engine) == len(requests) else None,
        decode_tokens_per_second=median(decode) if decode else None,
        first_token=latencies([m.first_token for m in requests if m.first_token is not None]),
        inter_token=latencies([gap for m in requests for gap in m.gaps]),
        end_to_end=latencies([m.duration for m in requests]),
        curve=curve,
        errors=sum(len(r.failures) for r in results),
        joules_per_token=joules_per_token,
        cost_per_million_tokens=cost_per_million(cost_per_hour, curve),
        image=subject.image,
        image_digest=subject.image_digest,
        driver_major=subject.driver_major,
        settings=settings,
        notes=tuple([*notes, *_remarks(settings, headline, spread)][:MAX_NOTES]),
    )


def point(result: StageResult) -> CurvePoint:
    """One point of the curve: tokens of all streams / wall time, and the median of single requests."""
    tokens = sum(m.completion_tokens for m in result.measured)
    return CurvePoint(
        concurrency=result.stage.concurrency,
        prompt_tokens=result.stage.prompt_tokens,
        tokens_per_second=tokens / result.seconds if result.seconds > 0 else 0.0,
        per_request_tokens_per_second=median([m.tokens_per_second for m in result.measured]),
        requests=len(result.measured),
        errors=len(result.failures),
    )


def cost_per_million(cost_per_hour: float | None, curve: Sequence[CurvePoint]) -> float | None:
    """Price of a million completion tokens at the fastest point of the curve, in the unit of the price.

    None without a price. The fastest point is what a well used node gives; at concurrency 1 nobody runs it.
    """
    best = max((p.tokens_per_second for p in curve), default=0.0)
    if cost_per_hour is None or best <= 0:
        return None
    return cost_per_hour / 3600.0 / best * 1e6


def _remarks(settings: BenchSettings, headline: StageResult, spread: float | None) -> list[str]:
    requests = headline.measured
    checks = (
        (_short(requests, settings.batch_size), f"ended before {settings.batch_size} tokens"),
        (
            sum(m.prompt_tokens != headline.stage.prompt_tokens for m in requests),
            "had another prompt length than asked",
        ),
        (sum((m.cached_tokens or 0) > 0 for m in requests), "took prompt tokens from a cache"),
        (
            sum(len(m.token_times) < m.completion_tokens * 0.9 for m in requests),
            "carried several tokens per event, so inter-token times are times between events",
        ),
    )
    found = [f"{count} of {len(requests)} iterations {text}" for count, text in checks if count]
    if spread is not None and spread > SPREAD_NOTE_PERCENT:
        found.append(f"spread of {spread:.0f} % between iterations: the node was busy, throttled or faulty")
    return found


def _short(requests: Sequence[Measured], asked: int) -> int:
    return sum(m.completion_tokens < asked for m in requests)
