"""A driver upgrade makes the old number wrong: it is measured again, beside serving, and the old one is kept."""

from typing import Any


def _jobs(sim: Any) -> list[str]:
    return sorted(name for plural, _, name in sim.objects if plural == "jobs")


def _claims(sim: Any) -> list[str]:
    return sorted(name for plural, _, name in sim.objects if plural == "configmaps" and "results" not in name)


def _served(sim: Any, gpu: Any) -> tuple[str, list[str]]:
    sim.node("n1", gpu(driver="575.57.08"))
    sim.apply(idleTimeoutSeconds=0, gpu={"vendor": "nvidia", "count": 1, "vramEstimateMB": 8000})
    sim.settle()
    sim.measure(50.0)
    sim.run()
    assert sim.status()["phase"] == "Running"
    return next(iter(sim.view.fleet.results)), _jobs(sim)


def test_a_new_driver_is_measured_while_the_model_serves_and_the_old_result_stays(sim: Any, gpu: Any) -> None:
    old, before = _served(sim, gpu)

    sim.node("n1", gpu(driver="580.10.01"))
    sim.settle()

    [job] = [name for name in _jobs(sim) if name not in before]
    assert sim.status()["phase"] == "Running"
    assert len(_claims(sim)) == 1
    sim.measure(60.0, job)
    sim.pass_time(60)
    results = sim.view.fleet.results
    assert old in results
    assert {(r.driver_major, r.tokens_per_second) for r in results.values()} == {("575", 50.0), ("580", 60.0)}


def test_a_patch_of_the_same_driver_is_not_measured_again(sim: Any, gpu: Any) -> None:
    _, before = _served(sim, gpu)

    sim.node("n1", gpu(driver="575.64.03"))
    sim.settle()
    sim.pass_time(600)

    assert [name for name in _jobs(sim) if name not in before] == []
    assert _claims(sim) == []
