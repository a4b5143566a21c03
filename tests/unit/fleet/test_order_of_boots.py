"""Whose word counts when several boots of one component have spoken about the same thing."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import NodeStatus
from flexinfer.core.fleet.view import SKEW_SECONDS, OrderBook

KEY = "node.n.status"


def said(boot: str, seq: int, at: float, source: str = "/clusters/default/agent/n") -> Event:
    return Event(
        id=f"{boot}-{seq}", source=source, type="status", subject="n", time=datetime.fromtimestamp(at, UTC),
        bootid=boot, seq=seq, data=NodeStatus(node="n", state="online"),
    )  # fmt: skip


def test_a_snapshot_older_than_a_live_event_does_not_shut_the_newer_boot_out() -> None:
    book = OrderBook()
    assert book.accept(KEY, said("new", 1, 100))  # heard live
    assert not book.accept(KEY, said("old", 70, 90))  # what the store still held
    assert book.accept(KEY, said("new", 2, 101))


def test_a_boot_that_was_replaced_and_says_nothing_new_stays_replaced() -> None:
    book = OrderBook()
    book.accept(KEY, said("old", 5, 90))
    assert book.accept(KEY, said("new", 1, 100))
    assert not book.accept(KEY, said("old", 5, 90))
    assert not book.accept(KEY, said("old", 6, 99))  # said before it ended, heard late
    assert book.seen[KEY].bootid == "new"


def test_a_leader_that_was_replaced_and_leads_again_is_heard() -> None:
    book = OrderBook()
    book.accept(KEY, said("a", 5, 90, "/clusters/default/manager/a"))
    book.accept(KEY, said("b", 1, 100, "/clusters/default/manager/b"))
    assert book.accept(KEY, said("a", 6, 110, "/clusters/default/manager/a"))
    assert book.accept(KEY, said("b", 2, 120, "/clusters/default/manager/b"))


def test_a_clock_that_was_set_back_costs_one_event() -> None:
    book = OrderBook()
    book.accept(KEY, said("old", 5, 5000))
    assert not book.accept(KEY, said("new", 1, 100))
    assert not book.accept(KEY, said("new", 1, 100))
    assert book.accept(KEY, said("new", 2, 101))
    assert book.accept(KEY, said("new", 3, 102))


def test_two_machines_may_disagree_about_the_time_a_little() -> None:
    book = OrderBook()
    book.accept(KEY, said("a", 5, 100, "/clusters/default/manager/a"))
    assert book.accept(KEY, said("b", 1, 100 - SKEW_SECONDS / 2, "/clusters/default/manager/b"))
    assert not book.accept(KEY, said("c", 1, 100 - 3 * SKEW_SECONDS, "/clusters/default/manager/c"))


@given(st.data())
def test_whatever_comes_late_or_twice_the_last_boot_has_the_last_word(data: st.DataObject) -> None:
    """Boots of one source, one after the other. Words may be lost, and between two that are heard in time one of
    those said before may be heard again, or for the first time, as in the snapshot after a reconnect."""
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    told: list[Event] = []
    for boot, length in enumerate(lengths):
        told += [said(f"b{boot}", seq, 10.0 * len(told) + seq) for seq in range(1, length + 1)]
    book = OrderBook()
    newest, quiet = -1, True
    for number, event in enumerate(told):
        if quiet and data.draw(st.booleans()):
            late = data.draw(st.integers(0, number))
            quiet = False
            if book.accept(KEY, told[late]):
                newest = max(newest, late)
        if data.draw(st.booleans()) or number == len(told) - 1:
            assert book.accept(KEY, event) == (number > newest)
            newest, quiet = max(newest, number), True
        if newest >= 0:
            kept = book.seen[KEY]
            assert (kept.bootid, kept.seq) == (told[newest].bootid, told[newest].seq)
    assert newest == len(told) - 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20), st.integers(0, 500)), max_size=30))
def test_nobody_is_shut_out_for_good(history: list[tuple[str, int, int]]) -> None:
    """Whatever was heard before, who goes on talking is believed at the second new word at the latest."""
    book = OrderBook()
    highest: dict[str, int] = {}
    for boot, seq, at in history:
        book.accept(KEY, said(boot, seq, float(at)))
        highest[boot] = max(seq, highest.get(boot, 0))
    for boot in "abc":
        first = highest.get(boot, 0) + 1
        heard = [book.accept(KEY, said(boot, first + step, 1.0 + step)) for step in range(3)]
        assert heard[1] or heard[0], heard
        assert heard[2]
