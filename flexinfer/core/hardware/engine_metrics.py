"""What engines say of themselves: KV-cache use, requests, tokens, from their own metrics pages.

vLLM renamed its gauge (``gpu_cache_usage_perc`` to ``kv_cache_usage_perc``); SGLang has ``token_usage``; TGI has a
token budget, to be compared with its ``/info``; llama.cpp has none, so it is derived from ``/slots``.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flexinfer.core.hardware.json_text import documents, mapping
from flexinfer.core.hardware.readings import count

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]{0,200})(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')

# metric → (what it is, how series of one metric add up). Ranks of tensor parallelism repeat each other; engines and
# data-parallel ranks share the work.
_KV, _RUNNING, _WAITING, _TOKENS, _RATE, _BUDGET = "kv", "running", "waiting", "tokens", "rate", "budget"
_METRICS: dict[str, tuple[str, str]] = {
    "vllm:kv_cache_usage_perc": ("vllm", _KV),
    "vllm:gpu_cache_usage_perc": ("vllm", _KV),
    "vllm:num_requests_running": ("vllm", _RUNNING),
    "vllm:num_requests_waiting": ("vllm", _WAITING),
    "vllm:generation_tokens_total": ("vllm", _TOKENS),
    "sglang:token_usage": ("sglang", _KV),
    "sglang:num_running_reqs": ("sglang", _RUNNING),
    "sglang:num_queue_reqs": ("sglang", _WAITING),
    "sglang:generation_tokens_total": ("sglang", _TOKENS),
    "sglang:gen_throughput": ("sglang", _RATE),
    "tgi_batch_current_size": ("tgi", _RUNNING),
    "tgi_queue_size": ("tgi", _WAITING),
    "tgi_request_generated_tokens_sum": ("tgi", _TOKENS),
    "tgi_batch_current_max_tokens": ("tgi", _BUDGET),
    "trtllm_kv_cache_utilization": ("tensorrt-llm", _KV),
    "nv_trt_llm_kv_cache_block_metrics": ("tensorrt-llm", _KV),
    "nv_trt_llm_request_metrics": ("tensorrt-llm", _RUNNING),
    "llamacpp:requests_processing": ("llamacpp", _RUNNING),
    "llamacpp:requests_deferred": ("llamacpp", _WAITING),
    "llamacpp:tokens_predicted_total": ("llamacpp", _TOKENS),
    "llamacpp:kv_cache_usage_ratio": ("llamacpp", _KV),  # builds before 2025
}
# Triton writes one metric for several figures and tells them apart by a label.
_ONLY = {
    "nv_trt_llm_kv_cache_block_metrics": ("kv_cache_block_type", "fraction"),
    "nv_trt_llm_request_metrics": ("request_type", "active"),
}
_SPREAD_BY = ("engine", "dp_rank")


@dataclass(frozen=True, slots=True)
class Page:
    """One engine's metrics page. ``generated`` counts tokens since the engine's start; ``budget`` is TGI's."""

    engine: str
    kv_ratio: float | None = None
    running: int | None = None
    waiting: int | None = None
    generated: float | None = None
    rate: float | None = None
    budget: float | None = None


@dataclass(frozen=True, slots=True)
class Slots:
    """llama.cpp's slots: tokens held by requests in progress over room for tokens; ``decoding`` is what is not yet in
    its counter of predicted tokens."""

    kv_ratio: float | None
    running: int
    decoding: int


def parse_page(text: str) -> Page | None:
    """A Prometheus exposition as one page; None if it is no engine's."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    engines: dict[str, int] = {}
    for name, labels, value in samples(text):
        engine, what = _METRICS[name]
        engines[engine] = engines.get(engine, 0) + 1
        spread = tuple(labels.get(key, "") for key in _SPREAD_BY)
        series = found.setdefault(what, {})
        series[spread] = max(series.get(spread, value), value)
    if not engines:
        return None
    return Page(
        engine=max(sorted(engines), key=lambda name: engines[name]),
        kv_ratio=_ratio(max(found[_KV].values())) if _KV in found else None,
        running=_sum(found.get(_RUNNING)),
        waiting=_sum(found.get(_WAITING)),
        generated=sum(found[_TOKENS].values()) if _TOKENS in found else None,
        rate=sum(found[_RATE].values()) if _RATE in found else None,
        budget=max(found[_BUDGET].values()) if _BUDGET in found else None,
    )


def samples(text: str) -> Iterable[tuple[str, dict[str, str], float]]:
    """Samples of the metrics known here: (name, labels, value); lines that are none are skipped."""
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name not in _METRICS:
            continue
        match = _SAMPLE.fullmatch(line)
        value = _value(match.group(3)) if match else None
        if match is None or value is None:
            continue
        labels = dict(_LABEL.findall(match.group(2) or ""))
        only = _ONLY.get(name)
        if only is None or labels.get(only[0]) == only[1]:
            yield name, labels, value


def _value(text: str) -> float | None:
    try:
        found = float(text) if len(text) < 40 else math.nan
    except ValueError:
        return None
    return found if math.isfinite(found) and found >= 0 else None


def _sum(series: Mapping[tuple[str, ...], float] | None) -> int | None:
    return int(sum(series.values())) if series else None


def _ratio(value: float) -> float:
    return min(1.0, value)


def parse_slots(text: str) -> Slots | None:
    """llama.cpp's ``/slots``; None if it is no list of slots. Idle slots keep prompts, but give them up at need."""
    for document in documents(text):
        if isinstance(document, list) and document and all(isinstance(slot, dict) for slot in document):
            return _slots(document)
    return None


def _slots(slots: list[dict[str, Any]]) -> Slots:
    room = sum(count(slot.get("n_ctx")) or 0 for slot in slots)
    busy = [slot for slot in slots if slot.get("is_processing") is True or slot.get("state") == 1]
    held = sum(min(_held(slot), count(slot.get("n_ctx")) or 0) for slot in busy)
    return Slots(held / room if room else None, len(busy), sum(_decoded(slot) for slot in busy))


def _decoded(slot: dict[str, Any]) -> int:
    """Tokens generated so far; ``next_token`` was an object and became a list of one."""
    found = slot.get("next_token")
    entry = found[0] if isinstance(found, list) and found else found
    return count(mapping(entry).get("n_decoded")) or 0


def _held(slot: dict[str, Any]) -> int:
    """Tokens of a slot in the cache. ``n_prompt_tokens`` grows with the answer in newer builds, not in older ones."""
    processed = (count(slot.get("n_prompt_tokens_processed")) or 0) + (count(slot.get("n_prompt_tokens_cache")) or 0)
    return max(count(slot.get("n_past")) or 0, count(slot.get("n_prompt_tokens")) or 0, processed + _decoded(slot))


def parse_budget(text: str) -> float | None:
    """``max_batch_total_tokens`` of TGI's ``/info``: how many tokens its KV cache holds."""
    for document in documents(text):
        found = count(mapping(document).get("max_batch_total_tokens"))
        if found:
            return float(found)
    return None


def rate_of(before: float | None, after: float | None, seconds: float) -> float | None:
    """Tokens per second between two counts; None without two, or after a restart of the engine."""
    if before is None or after is None or seconds <= 0 or after < before:
        return None
    return (after - before) / seconds
