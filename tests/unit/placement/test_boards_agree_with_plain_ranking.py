"""What boards keep between requests equals what the plain form computes from nothing, whatever happens between."""

from hypothesis import given, settings
from hypothesis import strategies as st

from flexinfer.core.fleet import claims
from flexinfer.core.fleet.claims import PodRef
from flexinfer.core.fleet.fold import tick
from flexinfer.core.placement.demand import demand_of
from flexinfer.core.placement.desk import Desk
from flexinfer.core.placement.offers import offer_of, refusal
from flexinfer.core.placement.ranking import rank
from flexinfer.core.placement.roster import Asked
from flexinfer.core.placement.scoring import Weights
from flexinfer.core.placement.speeds import speeds_of

NAMES = tuple(f"n{number}" for number in range(8))
SHELVES = (None, (), ("m",), ("m", "adapter"))
WEIGHTS = Weights(cache=0.3)
KINDS = (("4090",), ("3090",), ("4090", "4090"), ("7900",), (), ("p40",))

steps = st.one_of(
    st.tuples(st.just("live"), st.sampled_from(NAMES), st.floats(0, 100), st.floats(0, 1)),
    st.tuples(st.just("hardware"), st.sampled_from(NAMES), st.sampled_from(KINDS), st.sampled_from(SHELVES)),
    st.tuples(st.just("status"), st.sampled_from(NAMES), st.sampled_from(["online", "draining", "offline"])),
    st.tuples(st.just("result"), st.sampled_from(["4090", "3090", "7900"]), st.floats(1, 100)),
    st.tuples(st.just("cost"), st.sampled_from(NAMES), st.sampled_from([None, 0.0, 1.0, 3.5])),
    st.tuples(st.just("claim"), st.sampled_from(NAMES), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.floats(0.1, 30)),
    st.tuples(st.just("keep")),
    st.tuples(st.just("warm")),
    st.tuples(st.just("ask"), st.integers(0, 3), st.sampled_from([NAMES, NAMES[::-1]]), st.sampled_from([1, 5, 8])),
)


def apply(fleet, pod, step) -> None:
    match step:
        case "live", name, util, free:
            if name in fleet.view.nodes and fleet.view.nodes[name].hardware:
                fleet.live(name, util, free)
        case "hardware", name, kinds, held:
            fleet.node(name, *kinds, silent=True, held=held)
        case "status", name, state:
            fleet.status(name, state)
        case "result", kind, speed:
            fleet.result("w", kind, speed)
        case "cost", name, cost:
            fleet.view.node(name).cost = cost
            fleet.view.touch(name)
        case "claim", name, number:
            demand = demand_of(pod(f"other-{number}"))
            claims.reserve(fleet.view, name, PodRef(f"other-{number}"), demand.ask, fleet.now + 5)
        case "wait", seconds:
            fleet.now += seconds


def plainly(view, demand, names, now):
    """(passed, ranking) without any board."""
    tick(view, now)
    offers = {name: offer_of(view.node(name), demand.kind, now) for name in names}
    passed = [name for name in names if refusal(offers[name], demand.per_device_mib) is None]
    ranking = rank(passed, offers, speeds_of(view, demand.workload), WEIGHTS, demand.entries)
    return passed, ranking


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=40))
def test_boards_equal_the_plain_form_after_any_history(make_fleet, pod, history):
    fleet = make_fleet()
    pods = [
        pod("a", key="w", entries="m"), pod("b", key="w", vram="9000", entries="m,adapter"), pod("c", gpus=2),
        pod("d", gpus=0, key="w", entries="m"),
    ]  # fmt: skip
    desk = Desk(fleet.view, WEIGHTS)
    lists: dict[tuple[str, ...], Asked] = {}  # the same object for the same list, as the wire keeps them
    for step in history:
        if step[0] == "keep":
            desk.keep_up(fleet.now)
        elif step[0] == "warm":
            desk.warm(fleet.now)
        elif step[0] != "ask":
            apply(fleet, pod, step)
        if step[0] != "ask":
            continue
        _, number, order, count = step
        asker = pods[number]
        demand = demand_of(asker)
        # A pod gives up its earlier reservation, so the plain form must not see it either.
        claims.release(fleet.view, asker.metadata.uid)
        names = order[:count]
        asked = lists.setdefault(names, Asked(list(names)))
        passed, plain = plainly(fleet.view, demand, list(names), fleet.now)
        expected = dict(zip(passed, plain.translated(range(10, -1, -1)), strict=True))

        verdicts = desk.filter(asker, asked, fleet.now)
        claims.release(fleet.view, asker.metadata.uid)
        scores = desk.prioritize(asker, asked, fleet.now)

        assert list(verdicts.passed) == passed
        assert set(verdicts.failed) == set(names) - set(passed)
        exact = dict(zip(names, scores.ranking.sums.tolist(), strict=True))
        assert {name: exact[name] for name in passed} == dict(zip(passed, plain.sums.tolist(), strict=True))
        given_points = dict(zip(names, scores.ranking.translated(range(10, -1, -1)), strict=True))
        assert given_points == {name: expected.get(name, 0) for name in names}
