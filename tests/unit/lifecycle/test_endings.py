"""Deletion: traffic first, then children, then the finalizer; with or without a bus."""

from typing import Any

from flexinfer.contracts.events import ModelEndpoint, ModelPhase
from flexinfer.core.effects import Delete, Patch, Publish
from flexinfer.core.lifecycle.removal import DRAIN_SECONDS, POD_PATIENCE


def removed(sim: Any) -> None:
    sim.delete(("modeldeployments", "default", "m"))
    sim.settle()


def steps(sim: Any) -> list[str]:
    found = []
    for effect in sim.log:
        match effect:
            case Publish(ModelEndpoint() as data):
                found.append("retract" if data.gone else "drain")
            case Publish(ModelPhase() as data):
                found.append("forget" if data.gone else f"phase {data.phase}")
            case Delete(resource):
                found.append(f"delete {resource.plural}")
            case Patch(body=body) if "finalizers" in body.get("metadata", {}):
                found.append("let go")
            case _:
                pass
    return found


def test_the_order(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark={"enabled": False})
    sim.run()
    sim.log.clear()
    removed(sim)
    sim.pass_time(DRAIN_SECONDS + 1)

    assert steps(sim) == [
        "phase Terminating", "drain", "retract", "delete deployments", "delete services", "forget", "let go",
    ]  # fmt: skip


def test_the_finalizer_waits_for_the_pods(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark={"enabled": False})
    sim.run()
    pod = sim.pods()[0]
    sim.objects[pod]["metadata"]["finalizers"] = ["kubelet"]  # as a pod in its grace period
    removed(sim)
    sim.pass_time(20)
    assert sim.status()["phase"] == "Terminating"

    sim.objects[pod]["metadata"]["finalizers"] = []
    sim.delete(pod)
    sim.settle()
    assert ("modeldeployments", "default", "m") not in sim.objects


def test_a_pod_on_a_dead_node_does_not_hold_it_for_ever(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark={"enabled": False})
    sim.run()
    sim.objects[sim.pods()[0]]["metadata"]["finalizers"] = ["kubelet"]
    removed(sim)
    sim.pass_time(POD_PATIENCE + 2)

    assert ("modeldeployments", "default", "m") not in sim.objects


def test_it_works_while_the_bus_is_down_and_the_bus_is_told_later(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.run()
    sim.bus_up = False
    removed(sim)
    assert {a[0] for a in sim.objects} == {"nodes", "configmaps"}
    assert sim.endpoint() is not None

    sim.bus_up = True
    sim.snapshot()
    sim.settle()
    assert sim.endpoint() is None
    assert sim.phase_event() is None


def test_deleted_in_the_middle_of_a_benchmark(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.settle()
    sim.run_pod(sim.pods(bench=True)[0])
    sim.settle()
    removed(sim)
    sim.pass_time(2)

    assert {a[0] for a in sim.objects} == {"nodes"}
    assert not [key for key in sim.bus if not key.startswith("nodes.")]


def test_an_object_that_never_got_our_finalizer_just_goes(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.delete(("modeldeployments", "default", "m"))
    sim.settle()

    assert {a[0] for a in sim.objects} == {"nodes"}
    assert not [key for key in sim.bus if not key.startswith("nodes.")]


def test_finalizers_of_others_are_kept(one_node: Any) -> None:
    sim = one_node
    sim.apply(benchmark={"enabled": False})
    sim.objects[("modeldeployments", "default", "m")]["metadata"]["finalizers"] = ["theirs"]
    sim.restart()
    sim.run()
    assert sim.model()["metadata"]["finalizers"] == ["theirs", "flexinfer.ai/finalizer"]

    removed(sim)
    sim.pass_time(5)
    assert sim.model()["metadata"]["finalizers"] == ["theirs"]
    sim.pass_time(5)
    assert sim.model()["metadata"]["finalizers"] == ["theirs"]


def test_what_a_lost_manager_left_on_the_bus_is_retracted(one_node: Any) -> None:
    sim = one_node
    sim.tell(ModelEndpoint(namespace="x", model="ghost", backend="vllm"))
    sim.tell(ModelEndpoint(namespace="x", model="bench-ghost", backend="vllm", hidden=True))
    sim.tell(
        ModelPhase(namespace="x", model="ghost", kind="Model", phase="Running", reason="Serving", message="")
    )  # fmt: skip
    sim.restart()
    sim.settle()

    assert [key for key in sim.bus if key.startswith("models.")] == []


def test_created_again_at_once_it_starts_over(one_node: Any) -> None:
    sim = one_node
    sim.apply()
    sim.run()
    removed(sim)
    sim.pass_time(5)
    sim.apply()
    sim.run()

    assert sim.status()["phase"] == "Running"
    assert sim.endpoint().endpoints[0].state == "ready"
