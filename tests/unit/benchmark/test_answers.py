"""A streamed completion is folded into counts, times and the engine's own clock."""

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.core.benchmark.answers import Answer
from flexinfer.core.benchmark.sse import StreamProblem

USAGE = b'{"choices":[],"usage":{"prompt_tokens":31,"completion_tokens":3,"total_tokens":34}}'


def folded(*events: bytes) -> Answer:
    answer = Answer()
    for number, data in enumerate(events, 1):
        answer.fold(data, float(number))
    return answer


def test_chat_stream_of_llama_cpp():
    answer = folded(
        b'{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],"model":"m.gguf"}',
        b'{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hello"}}]}',
        b'{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"!"}}]}',
        b'{"choices":[{"finish_reason":"length","index":0,"delta":{}}]}',
        b'{"choices":[],"usage":{"completion_tokens":2,"prompt_tokens":31,"prompt_tokens_details":{"cached_tokens":0}},'
        b'"timings":{"cache_n":0,"prompt_n":31,"prompt_ms":300.0,"predicted_n":2,"predicted_ms":100.0}}',
        b"[DONE]",
    )
    assert answer.check_complete().completion_tokens == 2
    assert "".join(answer.parts) == "Hello!"
    assert answer.token_times == [2.0, 3.0]
    assert answer.finish_reason == "length"
    assert answer.model == "m.gguf"
    assert answer.cached_tokens == 0
    assert answer.engine_tokens_per_second == pytest.approx(2 / 0.4)


def test_text_completion_stream():
    answer = folded(b'{"choices":[{"index":0,"text":"a","finish_reason":"stop"}]}', USAGE, b"[DONE]")
    assert answer.token_times == [1.0]
    assert answer.check_complete().prompt_tokens == 31
    assert answer.engine_tokens_per_second is None


def test_reasoning_counts_as_output():
    assert folded(b'{"choices":[{"delta":{"reasoning_content":"hm"}}]}').token_times == [1.0]


def test_cached_tokens_of_servers_without_timings():
    data = b'{"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":8}}}'
    assert folded(data).cached_tokens == 8


def test_timings_of_zero_length_give_no_speed():
    data = b'{"timings":{"prompt_n":0,"prompt_ms":0,"predicted_n":0,"predicted_ms":0}}'
    assert folded(data).engine_tokens_per_second is None


def test_events_after_done_are_ignored():
    assert folded(b"[DONE]", b"not json").done


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([b'{"choices":['], "MalformedStream"),
        ([b"[1]"], "MalformedStream"),
        ([b'{"usage":{"prompt_tokens":-1,"completion_tokens":1}}'], "MalformedStream"),
        ([b"\xff\xfe"], "MalformedStream"),
        ([b"[" * 100_000], "MalformedStream"),
        ([b'{"error":{"message":"out of memory"}}'], "EngineFailed"),
        ([b'{"error":"boom"}'], "EngineFailed"),
    ],
)
def test_a_bad_event_names_its_reason(events: list[bytes], reason: str):
    with pytest.raises(StreamProblem) as caught:
        folded(*events)
    assert caught.value.reason == reason


def test_a_stream_without_usage_cannot_be_counted():
    answer = folded(b'{"choices":[{"text":"a","finish_reason":"stop"}]}', b"[DONE]")
    with pytest.raises(StreamProblem) as caught:
        answer.check_complete()
    assert caught.value.reason == "NoUsage"


def test_a_stream_that_ends_early_is_a_broken_connection():
    answer = folded(b'{"choices":[{"text":"a"}]}')
    with pytest.raises(StreamProblem) as caught:
        answer.check_complete()
    assert caught.value.reason == "Connection"


@given(st.binary(max_size=100))
def test_any_bytes_fold_or_name_a_reason(data: bytes):
    with suppress(StreamProblem):
        folded(data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.dictionaries(
            st.sampled_from(["choices", "usage", "timings", "error", "delta", "text", "model"]), inner | st.lists(inner)
        ),
    )
)
def test_any_json_folds_or_names_a_reason(value: object):
    with suppress(StreamProblem):
        folded(msgspec.json.encode(value))
