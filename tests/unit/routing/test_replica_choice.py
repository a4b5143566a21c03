"""Which replica is chosen, under every strategy."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.core.routing import speed
from flexinfer.core.routing.balance import choose
from flexinfer.core.routing.ejection import FAILURES, FIRST_SECONDS, Ejection
from flexinfer.core.routing.replicas import Pool, Replica
from flexinfer.core.routing.ring import BOUND
from tests.unit.routing.making import spec

NOW = 1000.0


def pool(*pods: str, **options: object) -> Pool:
    made = Pool()
    made.update(spec("m", *pods, **options), {})
    return made


def fill(made: Pool, requests: int, affinity: str = "") -> Counter[str]:
    """Send so many requests that never end; who got them."""
    for _ in range(requests):
        choice = choose(made, NOW, affinity=affinity)
        assert choice
        choice.replica.outstanding += 1
    return Counter({replica.pod: replica.outstanding for replica in made.ready})


def test_the_faster_replica_gets_as_much_more_as_it_is_faster() -> None:
    assert fill(pool("a@90", "b@30"), 40) == {"a": 30, "b": 10}


def test_an_idle_slow_replica_waits_until_the_fast_one_is_as_slow() -> None:
    made = pool("a@100", "b@20")

    assert fill(made, 4) == {"a": 4, "b": 0}


def test_equals_take_turns_when_idle() -> None:
    made = pool("a@50", "b@50", "c@50")

    chosen = Counter(choose(made, NOW).replica.pod for _ in range(9))  # type: ignore[union-attr]

    assert chosen == {"a": 3, "b": 3, "c": 3}


def test_the_unmeasured_count_as_the_median() -> None:
    assert fill(pool("a@40", "b"), 20) == {"a": 10, "b": 10}
    assert fill(pool("a", "b"), 20) == {"a": 10, "b": 10}


def test_a_curve_says_how_replicas_bear_load() -> None:
    made = Pool()
    # One keeps its 100 tokens/s however many ask; the other starts at half of it and grows to 800.
    curves = {"class-a": ((1, 100.0), (8, 100.0)), "class-b": ((1, 50.0), (16, 800.0))}
    made.update(spec("m", "a@100", "b@50"), curves)

    assert choose(made, NOW).replica.pod == "a"  # type: ignore[union-attr]
    got = fill(made, 18)
    assert got["b"] >= 14


def test_what_other_proxies_have_there_counts_too() -> None:
    made = Pool()
    made.update(spec("m", "a@100", "b@50"), {"class-a": ((1, 100.0), (8, 100.0)), "class-b": ((1, 50.0), (16, 800.0))})
    assert choose(made, NOW).replica.pod == "a"  # type: ignore[union-attr]

    made.others = 20.0

    assert choose(made, NOW).replica.pod == "b"  # type: ignore[union-attr]


@given(st.floats(0, 200), st.integers(1, 40))
def test_others_do_not_change_the_shares_of_replicas_that_scale_alike(others: float, requests: int) -> None:
    made = pool("a@60", "b@60")
    made.others = others

    got = fill(made, requests)

    assert abs(got["a"] - got["b"]) <= 1 + others / requests


def test_classes_without_a_curve_take_the_shape_measured_elsewhere() -> None:
    made = Pool()
    made.update(spec("m", "a@100", "b@100"), {"class-a": ((1, 100.0), (8, 400.0))})

    assert fill(made, 16) == {"a": 8, "b": 8}
    assert made.capacity == 800.0


def test_a_name_cannot_break_out_of_its_header() -> None:
    assert Replica("pod-1.a", "http://a").header == b"pod-1.a"
    assert Replica("pod\r\nx: é", "http://a").header == b"pod??x:??"


def test_draining_replicas_get_nothing_and_counts_survive_updates() -> None:
    made = pool("a@50", "b@50")
    fill(made, 4)

    made.update(spec("m", "a@50!", "b@50", "c@50"), {})

    assert choose(made, NOW).replica.pod == "c"  # type: ignore[union-attr]
    assert made.members["a", "http://a:80"].outstanding == 2
    assert {choose(made, NOW).replica.pod for _ in range(9)} == {"c"}  # type: ignore[union-attr]


def test_tried_replicas_are_not_asked_twice() -> None:
    made = pool("a@50", "b@1")
    first = choose(made, NOW)

    assert first
    second = choose(made, NOW, {first.replica.key})
    assert second
    assert {first.replica.pod, second.replica.pod} == {"a", "b"}
    assert choose(made, NOW, {first.replica.key, second.replica.key}) is None


def test_the_other_strategies() -> None:
    assert fill(pool("a@90", "b@10", balancing="least-outstanding"), 10) == {"a": 5, "b": 5}
    made = pool("a@90", "b@10", balancing="round-robin")
    made.ready[0].outstanding = 50
    assert Counter(choose(made, NOW).replica.pod for _ in range(10)) == {"a": 5, "b": 5}  # type: ignore[union-attr]


def test_an_unknown_strategy_is_the_default_and_says_so() -> None:
    choice = choose(pool("a@1", balancing="magic"), NOW)

    assert choice
    assert choice.reason.startswith("measured ")


def test_a_reason_holds_rule_and_numbers() -> None:
    choice = choose(pool("a@51.26", "b"), NOW)

    assert choice
    assert choice.reason in {
        "measured tokens_per_second=51.3 outstanding=0 candidates=2",
        "measured tokens_per_second=unmeasured(51.3) outstanding=0 candidates=2",
    }


@pytest.mark.parametrize("rule", ["session", "prefix"])
def test_affinity_keeps_a_key_together_and_spreads_keys(rule: str) -> None:
    made = pool("a@50", "b@50", "c@50", balancing=rule)

    homes = {key: {choose(made, NOW, affinity=key).replica.pod for _ in range(5)} for key in map(str, range(60))}  # type: ignore[union-attr]

    assert all(len(pods) == 1 for pods in homes.values())
    assert set.union(*homes.values()) == {"a", "b", "c"}
    choice = choose(made, NOW)
    assert choice
    assert choice.reason.startswith(f"{rule}:no-key,measured ")


def test_a_replica_that_leaves_moves_its_own_keys_only() -> None:
    made = pool("a@50", "b@50", "c@50", balancing="session")
    before = {key: choose(made, NOW, affinity=key).replica.pod for key in map(str, range(200))}  # type: ignore[union-attr]

    made.update(spec("m", "a@50", "c@50", balancing="session"), {})
    after = {key: choose(made, NOW, affinity=key).replica.pod for key in before}  # type: ignore[union-attr]

    assert all(after[key] == pod for key, pod in before.items() if pod != "b")


@given(st.integers(2, 6), st.integers(1, 60))
def test_a_popular_key_never_overloads_its_home(replicas: int, requests: int) -> None:
    made = pool(*(f"p{i}@50" for i in range(replicas)), balancing="session")

    got = fill(made, requests, affinity="everybody")

    assert max(got.values()) <= BOUND * requests / replicas + 1


def test_a_replica_twice_as_fast_may_hold_twice_as_much_of_a_key() -> None:
    got = fill(pool("a@100", "b@50", balancing="session"), 60, affinity="x")

    assert got["a"] + got["b"] == 60
    assert got["a"] <= 1.25 * 61 * 2 / 3 + 1
    assert got["b"] <= 1.25 * 61 / 3 + 1


def test_an_ejected_replica_is_left_alone_until_one_probe_succeeds() -> None:
    made = pool("a@1000", "b@1")
    bad = made.ready[0]
    for _ in range(FAILURES):
        bad.ejection.bad(NOW)

    assert {choose(made, NOW + 1).replica.pod for _ in range(5)} == {"b"}  # type: ignore[union-attr]
    later = NOW + FIRST_SECONDS
    probe = choose(made, later)
    assert probe
    assert probe.replica is bad
    assert bad.ejection.began(later)
    assert {choose(made, later).replica.pod for _ in range(5)} == {"b"}  # type: ignore[union-attr]
    bad.ejection.good(later)
    assert choose(made, later).replica is bad  # type: ignore[union-attr]


def test_when_everybody_is_ejected_everybody_is_asked() -> None:
    made = pool("a", "b")
    for replica in made.ready:
        for _ in range(FAILURES):
            replica.ejection.bad(NOW)

    choice = choose(made, NOW)

    assert choice
    assert choice.reason.endswith("ejected=2")


def test_ejections_grow_longer_and_are_forgiven() -> None:
    standing = Ejection()
    lengths = []
    now = NOW
    for _ in range(6):
        while not standing.ejected or not standing.bad(now):
            standing.bad(now)
            standing.began(now)
            if standing.ejected and not standing.probing:
                break
        lengths.append(standing.until - now)
        now = standing.until
        assert standing.began(now)
    assert lengths == sorted(lengths)
    assert lengths[0] == FIRST_SECONDS
    assert lengths[-1] == 60.0
    standing.good(now)
    for _ in range(FAILURES):
        standing.bad(now + 500)
    assert standing.until == now + 500 + FIRST_SECONDS


def test_a_probe_whose_client_left_lets_another_one_try() -> None:
    standing = Ejection()
    for _ in range(FAILURES):
        standing.bad(NOW)
    later = NOW + 10
    standing.began(later)
    assert not standing.admits(later)

    standing.gave_up()

    assert standing.admits(later)


curves = st.lists(st.tuples(st.integers(1, 64), st.floats(0.1, 1e4)), min_size=1, max_size=6)


@given(curves, st.floats(0.1, 1e4), st.integers(1, 100))
def test_throughput_stays_within_what_was_measured(points: list[tuple[int, float]], single: float, n: int) -> None:
    curve = speed.curve_of(points, single)
    if not curve:
        return

    value = speed.throughput(curve, n)

    assert min(s for _, s in curve) <= value * 1.0000001
    assert value <= speed.most(curve) * 1.0000001
    assert speed.throughput(curve, 1) == single


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=5), st.integers(0, 50))
def test_every_choice_is_the_least_costly(speeds: list[float], requests: int) -> None:
    made = pool(*(f"p{i}@{value}" for i, value in enumerate(speeds)))
    fill(made, requests)

    choice = choose(made, NOW)

    assert choice
    assert choice.replica.cost() == min(replica.cost() for replica in made.ready)
