"""Who may wait for a model at zero, when the bus hears of it, and what use is."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.contracts.events import BenchCompleted, CurvePoint, ModelLoad
from flexinfer.core.routing import activation
from flexinfer.core.routing.activation import Demand
from flexinfer.core.routing.directory import Directory, load_of
from flexinfer.core.routing.refusal import Refusal
from flexinfer.core.routing.usage import Usage
from tests.unit.routing.making import events, mint, spec


@pytest.mark.parametrize(
    ("route", "waiting", "background", "code"),
    [
        (spec(wakeable=True, failure="no node"), 0, False, "activation_failed"),
        (spec(), 0, False, "no_endpoint"),
        (spec(wakeable=True), 0, True, "model_asleep"),
        (spec(wakeable=True), 3, False, "queue_full"),
    ],
)
def test_who_may_not_wait(route: object, waiting: int, background: bool, code: str) -> None:
    with pytest.raises(Refusal) as refusal:
        activation.admit(route, waiting, 3, background=background)  # type: ignore[arg-type]
    assert (refusal.value.status, refusal.value.code) == (503, code)
    assert refusal.value.retry_after


def test_patience_is_the_shorter_of_ours_and_the_models() -> None:
    assert activation.patience(spec(cold_start_timeout_seconds=20.0), 300) == 20
    assert activation.patience(spec(cold_start_timeout_seconds=900.0), 300) == 300
    assert activation.patience(spec(cold_start_timeout_seconds=0.0), 300) == 300


def test_demand_is_told_at_once_then_paced_then_repeated_then_withdrawn() -> None:
    demand = Demand()
    assert demand.due(0.0) is None
    demand.since.append(0.0)
    assert demand.due(0.0) == 0.0
    assert demand.tell(0.0) == (1, 0.0)
    demand.since.append(0.05)
    assert demand.due(0.05) == pytest.approx(0.05)
    assert demand.tell(0.1) == (2, 0.1)
    assert demand.due(0.1) == pytest.approx(activation.REPEAT_SECONDS)
    demand.since.clear()
    assert demand.due(1.0) == 0.0
    assert demand.tell(1.0) == (0, 0.0)
    assert demand.due(1.0) is None


@given(st.lists(st.tuples(st.floats(0, 0.3), st.booleans()), max_size=40))
def test_events_keep_their_pace_and_the_last_one_tells_the_truth(steps: list[tuple[float, bool]]) -> None:
    demand, now = Demand(), 0.0
    told: list[tuple[float, int]] = []

    def catch_up(until: float) -> None:
        nonlocal now
        while (due := demand.due(now)) is not None and now + due <= until:
            now += due
            told.append((now, demand.tell(now)[0]))
        now = until

    for wait, comes in steps:
        catch_up(now + wait)
        if comes:
            demand.since.append(now)
        elif demand.since:
            demand.since.popleft()
    catch_up(now + activation.PACE_SECONDS + 1e-6)

    gaps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(told)]
    assert all(gap >= activation.PACE_SECONDS - 1e-9 for gap in gaps)
    assert not told or told[-1][1] == len(demand.since)


def test_rates_are_over_the_window() -> None:
    usage = Usage()
    usage.rates(0.0)
    for second in range(1, 31):
        usage.requests += 2
        usage.tokens += 100
        rates = usage.rates(float(second))
    assert rates == (2.0, 100.0)
    for second in range(31, 50):
        rates = usage.rates(float(second))
    assert rates == (0.0, 0.0)


def test_background_requests_are_load_but_not_use() -> None:
    usage = Usage()
    usage.begin(10.0, background=True)
    assert (usage.outstanding, usage.last_used) == (1, None)
    usage.end(11.0, background=True)
    usage.begin(12.0, background=False)
    usage.end(20.0, background=False)
    assert (usage.outstanding, usage.last_used, usage.requests) == (0, 20.0, 2)


def load(tokens: float, proxy: str = "p2") -> ModelLoad:
    return ModelLoad(namespace="default", model="m", proxy=proxy, outstanding=1, tokens_per_second=tokens)


def test_headroom_counts_what_other_proxies_relay() -> None:
    made = Directory(name="p1")
    by = mint()
    made.replace([by.mint(spec("m", "a@50", "b@50")), by.mint(spec("dark", "c"))], 0.0)
    for event in events(load(30.0), load(5.0, "p1"), by=mint(source="p2")):
        made.fold(event, 100.0)

    (row,) = made.headroom({"default/m": 20.0}, 101.0)

    assert (row.model, row.tokens_per_second) == ("m", 50.0)
    assert made.headroom({}, 120.0)[0].tokens_per_second == 100.0


def test_others_are_counted_while_they_speak() -> None:
    made = Directory(name="p1")
    made.replace(events(spec("m", "a@50")), 0.0)
    for event in events(load(30.0), load(5.0, "p1"), by=mint(source="p2")):
        made.fold(event, 100.0)
    assert made.pools["default/m"].others == 1.0

    made.expire(111.0)

    assert made.pools["default/m"].others == 0.0


def test_a_result_shapes_headroom_and_routes_wherever_it_comes_first() -> None:
    result = BenchCompleted(
        key="k", namespace="default", model="m", workload="w", source="s", backend="vllm", device_class="class-a",
        tokens_per_second=50.0, iterations=5, duration_seconds=30.0,
        curve=(
            CurvePoint(concurrency=8, prompt_tokens=64, tokens_per_second=300.0, per_request_tokens_per_second=40.0,
                       requests=8),
            CurvePoint(concurrency=8, prompt_tokens=4096, tokens_per_second=90.0, per_request_tokens_per_second=10.0,
                       requests=8),
        ),
    )  # fmt: skip
    route = spec("m", "a@50")

    for order in ((result, route), (route, result)):
        made = Directory()
        for event in events(*order):
            made.fold(event, 0.0)
        assert made.headroom({}, 0.0)[0].tokens_per_second == 300.0


def test_a_model_at_zero_has_no_headroom_now() -> None:
    made = Directory()
    made.replace(events(spec("m", wakeable=True)), 0.0)

    assert made.headroom({}, 0.0)[0].tokens_per_second == 0.0


def test_a_load_event_is_told_while_there_was_use() -> None:
    made = Directory()
    made.replace(events(spec("m", "a")), 0.0)
    made.used("default/m").begin(10.0, background=False)
    made.used("default/m").end(11.0, background=False)
    made.used("default/gone").begin(10.0, background=False)

    assert [route.model for route, _ in made.active(12.0)] == ["m"]
    assert list(made.active(11.0 + 3601)) == []
    event = load_of(spec("m"), made.used("default/m"), "p1", (1.0, -2.0))
    assert event.last_used is not None
    assert event.last_used.timestamp() == 11.0
    assert event.tokens_per_second == 0.0
