"""Names, aliases, namespaces; repeats, snapshots and what they leave in doubt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.contracts.events import ModelAdapter
from flexinfer.core.routing.refusal import Refusal
from flexinfer.core.routing.table import DOUBT_SECONDS, Table
from tests.unit.routing.making import events, mint, spec


def table(*specs: object) -> Table:
    made = Table()
    for event in events(*specs):  # type: ignore[arg-type]
        made.fold(event)
    return made


def test_a_full_name_is_exact() -> None:
    made = table(spec(namespace="a"), spec(namespace="b"))

    assert made.resolve("b/m").namespace == "b"


def test_a_short_name_prefers_the_default_namespace() -> None:
    made = table(spec(namespace="a"), spec(), spec("only", namespace="z"))

    assert made.resolve("m").namespace == "default"
    assert made.resolve("only").namespace == "z"


def test_an_ambiguous_name_names_its_candidates() -> None:
    made = table(spec(namespace="a"), spec(namespace="b"))

    with pytest.raises(Refusal, match="a/m, b/m") as refusal:
        made.resolve("m")
    assert refusal.value.status == 404


def test_names_come_before_aliases_and_aliases_follow_the_same_rule() -> None:
    made = table(
        spec("x", aliases=("y", "org/x:8b")), spec("y", namespace="b"),
        spec("p", namespace="a", aliases=("both",)), spec("q", namespace="b", aliases=("both",)),
    )  # fmt: skip

    assert made.resolve("y").model == "y"
    assert made.resolve("org/x:8b").model == "x"
    with pytest.raises(Refusal, match="alias 'both' is ambiguous"):
        made.resolve("both")


def adapters(*names: str) -> tuple[ModelAdapter, ...]:
    return tuple(ModelAdapter(name=name, body={"model": name}) for name in names)


def test_adapters_come_last_and_are_told_from_their_model() -> None:
    made = table(
        spec("base", adapters=adapters("sql", "taken", "nick")), spec("taken", namespace="b"),
        spec("p", aliases=("nick",)), spec("far", namespace="b", adapters=adapters("sql", "law")),
        spec("bench-k", hidden=True, adapters=adapters("secret")),
    )  # fmt: skip
    base, far = made.resolve("base"), made.resolve("far")

    found = [(made.resolve(name).model, made.adapter(made.resolve(name), name)) for name in ("sql", "b/sql", "law")]
    assert [(model, one and one.name) for model, one in found] == [("base", "sql"), ("far", "sql"), ("far", "law")]
    assert made.adapter(base, "base") is made.adapter(base, "default/base") is None
    assert (made.resolve("taken").model, made.resolve("nick").model) == ("taken", "p")
    assert made.resolve("default/taken") is base
    shown = [made.adapter_name(route, one) for route in (base, far) for one in route.adapters or ()]
    assert shown == ["sql", "default/taken", "default/nick", "b/sql", "law"]
    with pytest.raises(Refusal):
        made.resolve("secret")


def test_hidden_names_answer_to_their_name_and_are_not_listed() -> None:
    made = table(spec("bench-k", hidden=True, aliases=("nick",)), spec())

    assert made.resolve("bench-k").hidden
    assert made.resolve("default/bench-k").hidden
    assert [route.model for route in made.listed()] == ["m"]
    with pytest.raises(Refusal):
        made.resolve("nick")


def test_a_resolution_does_not_outlive_its_route() -> None:
    made, by = Table(), mint()
    made.fold(by.mint(spec()))
    made.resolve("m")

    made.fold(by.mint(spec(gone=True)))

    with pytest.raises(Refusal, match="does not exist"):
        made.resolve("m")


def test_repeats_and_older_events_change_nothing() -> None:
    made = Table()
    old, new = events(spec("m", "a"), spec("m", "b"))

    assert made.fold(new) == "default/m"
    assert made.fold(old) is None
    assert made.fold(new) is None
    assert made.routes["default/m"].endpoints[0].pod == "b"


def test_a_snapshot_older_than_the_live_event_loses() -> None:
    made = Table()
    old, new = events(spec("m", "a"), spec("m", "b"))
    made.fold(new)

    assert made.replace([old], 0.0) == ()
    assert made.routes["default/m"].endpoints[0].pod == "b"


def test_a_new_manager_boot_replaces_what_the_old_one_said() -> None:
    made = Table()
    made.fold(mint("boot-1").mint(spec("m", "a")))

    made.fold(mint("boot-2").mint(spec("m", "b")))

    assert made.routes["default/m"].endpoints[0].pod == "b"


def test_what_a_snapshot_lacks_is_doubted_for_a_while_then_dropped() -> None:
    made, by = Table(), mint()
    made.replace([by.mint(spec("kept")), by.mint(spec("lost"))], 0.0)
    kept = by.mint(spec("kept", "a"))

    made.replace([kept], 100.0)

    assert set(made.routes) == {"default/kept", "default/lost"}
    assert made.expire(100.0 + DOUBT_SECONDS - 1) == ()
    assert made.expire(100.0 + DOUBT_SECONDS) == ("default/lost",)
    assert set(made.routes) == {"default/kept"}


def test_a_doubted_route_that_is_told_again_stays() -> None:
    made, by = Table(), mint()
    made.replace([by.mint(spec("m"))], 0.0)
    made.replace([], 100.0)

    made.fold(by.mint(spec("m", "a")))

    assert made.expire(1e9) == ()
    assert "default/m" in made.routes


def test_a_doubted_route_stays_when_the_same_word_is_said_again() -> None:
    """A bus that lost its store is filled with what its producers said, event by event."""
    made, word = Table(), mint().mint(spec("m"))
    made.replace([word], 0.0)
    made.replace([], 100.0)

    assert made.fold(word) is None

    assert made.expire(1e9) == ()
    assert "default/m" in made.routes


def test_a_dropped_route_comes_back_with_the_same_word() -> None:
    made, word = Table(), mint().mint(spec("m"))
    made.replace([word], 0.0)
    made.replace([], 100.0)
    assert made.expire(200.0) == ("default/m",)

    assert made.replace([word], 300.0) == ("default/m",)

    assert made.resolve("m").model == "m"


names = st.sampled_from(["a", "b", "c"])


@given(st.lists(st.tuples(names, names, st.booleans()), max_size=12), st.randoms())
def test_delivery_order_and_repeats_do_not_matter(steps: list[tuple[str, str, bool]], random: object) -> None:
    made = events(*(spec(model, namespace=namespace, gone=gone) for namespace, model, gone in steps))
    in_order = Table()
    for event in made:
        in_order.fold(event)
    shuffled = made + made
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    any_order = Table()
    for event in shuffled:
        any_order.fold(event)

    assert any_order.routes == in_order.routes


@given(st.lists(st.tuples(names, names), max_size=9, unique=True), st.text(max_size=8))
def test_resolve_finds_a_route_or_refuses(found: list[tuple[str, str]], name: str) -> None:
    made = table(*(spec(model, namespace=namespace) for namespace, model in found))

    for wanted in (name, "a", "a/b"):
        known = wanted in made.routes or any(route.model == wanted for route in made.listed())
        try:
            route = made.resolve(wanted)
        except Refusal:
            assert "/" not in wanted or not known
        else:
            assert wanted in {route.model, f"{route.namespace}/{route.model}"}


def test_public_names_resolve_to_their_route() -> None:
    made = table(spec(), spec(namespace="b"), spec("solo", namespace="c"))

    assert {made.public_name(route) for route in made.listed()} == {"m", "b/m", "solo"}
    for route in made.listed():
        assert made.resolve(made.public_name(route)) == route
