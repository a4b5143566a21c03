"""Server-sent events come out whole however the bytes were cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.core.benchmark.sse import MAX_EVENT_BYTES, EventStream, StreamProblem

LINE = st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), max_size=20).map(str.encode)
END = st.sampled_from([b"\n", b"\r\n"])


def read(*portions: bytes) -> list[bytes]:
    stream = EventStream()
    return [data for portion in portions for data in stream.feed(portion)]


def test_one_event():
    assert read(b'data: {"a":1}\n\n') == [b'{"a":1}']


def test_comments_and_other_fields_are_dropped():
    assert read(b": ping\n\nevent: x\nid: 1\ndata: a\nretry: 5\n\n") == [b"a"]


def test_lines_of_one_event_are_joined():
    assert read(b"data: a\ndata: b\n\n") == [b"a\nb"]


def test_a_space_after_the_colon_is_optional():
    assert read(b"data:a\n\ndata\n\n") == [b"a", b""]


def test_carriage_returns_end_lines_too():
    assert read(b"data: a\r", b"\n\r", b"\ndata: b\r\n\r\n") == [b"a", b"b"]


def test_an_unfinished_event_is_pending():
    stream = EventStream()
    assert stream.feed(b"data: a\n") == []
    assert stream.pending


def test_an_endless_event_is_a_problem():
    stream = EventStream()
    with pytest.raises(StreamProblem) as caught:
        stream.feed(b"data: " + b"x" * MAX_EVENT_BYTES)
    assert caught.value.reason == "MalformedStream"


@given(st.lists(LINE, min_size=1, max_size=5), END, st.lists(st.integers(0, 200), max_size=8))
def test_any_cut_gives_the_same_events(lines: list[bytes], end: bytes, cuts: list[int]):
    raw = b"".join(b"data: " + line + end + end for line in lines)
    edges = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    assert read(*(raw[a:b] for a, b in itertools.pairwise(edges))) == lines


@given(st.lists(st.binary(max_size=50), max_size=10))
def test_bytes_never_break_it(portions: list[bytes]):
    for data in read(*portions):
        assert b"\r" not in data
