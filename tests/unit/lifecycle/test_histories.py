"""Whatever happens in whatever order: no decision raises, none loops, and the end is at rest."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flexinfer.contracts.events import BenchFailed, ModelDemand, ModelLoad, ModelPhase, NodeStatus
from flexinfer.core.effects import Effect, Note, Patch, Publish

ACTIONS = [
    "apply", "apply other", "apply bad", "apply off", "apply model", "delete", "delete other", "delete model",
    "node", "gpu node", "node gone", "node drains", "node back", "run pods", "pod fails", "pod unschedulable",
    "pod gone", "measure", "bench fails", "job fails", "job gone", "demand", "load", "idle", "minute", "hour",
    "restart", "bus down", "bus up", "bus wiped", "record gone", "claim gone", "deployment gone",
    "service gone", "scaled by hand", "status broken", "refuse next",
]  # fmt: skip


class World:
    """One action after the other on a Sim; actions that have nothing to act on do nothing."""

    def __init__(self, sim: Any, gpu: Any) -> None:
        self.sim = sim
        self.gpu = gpu

    def do(self, name: str) -> None:
        getattr(self, name.replace(" ", "_"))()
        self.sim.settle()

    def apply(self) -> None:
        self.sim.apply(idleTimeoutSeconds=60, gpu={})

    def apply_other(self) -> None:
        self.sim.apply("other", idleTimeoutSeconds=60, gpu={}, replicas=2)

    def apply_bad(self) -> None:
        self.sim.apply(backend="nope")

    def apply_off(self) -> None:
        self.sim.apply(replicas=0)

    def apply_model(self) -> None:
        self.sim.apply(kind="Model", serverless={"maxReplicas": 2, "idleTimeout": "1m"})

    def delete(self) -> None:
        self.sim.delete(("modeldeployments", "default", "m"))

    def delete_other(self) -> None:
        self.sim.delete(("modeldeployments", "default", "other"))

    def delete_model(self) -> None:
        self.sim.delete(("models", "default", "m"))

    def node(self) -> None:
        self.sim.node()

    def gpu_node(self) -> None:
        self.sim.node("n1", self.gpu())

    def node_gone(self) -> None:
        self.sim.delete(("nodes", "", "n1"))

    def node_drains(self) -> None:
        self.sim.tell(NodeStatus(node="n1", state="draining"))

    def node_back(self) -> None:
        self.sim.tell(NodeStatus(node="n1", state="online"))

    def run_pods(self) -> None:
        for address in [*self.sim.pods(), *self.sim.pods(bench=True)]:
            if not self.sim.objects[address]["status"]:
                self.sim.run_pod(address)

    def _first(self, kind: str) -> Any:
        return next((a for a in sorted(self.sim.objects) if a[0] == kind), None)

    def pod_fails(self) -> None:
        for address in self.sim.pods()[:1]:
            state = {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}
            self.sim.set_pod(address, conditions=[], containerStatuses=[{"name": "engine", "state": state}])

    def pod_unschedulable(self) -> None:
        for address in [*self.sim.pods(), *self.sim.pods(bench=True)][:1]:
            self.sim.set_pod(address, conditions=[{"type": "PodScheduled", "status": "False", "message": "no"}])

    def pod_gone(self) -> None:
        address = self._first("pods")
        if address:
            self.sim.delete(address)

    def measure(self) -> None:
        if self._first("jobs"):
            self.sim.tell(self.sim.result())
            self.sim.finish_job()

    def bench_fails(self) -> None:
        for key in list(self.sim.view.claims):
            self.sim.tell(BenchFailed(key=key, namespace="default", model="m", reason="Http", message="no"))

    def job_fails(self) -> None:
        if self._first("jobs"):
            self.sim.finish_job(failed="BackoffLimitExceeded")

    def job_gone(self) -> None:
        address = self._first("jobs")
        if address:
            self.sim.delete(address)

    def demand(self) -> None:
        self.sim.tell(ModelDemand(namespace="default", model="m", proxy="p", waiting=3))

    def load(self) -> None:
        self.sim.load(outstanding=2)

    def idle(self) -> None:
        self.sim.tell(ModelDemand(namespace="default", model="m", proxy="p", waiting=0))
        self.sim.tell(ModelLoad(namespace="default", model="m", proxy="p1", outstanding=0))

    def minute(self) -> None:
        self.sim.pass_time(60)

    def hour(self) -> None:
        self.sim.pass_time(3600)

    def restart(self) -> None:
        self.sim.restart()

    def bus_down(self) -> None:
        self.sim.bus_up = False

    def bus_up(self) -> None:
        self.sim.bus_up = True
        self.sim.snapshot()

    def bus_wiped(self) -> None:
        self.sim.bus.clear()
        if self.sim.bus_up:
            self.sim.snapshot()

    def _delete_first(self, kind: str, label: str = "") -> None:
        found = [
            a for a, o in sorted(self.sim.objects.items())
            if a[0] == kind and (not label or o["metadata"].get("labels", {}).get("app") == label)
        ]  # fmt: skip
        if found:
            self.sim.delete(found[0])

    def record_gone(self) -> None:
        self._delete_first("configmaps", "flexinfer-benchmarks")

    def claim_gone(self) -> None:
        self._delete_first("configmaps", "flexinfer-benchmark-claims")

    def deployment_gone(self) -> None:
        self._delete_first("deployments")

    def service_gone(self) -> None:
        self._delete_first("services")

    def scaled_by_hand(self) -> None:
        address = self._first("deployments")
        if address:
            body = {**self.sim.objects[address]}
            body["spec"] = {**body["spec"], "replicas": 5}
            self.sim.store(address, body)

    def status_broken(self) -> None:
        address = self._first("modeldeployments")
        if address:
            self.sim.store(address, {**self.sim.objects[address], "status": {"phase": "Happy", "conditions": []}})

    def refuse_next(self) -> None:
        turns = iter(["Conflict", "Unavailable", "Forbidden"])
        self.sim.refuse = lambda _effect: next(turns, "")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(st.sampled_from(ACTIONS), min_size=3, max_size=30))
def test_any_history(new_sim: Any, gpu: Any, names: list[str]) -> None:
    sim = new_sim()
    world = World(sim, gpu)
    for name in names:
        world.do(name)
    world.bus_up()
    sim.settle()
    sim.pass_time(400)
    before = len(sim.log)
    sim.restart()
    sim.settle()

    assert sim.log[before:] == []


def _told(log: list[Effect], at: int, name: str) -> tuple[bool, bool]:
    """Whether the decision that wrote a status at this place of the log also told the bus and people."""
    bus = people = False
    for effect in log[at + 1 : at + 3]:
        if isinstance(effect, Publish) and isinstance(effect.data, ModelPhase):
            bus |= effect.data.model == name and bool(effect.data.reason)
        if isinstance(effect, Note) and effect.regarding["metadata"]["name"] == name:
            people |= bool(effect.reason and effect.message)
    return bus, people


QUIET = {"refuse next", "status broken", "apply model", "delete model"}  # faults, and names two objects share


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(st.sampled_from([a for a in ACTIONS if a not in QUIET]), min_size=3, max_size=30))
def test_every_transition_is_told_to_people_and_to_the_bus(new_sim: Any, gpu: Any, names: list[str]) -> None:
    sim = new_sim()
    world = World(sim, gpu)
    for name in ["node", "apply", *names]:
        world.do(name)

    phases: dict[str, str] = {}
    for number, effect in enumerate(sim.log):
        if isinstance(effect, Patch) and effect.subresource == "status":
            phase = effect.body["status"]["phase"]
            if phases.get(effect.name) != phase:
                assert _told(sim.log, number, effect.name) == (True, True), (effect, sim.log[number + 1 : number + 3])
            phases[effect.name] = phase
