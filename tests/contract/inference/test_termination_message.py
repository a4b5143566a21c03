"""The outcome of a benchmark survives as one line of at most 4096 bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flexinfer.contracts.envelope import MalformedEvent
from flexinfer.contracts.events import BenchCompleted, BenchFailed, CurvePoint, Latencies
from flexinfer.contracts.termination import MAX_BYTES, decode_outcome, encode_outcome

DONE = BenchCompleted(
    key="m-0123", namespace="default", model="m", workload="m-4567", source="m.gguf", backend="llamacpp",
    device_class="cpu-x-2t", tokens_per_second=53.25, iterations=5, duration_seconds=31.0,
    first_token=Latencies(p50=0.1, p95=0.2, p99=0.3),
)  # fmt: skip
FAILED = BenchFailed(
    key="m-0123", namespace="default", model="m", reason="NotReady", message="no answer", remedy="Wait."
)
POINT = CurvePoint(
    concurrency=8, prompt_tokens=64, tokens_per_second=87.123456789, per_request_tokens_per_second=11.1, requests=16
)


@pytest.mark.parametrize("outcome", [DONE, FAILED])
def test_it_comes_back_as_it_was(outcome: BenchCompleted | BenchFailed):
    line = encode_outcome(outcome)
    assert line.startswith(b'{"type":"ai.flexinfer.bench.')
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode_outcome(line) == outcome
    assert decode_outcome(line.decode()) == outcome


def test_the_curve_goes_first_when_it_is_too_long():
    long = replace(DONE, curve=(POINT,) * 200, notes=("note",) * 3)
    line = encode_outcome(long)
    kept = decode_outcome(line)
    assert isinstance(kept, BenchCompleted)
    assert len(line) <= MAX_BYTES
    assert 0 < len(kept.curve) < 200
    assert kept.notes == long.notes
    assert replace(kept, curve=()) == replace(long, curve=())


@given(st.lists(st.text(max_size=2000), max_size=10), st.text(max_size=9000), st.integers(0, 60))
def test_it_always_fits(notes: list[str], text: str, points: int):
    done = replace(DONE, notes=tuple(notes), curve=(POINT,) * points, source=text, image=text)
    assert len(encode_outcome(done)) <= MAX_BYTES
    failed = replace(FAILED, message=text, remedy=text)
    assert decode_outcome(encode_outcome(failed)).reason == "NotReady"


def test_half_a_line_is_no_outcome():
    line = encode_outcome(DONE)
    for cut in range(len(line) - 2):
        with pytest.raises(MalformedEvent):
            decode_outcome(line[:cut])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "OOMKilled",
        "[]",
        '{"type":"ai.flexinfer.node.status.v1","data":{"node":"a","state":"online"}}',
        '{"type":"ai.flexinfer.bench.completed.v9","data":{}}',
        '{"type":"ai.flexinfer.bench.completed.v1","data":{"key":"a"}}',
    ],
)
def test_anything_else_is_malformed(text: str):
    with pytest.raises(MalformedEvent):
        decode_outcome(text)
