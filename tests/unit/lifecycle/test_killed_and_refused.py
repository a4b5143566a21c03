"""A manager that dies, or is refused, at any step ends where an undisturbed one ends."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flexinfer.core.effects import Effect, Write
from flexinfer.core.lifecycle.plan import plan

_VOLATILE = {"uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp"}
_TIMES = {"lastTransitionTime", "observedAt", "completionTime"}


class Killed(Exception):
    """The process is gone."""


def _plain(value: Any) -> Any:
    """Without what differs between two clusters with the same content."""
    if isinstance(value, dict):
        return {
            key: _plain(part)
            for key, part in value.items()
            if key
            not in _VOLATILE
            | _TIMES
            | {"podIP", "url", "ownerReferences", "flexinfer.ai/owner-uid", "flexinfer.ai/measures-pod"}
        }
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value


def picture(sim: Any) -> Any:
    """Objects and bus state; pods without their random names."""
    objects = {}
    for (plural, namespace, name), obj in sim.objects.items():
        short = name.rpartition("-")[0] if plural == "pods" else name
        body = copy.deepcopy(_plain(obj))
        body["metadata"].pop("name", None)
        if plural in {"models", "modeldeployments"}:
            body["status"]["conditions"] = [(c["type"], c["status"]) for c in body["status"].get("conditions", [])]
        if plural == "configmaps":
            body["data"] = sorted(body["data"])
        objects[(plural, namespace, short)] = body
    phases = sorted((key, event.data.phase) for key, event in sim.bus.items() if key.endswith(".phase"))
    return objects, phases, sorted(sim.bus)


def walk(sim: Any, guard: Callable[[], None] = lambda: None) -> list[Any]:
    """Create, measure, serve, change, delete; the picture after each stage."""

    def quiet(action: Callable[[], Any]) -> None:
        while True:
            try:
                action()
                sim.settle()
            except Killed:
                sim.restart()
                continue
            return

    def stage() -> None:
        """Run until nothing waits to be tried again."""
        quiet(sim.run)
        for _ in range(200):
            quiet(lambda: sim.pass_time(5))
            quiet(sim.run)
            if not any(sim.view.failures.values()):
                break
        pictures.append(picture(sim))

    sim.node()
    pictures: list[Any] = []
    sim.apply(idleTimeoutSeconds=0)
    stage()
    sim.apply(idleTimeoutSeconds=0, args=["--threads", "2"])
    stage()
    sim.delete(("modeldeployments", "default", "m"))
    quiet(sim.settle)
    quiet(lambda: sim.pass_time(600))
    pictures.append(picture(sim))
    return pictures


class Reference(dict[str, Any]):
    """What an undisturbed walk ends in; a short name, because a failing property prints its arguments."""

    def __repr__(self) -> str:
        return "Reference()"


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    return Reference()


def _reference(undisturbed: dict[str, Any], new_sim: Any) -> tuple[list[Any], int]:
    if not undisturbed:
        sim = new_sim()
        undisturbed["pictures"], undisturbed["effects"] = walk(sim), len(sim.log)
    return undisturbed["pictures"], undisturbed["effects"]


def test_the_walk_is_what_it_should_be(undisturbed: dict[str, Any], new_sim: Any) -> None:
    pictures, effects = _reference(undisturbed, new_sim)

    assert [dict(p[1])["models.default.m.phase"] for p in pictures[:2]] == ["Running", "Running"]
    assert {address[0] for address in pictures[2][0]} == {"nodes", "configmaps"}
    assert 20 < effects < 80


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_every_step_it_ends_in_the_same_state(undisturbed: dict[str, Any], new_sim: Any, when: str) -> None:
    wanted, effects = _reference(undisturbed, new_sim)
    for number in range(effects):
        sim = new_sim()
        perform, count = sim.perform, [0]

        def dying(key: Any, effect: Effect, perform: Any = perform, count: Any = count, number: int = number) -> bool:
            count[0] += 1
            if count[0] == number + 1 and when == "before":
                raise Killed
            done = perform(key, effect)
            if count[0] == number + 1:
                raise Killed
            return done

        sim.perform = dying

        assert walk(sim) == wanted, f"killed {when} effect {number}"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    codes=st.lists(
        st.sampled_from(["", "", "", "Conflict", "Unavailable", "NotFound", "Expired"]), min_size=5, max_size=60
    )
)
@example(codes=[""] * 8 + ["Conflict"])  # the record of the result, written later than the result was known
def test_refused_now_and_then_it_ends_in_the_same_state(
    undisturbed: dict[str, Any], new_sim: Any, codes: list[str]
) -> None:
    wanted, _ = _reference(undisturbed, new_sim)
    sim = new_sim()
    turns = iter(codes)
    sim.refuse = lambda effect: next(turns, "") if isinstance(effect, Write) else ""

    assert walk(sim) == wanted


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.integers(min_value=0, max_value=60), later=st.floats(min_value=0, max_value=1000))
def test_planning_twice_on_the_same_view_gives_the_same_decision(new_sim: Any, steps: int, later: float) -> None:
    sim = new_sim()
    sim.node()
    sim.apply()
    for _ in range(steps):
        if not sim.step():
            for address in [*sim.pods(bench=True), *sim.pods()]:
                sim.run_pod(address)
            break
    sim.view.bus_up = True
    for key in [*sim.view.models]:
        assert plan(sim.view, key, sim.now + later) == plan(sim.view, key, sim.now + later)
