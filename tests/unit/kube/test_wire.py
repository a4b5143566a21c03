"""Bytes from a server are never trusted: any of them become an event, an error of ours, or nothing."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.adapters.kube import times, wire
from flexinfer.adapters.kube.pace import Pace
from flexinfer.contracts.kubernetes import PODS
from flexinfer.ports import KubeError, KubeUnavailable


async def chunks(parts: list[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def split(parts: list[bytes]) -> list[bytes]:
    async def read() -> list[bytes]:
        return [line async for line in wire.lines(chunks(parts))]

    return asyncio.run(read())


@given(st.lists(st.binary(max_size=12).filter(lambda text: b"\n" not in text), max_size=6), st.integers(1, 9))
def test_lines_do_not_depend_on_chunks(texts, size):
    whole = b"".join(text + b"\n" for text in texts)
    parts = [whole[start : start + size] for start in range(0, len(whole), size)]

    assert split(parts) == [text for text in texts if text]


def test_an_unfinished_line_is_not_an_event():
    assert split([b"a\nb"]) == [b"a"]


def test_a_line_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(wire, "MAX_LINE", 100)

    with pytest.raises(KubeUnavailable):
        split([b"x" * 60, b"x" * 60])


@given(st.binary(max_size=200))
def test_any_line_is_an_event_or_an_error(line):
    try:
        action, content = wire.event_of(line)
    except (KubeError, KubeUnavailable):
        return
    assert isinstance(action, str)
    assert isinstance(content, dict)


@given(st.integers(300, 599), st.binary(max_size=200), st.one_of(st.none(), st.text(max_size=10)))
def test_any_answer_is_one_of_our_errors(status, body, retry_after):
    error = wire.error_of(status, body, retry_after)

    assert isinstance(error, KubeError | KubeUnavailable)
    assert isinstance(error, KubeUnavailable) == (status == 429 or status >= 500)


def test_the_server_s_own_delay_is_found_in_either_place():
    body = json.dumps({"details": {"retryAfterSeconds": 4}}).encode()

    assert wire.error_of(429, body).retry_after == 4
    assert wire.error_of(429, body, "2").retry_after == 2
    assert wire.error_of(429, b"", "Wed, 21 Oct 2015 07:28:00 GMT").retry_after is None


def test_items_of_lists_get_their_kind():
    assert wire.typed({"metadata": {}}, PODS) == {"apiVersion": "v1", "kind": "Pod", "metadata": {}}
    given = {"apiVersion": "x", "kind": "Y"}
    assert wire.typed(given, PODS) is given


@given(st.floats(0, 4e9))
def test_times_survive_a_round_trip(at):
    assert times.parse(times.micro_time(at)) == pytest.approx(at, abs=2e-6)
    assert times.parse(times.time(at)) == pytest.approx(at, abs=1.0 + 2e-6)


@pytest.mark.parametrize("text", [None, "", "yesterday", 3, "2026-13-01T00:00:00Z", "2026-01-01T00:00:00"])
def test_what_is_no_time_is_none(text):
    assert times.parse(text) is None


def test_nanoseconds_and_offsets_are_read():
    assert times.parse("1970-01-01T01:00:00.123456789+01:00") == pytest.approx(0.123456, abs=1e-6)


@given(st.integers(0, 40), st.floats(1.0, 1.5), st.one_of(st.none(), st.floats(0, 1e6)))
def test_waits_are_at_least_a_second_and_at_most_the_ceiling(failures, jitter, asked):
    pace = Pace(random=lambda _low, _high: jitter)

    wait = pace.wait(failures, asked)

    assert 1.0 <= wait <= 30.0
    assert wait >= min(asked or 0.0, 30.0)
