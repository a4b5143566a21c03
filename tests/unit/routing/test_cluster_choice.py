"""Which cluster is chosen, who counts as up, and how one returns."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.contracts.events import ClusterHeadroom, ModelHeadroom
from flexinfer.core.routing import federation
from flexinfer.core.routing.clusters import SILENT_SECONDS, Cluster, Clusters
from flexinfer.core.routing.health import FAILURES, RAMP_SECONDS, SUCCESSES, Health
from tests.unit.routing.making import mint

NOW = 1000.0


def row(name: str = "m", state: str = "ready", namespace: str = "default", **more: object) -> dict[str, object]:
    return {"id": name, "flexinfer": {"namespace": namespace, "model": name, "state": state, "aliases": [], **more}}


def world(strategy: str, *names: str, state: str = "ready", weights: tuple[float, ...] = ()) -> Clusters:
    made = Clusters(strategy)  # type: ignore[arg-type]
    for i, name in enumerate(names):
        cluster = Cluster(name, (f"http://{name}",), weights[i] if weights else 1.0)
        federation.take_listing(cluster, [row(state=state)])
        made.members[name] = cluster
    return made


def spread(made: Clusters, requests: int, now: float = NOW, model: str = "m") -> Counter[str]:
    return Counter(made.choose(model, now).cluster.name for _ in range(requests))  # type: ignore[union-attr]


def sink(cluster: Cluster, now: float = NOW) -> None:
    for _ in range(FAILURES):
        cluster.health.bad(now, "gone")


def headroom(made: Clusters, cluster: str, tokens: float, now: float = NOW, url: str = "http://p") -> None:
    by = mint(cluster=cluster)
    rows = (ModelHeadroom(namespace="default", model="m", tokens_per_second=tokens),)
    federation.take_headroom(made, by.mint(ClusterHeadroom(proxy="p1", url=url, models=rows)), now)


def test_round_robin_takes_turns() -> None:
    assert spread(world("round-robin", "a", "b", "c"), 9) == {"a": 3, "b": 3, "c": 3}


def test_weights_share_as_they_say_and_zero_gets_nothing() -> None:
    assert spread(world("weighted", "a", "b", "c", weights=(3, 1, 0)), 40) == {"a": 30, "b": 10}


def test_failover_takes_the_first_that_is_up() -> None:
    made = world("failover", "a", "b", "c")
    assert spread(made, 5) == {"a": 5}
    sink(made.members["a"])
    assert spread(made, 5) == {"b": 5}


def test_latency_takes_the_quickest_and_tries_the_untimed() -> None:
    made = world("latency", "a", "b", "c")
    made.members["a"].timed(0.5, NOW)
    made.members["b"].timed(0.1, NOW)
    assert spread(made, 3) == {"c": 3}
    made.members["c"].timed(0.3, NOW)
    assert spread(made, 3) == {"b": 3}
    made.members["b"].outstanding = 9
    assert spread(made, 3) == {"c": 3}


def test_an_old_latency_fades_so_that_the_slow_are_tried_again() -> None:
    made = world("latency", "a", "b")
    made.members["a"].timed(2.0, NOW)
    made.members["b"].timed(0.5, NOW + 300)

    assert spread(made, 1, NOW + 300) == {"a": 1}


def test_headroom_shares_by_what_is_spare_and_spills_when_one_is_full() -> None:
    made = world("headroom", "a", "b")
    headroom(made, "a", 300.0)
    headroom(made, "b", 100.0)
    assert spread(made, 40) == {"a": 30, "b": 10}
    headroom(made, "a", 0.0)
    assert spread(made, 10) == {"b": 10}


def test_headroom_wakes_another_cluster_only_when_those_awake_are_full() -> None:
    made = world("headroom", "a", "b")
    federation.take_listing(made.members["b"], [row(state="asleep")])
    headroom(made, "a", 50.0)
    headroom(made, "b", 0.0)
    assert spread(made, 10) == {"a": 10}
    headroom(made, "a", 0.0)
    assert spread(made, 10)["b"] > 0


def test_silence_is_not_headroom() -> None:
    made = world("headroom", "a", "b")
    headroom(made, "a", 1000.0)
    headroom(made, "b", 1000.0, NOW + SILENT_SECONDS)

    assert made.members["a"].spare("m", NOW + SILENT_SECONDS + 1) is None
    assert made.members["b"].spare("m", NOW + SILENT_SECONDS + 1) == 1000.0


def test_only_clusters_that_have_the_model_are_asked() -> None:
    made = world("round-robin", "a", "b")
    federation.take_listing(made.members["b"], [row("other", aliases=["nick"], namespace="team")])

    assert spread(made, 4) == {"a": 4}
    for name in ("other", "nick", "team/other"):
        assert spread(made, 4, model=name) == {"b": 4}
    assert made.choose("nobody", NOW) is None


def test_a_ready_model_is_preferred_to_a_sleeping_one_unless_the_operator_says() -> None:
    for strategy, expected in (("round-robin", {"b": 4}), ("failover", {"a": 4})):
        made = world(strategy, "a", "b")
        federation.take_listing(made.members["a"], [row(state="asleep")])
        assert spread(made, 4) == expected
        federation.take_listing(made.members["a"], [row(state="failed")])
        assert spread(made, 4) == {"b": 4}


def test_when_nobody_is_up_the_last_resort_is_to_ask_all_the_same() -> None:
    made = world("round-robin", "a", "b")
    for cluster in made.members.values():
        sink(cluster)

    decision = made.choose("m", NOW)

    assert decision
    assert "last-resort" in decision.reason
    assert not made.has_other("m", {decision.cluster.name})


def test_health_needs_several_signs_each_way() -> None:
    health = Health()
    for _ in range(FAILURES - 1):
        assert not health.bad(NOW, "x")
    health.good(NOW, checked=False)
    for _ in range(FAILURES - 1):
        assert not health.bad(NOW, "x")
    assert health.up
    assert health.bad(NOW, "x")
    assert not health.up
    health.good(NOW, checked=False)
    health.good(NOW, checked=False)
    assert not health.up
    for _ in range(SUCCESSES - 1):
        assert not health.good(NOW, checked=True)
    health.bad(NOW, "again")
    for _ in range(SUCCESSES - 1):
        assert not health.good(NOW, checked=True)
    assert health.good(NOW, checked=True)
    assert health.up


@pytest.mark.parametrize("strategy", ["round-robin", "failover", "weighted", "latency", "headroom"])
def test_a_cluster_that_returns_is_not_met_by_a_herd(strategy: str) -> None:
    made = world(strategy, "a", "b")
    first = made.members["a"]
    made.members["b"].timed(0.5, NOW + 500)
    sink(first)
    for _ in range(SUCCESSES):
        first.health.good(NOW + 500, checked=True)

    at_once = spread(made, 100, NOW + 500)["a"]
    later = spread(made, 100, NOW + 500 + RAMP_SECONDS)["a"]

    assert 3 <= at_once <= 15
    assert later >= 45


def test_a_cluster_over_the_bus_is_reached_at_its_live_proxies() -> None:
    made = Clusters("round-robin")
    by = mint(cluster="west")
    first = federation.take_headroom(made, by.mint(ClusterHeadroom(proxy="p1", url="http://1")), NOW)
    federation.take_headroom(made, by.mint(ClusterHeadroom(proxy="p2", url="http://2")), NOW + 1)

    assert first
    assert first.name == "west"
    assert first.urls == ("http://1", "http://2")
    assert {first.url() for _ in range(4)} == {"http://1", "http://2"}
    federation.take_headroom(made, by.mint(ClusterHeadroom(proxy="p2", url="http://2")), NOW + 8)
    assert first.urls == ("http://2",)
    assert federation.tick(made, NOW + 60) == []
    assert first.urls == ("http://2",)
    assert federation.tick(made, NOW + 700) == [first]
    assert not made.members


@pytest.mark.parametrize(
    ("cluster", "url"),
    [
        ("west\r\nx-evil: 1", "http://1"), ("", "http://1"), ("West", "http://1"), ("a" * 64, "http://1"),
        ("west", "file:///etc/passwd"), ("west", "http://a@b"), ("west", "http://1/?q"), ("west", "http://1/ HTTP/1.1"),
        ("west", "http://1\r\nx: y"), ("west", "http://é"), ("west", "x"),
    ],
)  # fmt: skip
def test_what_is_no_cluster_is_not_taken_from_the_bus(cluster: str, url: str) -> None:
    made = Clusters("round-robin")

    with pytest.raises(ValueError, match="is no cluster"):
        federation.take_headroom(made, mint(cluster=cluster).mint(ClusterHeadroom(proxy="p1", url=url)), NOW)

    assert not made.members


def test_the_bus_cannot_name_clusters_without_end() -> None:
    made = Clusters("round-robin")
    told = ClusterHeadroom(proxy="p1", url="http://1")
    for number in range(federation.MOST_CLUSTERS):
        federation.take_headroom(made, mint(cluster=f"c{number}").mint(told), NOW)

    with pytest.raises(ValueError, match="one more than"):
        federation.take_headroom(made, mint(cluster="late").mint(told), NOW)

    assert len(made.members) == federation.MOST_CLUSTERS


def test_a_flag_keeps_its_url() -> None:
    made = world("headroom", "a")
    headroom(made, "a", 5.0, url="http://elsewhere")

    assert made.members["a"].urls == ("http://a",)
    assert made.members["a"].spare("m", NOW) == 5.0


def test_plain_servers_have_models_too() -> None:
    cluster = Cluster("a", ("http://a",))
    federation.take_listing(cluster, [{"id": "gpt"}, {"id": 7}, {}, {"id": "x", "flexinfer": "odd"}])

    assert cluster.models == {"gpt": "ready", "x": "ready"}


names = st.sampled_from(["a", "b", "c"])


@given(st.sampled_from(["round-robin", "weighted", "failover", "latency", "headroom"]), st.sets(names), st.sets(names))
def test_an_untried_cluster_that_is_up_is_always_found(strategy: str, down: set[str], tried: set[str]) -> None:
    made = world(strategy, "a", "b", "c", weights=(1, 0, 2))
    for name in down:
        sink(made.members[name])

    decision = made.choose("m", NOW, tried)

    left = {"a", "b", "c"} - tried
    assert (decision is None) == (not left)
    if decision:
        assert decision.cluster.name in ((left - down) or left)
