"""What leaves a node's cache: the least used, never what a pod uses, no more than needed."""

from hypothesis import given
from hypothesis import strategies as st

from flexinfer.core.lifecycle.fetching.eviction import JUST_USED_SECONDS, Room, Shelved, evictions

NOW = 1_800_000_000.0
OLD = NOW - JUST_USED_SECONDS - 1


def one(name: str, size: int, used: float = OLD) -> Shelved:
    return Shelved(name, f"hf://o/{name}", size, used)


def gone(*shelf: Shelved, in_use: frozenset[str] = frozenset(), **room: int) -> list[str]:
    found = evictions(shelf, in_use, Room(**{"limit": 0, "free": 100, "floor": 0, **room}), NOW)
    return [entry.entry for entry in found]


def test_nothing_goes_while_there_is_room() -> None:
    assert gone(one("a", 50), one("b", 50), limit=100, floor=100) == []


def test_the_least_used_goes_first_and_only_as_many_as_it_takes() -> None:
    shelf = (one("new", 30, OLD - 1), one("old", 30, OLD - 9), one("older", 30, OLD - 99))

    assert gone(*shelf, limit=60) == ["older"]
    assert gone(*shelf, free=10, floor=50) == ["older", "old"]


def test_what_pods_use_or_just_asked_for_stays_even_if_that_is_not_enough() -> None:
    shelf = (one("used", 90, OLD - 99), one("asked", 5, NOW - 1), one("idle", 5))

    assert gone(*shelf, in_use=frozenset({"used"}), limit=1) == ["idle"]


entries = st.builds(
    Shelved, st.text("abc", min_size=1, max_size=3), st.just("s"), st.integers(0, 1000), st.floats(0, NOW + 10)
)


@given(st.lists(entries, max_size=12, unique_by=lambda e: e.entry), st.sets(st.text("abc", max_size=3)),
       st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 3000))  # fmt: skip
def test_rules_hold_for_any_shelf(shelf: list[Shelved], used: set[str], limit: int, free: int, floor: int) -> None:
    found = evictions(shelf, frozenset(used), Room(limit, free, floor), NOW)
    freed = sum(e.bytes for e in found)
    held = sum(e.bytes for e in shelf)

    assert not {e.entry for e in found} & used
    assert all(NOW - e.used >= JUST_USED_SECONDS for e in found)
    assert list(found) == sorted(found, key=lambda e: (e.used, e.entry))
    if found:
        before = freed - found[-1].bytes
        assert (limit and held - before > limit) or free + before < floor, "the last one had to go, too"
