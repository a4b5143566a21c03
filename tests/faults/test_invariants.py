"""The judge of a walk notices each thing that must never happen: a judge that always nods proves nothing."""

from pathlib import Path
from typing import Any

import pytest

from flexinfer.contracts.events import BenchCompleted, PlacementDecided
from flexinfer.contracts.kubernetes import CONFIGMAPS, JOBS, MODELDEPLOYMENTS, PODS, KubeDelta, Object, Resource
from flexinfer.contracts.labels import BENCHMARK_APP_LABEL
from flexinfer.core.lifecycle.view import BENCH_KEY, OWNER_UID
from flexinfer.core.placement.checks import NO_FACTS
from flexinfer.ports import BusFact, KubeFact
from flexinfer.runtime.journal import encode_line
from flexinfer.testing.bus import stepping_mint
from tests.faults.deck import Fault, plan
from tests.faults.invariants import STUCK_SECONDS, Invariants
from tests.faults.walk import _line, faults_of, judge

SERVES = {"phase": "Running", "readyReplicas": 1, "endpoints": [{"url": "http://x"}]}


def change(resource: Resource, action: Any, name: str, **parts: Any) -> KubeDelta:
    labels = parts.pop("labels", {})
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels}
    body: Object = {"kind": resource.kind, "metadata": meta, **parts}
    return KubeDelta(plural=resource.plural, action=action, object=body)


def model(**status: Any) -> KubeDelta:
    return change(MODELDEPLOYMENTS, "MODIFIED", "m", status=status)


def pod(name: str, *, ready: bool = True, **labels: str) -> KubeDelta:
    told = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": "Running", "conditions": told}
    return change(PODS, "MODIFIED", name, status=status, labels={OWNER_UID: "uid-m", **labels})


def job(name: str, **labels: str) -> KubeDelta:
    return change(JOBS, "ADDED", name, status={}, labels=labels)


def record(*keys: str) -> KubeDelta:
    data = dict.fromkeys(keys, "{}")
    return change(CONFIGMAPS, "MODIFIED", "results", data=data, labels={"app": BENCHMARK_APP_LABEL})


def seen(*facts: KubeFact | BusFact) -> Invariants:
    found = Invariants()
    for at, fact in enumerate(facts):
        if isinstance(fact, KubeDelta):
            found.kube(float(at), fact)
        else:
            found.bus(float(at), fact)  # type: ignore[arg-type]
    return found


def decided(**reasons: int) -> PlacementDecided:
    return PlacementDecided(
        namespace="a", pod="p", pod_uid="u", outcome="rejected", demand={}, considered=2,
        reasons={NO_FACTS.text: reasons["blind"]},
    )  # fmt: skip


def result(key: str) -> BenchCompleted:
    return BenchCompleted(
        key=key, namespace="a", model="m", workload="w", source="s", backend="b", device_class="c",
        tokens_per_second=1.0, iterations=1, duration_seconds=1.0,
    )  # fmt: skip


def test_a_life_as_it_should_be() -> None:
    phases = ("Pending", "Benchmarking", "Deploying")
    found = seen(*(model(phase=phase) for phase in phases), pod("e"), model(**SERVES), model(phase="Terminating"))
    assert (found.broken, found.transitions) == ([], 5)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ([model(phase="Pending"), model(phase="Terminating"), model(phase="Pending")], "Terminating → Pending"),
        ([pod("e"), model(phase="Running", readyReplicas=0, endpoints=[])], "without a ready replica"),
        ([job("j1", **{BENCH_KEY: "k"}), job("j2", **{BENCH_KEY: "k"})], "two Jobs measure k"),
        ([pod("b1", **{BENCH_KEY: "k"}), pod("b2", **{BENCH_KEY: "k"})], "two pods measure k"),
        ([record("k", "l"), record("l")], "the result k was recorded and is not"),
        ([stepping_mint().mint(decided(blind=2))], "decided from an empty view"),
    ],
)
def test_what_must_not_happen_is_noticed(facts: list[Any], words: str) -> None:
    [broken] = seen(*facts).broken
    assert words in broken


def test_running_without_an_engine_is_noticed_when_it_lasts() -> None:
    found = seen(pod("e"), model(**SERVES), pod("e", ready=False))
    found.tick(3.0)
    found.tick(3.0 + STUCK_SECONDS)
    assert found.broken == []
    found.tick(4.0 + STUCK_SECONDS)
    assert "had no ready engine" in found.broken[0]


def test_running_again_long_after_the_last_engine_is_noticed() -> None:
    found = seen(pod("e"), model(**SERVES), pod("e", ready=False), model(phase="Deploying"))
    found.kube(500.0, model(**SERVES))
    assert "no engine of it was ready" in found.broken[0]


def test_one_that_measures_after_another_is_fine() -> None:
    over = change(JOBS, "MODIFIED", "j1", status={"conditions": [{"type": "Complete", "status": "True"}]},
                  labels={BENCH_KEY: "k"})  # fmt: skip
    assert seen(job("j1", **{BENCH_KEY: "k"}), over, job("j2", **{BENCH_KEY: "k"})).broken == []


def test_lost_results_and_orphans_are_told() -> None:
    found = seen(stepping_mint().mint(result("k")), stepping_mint("n2").mint(result("l")), record("l"), pod("e"))
    assert found.unrecorded() == {"k"}
    assert found.orphans() == ["default/e"]
    assert seen(model(phase="Pending"), pod("e")).orphans() == []


def test_the_same_seed_is_the_same_plan() -> None:
    def first(seed: int) -> list[Fault]:
        faults = plan(seed, pace=2.0, longest=10.0)
        return [next(faults) for _ in range(200)]

    assert first(1) == first(1) != first(2)
    assert {fault.kind for fault in first(1)} > {"kill", "freeze", "cut", "drop-stream", "api-restart", "bus-restart"}
    assert all(0 <= fault.seconds <= 10.5 and 0 <= fault.gap <= 10 for fault in first(1))


def test_a_tape_gives_back_its_faults_and_the_verdict(tmp_path: Path) -> None:
    tape = tmp_path / "walk.jsonl"
    fault = Fault(kind="hold", gap=1.5, target="scheduler-bus", seconds=3.0, way="down")
    lines = [
        encode_line(1.0, pod("e")), _line(2.0, "fault", fault), encode_line(3.0, model(phase="Pending")),
        _line(4.0, "look", {}), encode_line(5.0, model(phase="Idle")), encode_line(6.0, model(phase="Running")),
        encode_line(7.0, stepping_mint().mint(decided(blind=1))),
    ]  # fmt: skip
    tape.write_bytes(b"\n".join(lines) + b"\n")

    assert list(faults_of(tape)) == [fault]
    found = judge(tape)
    assert [text.partition(" ")[0] for text in found.broken] == ["6.000"]
    assert (found.transitions, found.decisions, found.facts) == (3, 1, 5)
