"""Names looked up as bytes are the names a decoder finds, or are left to it."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from flexinfer.core.placement import roster as rosters
from flexinfer.core.placement.names import MAX_WIDTH, NameTable
from flexinfer.core.placement.roster import Asked, Roster

dns = st.text("ab1.-", min_size=1, max_size=30)
odd = st.sampled_from(["", ",", 'a"b', "a\\", "ü", "a b", "\n", '","', "x" * MAX_WIDTH, "x" * (MAX_WIDTH - 2)])
names = st.lists(dns | odd, unique=True, max_size=40)


@settings(deadline=None)
@given(names, st.data())
def test_what_is_found_is_what_the_list_says(known, data):
    table = NameTable(known)
    asked = data.draw(st.lists(st.sampled_from(known or ["a"]) | dns, max_size=30))
    raw = msgspec.json.encode(asked)

    found = table.find(raw)

    if found is None:
        return
    assert [known[row] for row in found.rows] == asked
    tokens = [raw[begin : end - 1] for begin, end in zip(found.bounds, found.bounds[1:], strict=False)]
    assert [msgspec.json.decode(token) for token in tokens] == asked


@settings(deadline=None)
@given(st.lists(dns, unique=True, min_size=1, max_size=60), st.data())
def test_a_list_of_known_plain_names_is_always_found(known, data):
    asked = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=60))

    found = NameTable(known).find(msgspec.json.encode(asked))

    assert found is not None
    assert [known[row] for row in found.rows] == asked


@settings(deadline=None)
@given(st.lists(dns, unique=True, min_size=1, max_size=12), st.binary(max_size=60) | st.text('[]",ab1 ', max_size=60))
def test_bytes_that_are_no_list_of_names_are_never_taken_for_one(known, junk):
    raw = junk if isinstance(junk, bytes) else junk.encode()
    found = NameTable(known).find(raw)

    if found is not None:
        assert msgspec.json.decode(raw) == [known[row] for row in found.rows]


def test_names_that_share_a_slot_of_the_table_are_told_apart():
    known = [f"node-{number}" for number in range(20_000)]
    table = NameTable(known)

    found = table.find(msgspec.json.encode(known[::-1]))

    assert found is not None
    assert found.rows.tolist() == list(range(19_999, -1, -1))
    assert table.find(msgspec.json.encode([*known, "node-20000"])) is None


def test_a_roster_reads_names_it_has_met_and_numbers_new_ones(monkeypatch):
    monkeypatch.setattr(rosters, "SHORT", 0)
    roster = Roster()
    raw = msgspec.json.encode(["b", "a", "b"])
    assert roster.read(raw) is None

    first = Asked(["b", "a", "b"])
    first.enrol(roster)
    listing = roster.read(raw)
    again = Asked.of(roster, listing.rows, listing.bounds)

    assert (first.names, first.untouched) == (again.names, again.untouched) == (["b", "a"], False)
    assert roster.ranks().tolist() == [1, 0]
