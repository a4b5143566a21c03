"""Properties of the wire format over any payload: what goes out comes back, and bytes never do harm."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect as mi

from flexinfer.adapters.bus.broker import matches
from flexinfer.contracts.envelope import Event, EventMint, MalformedEvent, decode_event, encode_event
from flexinfer.contracts.topics import (
    PREFIX,
    TOPIC_OF,
    TOPICS,
    entity_of,
    key_pattern,
    log_subjects,
    order_key,
    sampled_subject,
    subject_of,
    token,
    untoken,
)

SAMPLES = [
    path.read_bytes() for path in sorted((Path(__file__).parents[2] / "contract/schemas/samples").glob("*.json"))
]
NAMES = st.lists(st.text("ab0-", min_size=1, max_size=5), min_size=1, max_size=3).map(".".join)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
TIMES = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds the zone
JSON = st.recursive(st.none() | st.booleans() | st.integers(-1000, 1000) | TEXT, st.lists, max_leaves=4)


def values(kind: mi.Type) -> st.SearchStrategy[Any]:
    """Any value of a msgspec type, within its constraints; strings with constraints are Kubernetes names."""
    match kind:
        case mi.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: values(field.type) for field in fields})
        case mi.IntType(ge=ge, le=le):
            return st.integers(-(2**53) if ge is None else ge, 2**53 if le is None else le)
        case mi.FloatType(ge=ge, gt=gt, le=le):
            low = ge if ge is not None else gt
            return st.floats(low, le, exclude_min=gt is not None, allow_nan=False, allow_infinity=False)
        case mi.StrType(min_length=least):
            return NAMES if least else TEXT
        case mi.LiteralType(values=options):
            return st.sampled_from(sorted(options))
        case mi.UnionType(types=types):
            return st.one_of([values(inner) for inner in types])
        case mi.VarTupleType(item_type=item):
            return st.lists(values(item), max_size=3).map(tuple)
        case mi.DictType(key_type=key, value_type=value):
            return st.dictionaries(values(key), values(value), max_size=3)
        case _:
            return {mi.BoolType: st.booleans(), mi.NoneType: st.none(), mi.DateTimeType: TIMES, mi.AnyType: JSON}[
                type(kind)
            ]


PAYLOADS = st.one_of([values(mi.type_info(topic.data)) for topic in TOPICS.values()])


def event_of(data: Any, at: float = 1_750_000_000.5) -> Event:
    return EventMint.start("agent", "n1", "b1", lambda: at).mint(data)


@given(PAYLOADS, st.floats(0, 4e9))
def test_what_is_written_is_read_back(data, at):
    event = event_of(data, at)
    assert decode_event(encode_event(event)) == event


@given(st.binary(max_size=400))
def test_any_bytes_are_an_event_or_malformed(raw):
    with suppress(MalformedEvent):
        decode_event(raw)


@settings(max_examples=300)
@given(st.sampled_from(SAMPLES), st.data())
def test_a_damaged_event_is_read_or_malformed(raw, data):
    """Cut, overwritten or spliced anywhere."""
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, min(len(raw), start + 40)))
    patch = data.draw(
        st.binary(max_size=20) | st.sampled_from([b"null", b"-1", b"1e400", b'"\\ud800"', b"[" * 2000, b"{}"])
    )
    with suppress(MalformedEvent):
        decode_event(raw[:start] + patch + raw[end:])


@given(st.sampled_from(SAMPLES), st.dictionaries(st.from_regex("x[a-z]{1,8}", fullmatch=True), JSON, max_size=3))
def test_fields_we_do_not_know_are_ignored(raw, extra):
    document = msgspec.json.decode(raw)
    more = {**document, **extra, "data": {**document["data"], **extra}}
    assert decode_event(msgspec.json.encode(more)) == decode_event(raw)


@given(NAMES)
def test_a_name_survives_being_a_token(name):
    assert untoken(token(name)) == name
    assert "." not in token(name)


@given(PAYLOADS)
def test_subject_key_and_patterns_agree(data):
    topic = TOPIC_OF[type(data)]
    subject = subject_of(data)
    assert matches(f"{PREFIX}.default.{topic.wildcard}", subject)
    # No other topic listens to it: a reader never sees a type it did not ask for.
    others = [other for other in TOPICS.values() if other is not topic]
    assert not any(matches(f"{PREFIX}.*.{other.wildcard}", subject) for other in others)
    if topic.bucket is not None and topic.key is not None:
        assert matches(key_pattern(topic), topic.key(data))
    taken = [pattern for pattern in log_subjects() if matches(pattern, subject)]
    assert len(taken) == (topic.log == "all")
    assert any(matches(pattern, sampled_subject(subject)) for pattern in log_subjects())


@given(PAYLOADS, PAYLOADS)
def test_order_keys_tell_entities_apart_and_nothing_else(one, other):
    assert order_key(one) == order_key(decode_event(encode_event(event_of(one))).data)
    same = type(one) is type(other) and TOPIC_OF[type(one)].tokens(one) == TOPIC_OF[type(other)].tokens(other)
    assert (order_key(one) == order_key(other)) == same
    assert entity_of(one)


@given(st.lists(st.sampled_from([decode_event(raw).data for raw in SAMPLES]), max_size=30))
def test_sequences_grow_by_one_per_type_and_ids_are_unique(payloads):
    mint = EventMint.start("agent", "n1", "b1", lambda: 0.0)
    events = [mint.mint(data) for data in payloads]
    assert len({event.id for event in events}) == len(events)
    for name in TOPICS:
        mine = [event.seq for event in events if event.type == name]
        assert mine == list(range(1, len(mine) + 1))


def test_the_longest_names_still_make_a_readable_event():
    longest = ".".join(["x" * 63] * 3 + ["x" * 61])
    assert len(longest) == 253
    mint = EventMint.start("global-proxy", longest, "b" * 128, lambda: 0.0)
    for topic in TOPICS.values():
        for raw in SAMPLES:
            event = decode_event(raw)
            if event.type == topic.name:
                assert decode_event(encode_event(mint.mint(event.data))).data == event.data


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_caught_by_the_reader(value):
    """JSON has no NaN: it arrives as null, which a required number refuses."""
    raw = next(raw for raw in SAMPLES if b"bench.completed.v1" in raw)
    event = decode_event(raw)
    broken = msgspec.structs.replace(event, data=msgspec.structs.replace(event.data, tokens_per_second=value))
    with pytest.raises(MalformedEvent):
        decode_event(encode_event(broken))
