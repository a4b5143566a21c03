"""Reservations and bound pods: who holds what of a node, since when, and until when."""

import pytest

from flexinfer.contracts.envelope import EventMint
from flexinfer.contracts.events import Device, DeviceTelemetry, EngineTelemetry, NodeHardware, NodeTelemetry
from flexinfer.contracts.kubernetes import KubeDelta
from flexinfer.core.fleet import claims
from flexinfer.core.fleet.claims import PodRef
from flexinfer.core.fleet.fold import UnreadableObject, fold, replace_objects, tick
from flexinfer.core.fleet.pods import Ask
from flexinfer.core.fleet.units import units
from flexinfer.core.fleet.view import FleetView

NOW = 1_800_000_000.0
WHOLE = Ask("NVIDIA", 1, 1, 9000.0)
SHARED = Ask("NVIDIA", 1, 0, 9000.0)


class Node:
    """A node with cards of 24,000 MiB."""

    def __init__(self, cards=2):
        self.view = FleetView()
        self.mint = EventMint.start("agent", "n", "boot", lambda: NOW)
        self.uuids = [f"u{number}" for number in range(cards)]
        devices = tuple(
            Device(index=number, uuid=uuid, vendor="NVIDIA", memory_mib=24000) for number, uuid in enumerate(self.uuids)
        )
        fold(self.view, self.mint.mint(NodeHardware(node="n", devices=devices)), NOW)
        self.live(*[24000] * cards)

    def live(self, *free, at=NOW, engines=()):
        devices = tuple(
            DeviceTelemetry(index=number, uuid=self.uuids[number], util_percent=0.0, memory_free_mib=value)
            for number, value in enumerate(free)
        )
        data = NodeTelemetry(node="n", interval_seconds=2.0, devices=devices, engines=engines)
        fold(self.view, self.mint.mint(data, at), at)

    def free(self, now=NOW, without=()):
        tick(self.view, now)
        return [unit.free_mib for unit in units(self.view.nodes["n"], now, frozenset(without))]


def pod(name="p", *, node="n", phase="Running", gpus=1, vram=None, conditions=(), uid=None):
    annotations = {"flexinfer.ai/gpu.vram-estimate-mb": str(vram)} if vram else {}
    if vram and not gpus:
        annotations["flexinfer.ai/gpu.vendor"] = "NVIDIA"
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}", "annotations": annotations},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": limits}}]},
        "status": {"phase": phase, "conditions": list(conditions)},
    }


def change(view, body, action="MODIFIED", now=NOW):
    return fold(view, KubeDelta(plural="pods", action=action, object=body), now)


def test_a_reservation_takes_a_device_and_lapses():
    node = Node()

    claims.reserve(node.view, "n", PodRef("a"), WHOLE, NOW + 5)

    assert node.free() == [24000]
    assert node.free(NOW + 5) == [24000, 24000]
    assert node.view.claimed_on == {}


def test_the_asking_pod_does_not_count_against_itself():
    node = Node(cards=1)
    claims.reserve(node.view, "n", PodRef("a"), WHOLE, NOW + 5)

    assert node.free() == []
    assert node.free(without=["a"]) == [24000]


def test_shared_memory_is_held_on_the_emptiest_device():
    node = Node()
    node.live(24000, 20000)

    claims.reserve(node.view, "n", PodRef("a"), SHARED, NOW + 5)

    assert node.free() == [20000, 15000]


def test_the_watch_moves_a_reservation_to_where_the_pod_went():
    node = Node()
    claims.reserve(node.view, "elsewhere", PodRef("uid-p"), WHOLE, NOW + 5)

    change(node.view, pod())

    assert node.view.claimed_on == {"uid-p": "n"}
    assert node.view.nodes["elsewhere"].claims == {}
    assert node.free(NOW + 3) == [24000]
    assert node.view.nodes["n"].claims["uid-p"].bound


def test_a_bound_pod_is_not_reserved_elsewhere_by_a_late_answer():
    node = Node()
    change(node.view, pod())

    claims.reserve(node.view, "elsewhere", PodRef("uid-p"), WHOLE, NOW + 5)

    assert node.view.claimed_on == {"uid-p": "n"}


@pytest.mark.parametrize(
    ("body", "action"),
    [(pod(phase="Succeeded"), "MODIFIED"), (pod(phase="Failed"), "MODIFIED"), (pod(), "DELETED")],
)
def test_a_pod_that_ended_holds_nothing(body, action):
    node = Node()
    change(node.view, pod())

    change(node.view, body, action)

    assert node.free() == [24000, 24000]


def test_memory_is_freed_when_telemetry_shows_the_use_and_the_device_stays_taken():
    node = Node()
    change(node.view, pod(vram=9437), now=NOW + 1)
    assert node.free(NOW + 1) == [24000]

    node.live(15000, 24000, at=NOW + 2)

    claim = node.view.nodes["n"].claims["uid-p"]
    assert claim.shown
    assert node.free(NOW + 2) == [24000], "the device in use is the full one now"


def test_shared_memory_is_not_counted_twice_once_it_shows():
    node = Node(cards=1)
    change(node.view, pod(gpus=0, vram=9437), now=NOW + 1)
    assert node.free(NOW + 1) == pytest.approx([15000], abs=1)

    node.live(15000, at=NOW + 2)

    assert node.free(NOW + 2) == [15000]


def test_one_pods_use_is_not_taken_for_that_of_another():
    node = Node(cards=1)
    change(node.view, pod("one", gpus=0, vram=9437), now=NOW + 1)
    change(node.view, pod("two", gpus=0, vram=9437), now=NOW + 1.5)

    node.live(15000, at=NOW + 2)

    held = node.view.nodes["n"].claims
    assert (held["uid-one"].shown, held["uid-two"].shown) == (True, False)
    assert node.free(NOW + 2) == pytest.approx([6000], abs=1)


def test_an_engine_listed_in_telemetry_shows_its_pod():
    node = Node()
    change(node.view, pod(vram=9437), now=NOW + 1)

    node.live(24000, 24000, at=NOW + 2, engines=(EngineTelemetry(namespace="default", pod="p"),))

    assert node.view.nodes["n"].claims["uid-p"].shown


def test_memory_that_never_shows_is_held_for_ten_minutes_while_telemetry_is_fresh():
    node = Node(cards=1)
    change(node.view, pod(gpus=0, vram=9437), now=NOW)
    node.live(24000, at=NOW + 599)
    held = node.free(NOW + 599)

    node.live(24000, at=NOW + 601)

    assert held == pytest.approx([15000], abs=1)
    assert node.free(NOW + 601) == [24000]


def test_a_silent_node_counts_everything_bound_to_it():
    node = Node(cards=1)
    change(node.view, pod(gpus=0, vram=9437), now=NOW + 1)
    node.live(15000, at=NOW + 2)

    assert node.free(NOW + 100) == pytest.approx([15000], abs=1)


def test_a_fresh_replica_rebuilds_from_the_list():
    node = Node()
    loading = pod("loading", vram=9437, conditions=[
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2027-01-15T07:59:00Z"}])  # fmt: skip
    serving = pod("serving", vram=9437, conditions=[
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2027-01-15T07:00:00Z"},
        {"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T07:01:00Z"}])  # fmt: skip

    bad = replace_objects(
        node.view, "pods", [loading, serving, pod("unbound", node=None), pod("over", phase="Failed")], NOW
    )

    assert bad == ()
    held = node.view.nodes["n"].claims
    assert {uid: claim.shown for uid, claim in held.items()} == {"uid-loading": False, "uid-serving": True}
    assert held["uid-loading"].at == NOW - 60
    assert node.free() == []


def test_a_list_drops_bound_pods_it_does_not_hold_and_keeps_reservations():
    node = Node()
    change(node.view, pod())
    claims.reserve(node.view, "n", PodRef("waiting"), WHOLE, NOW + 5)

    replace_objects(node.view, "pods", [], NOW)

    assert node.view.claimed_on == {"waiting": "n"}


def test_victims_give_back_what_they_are_seen_to_use():
    node = Node()
    change(node.view, pod("one", vram=9437), now=NOW + 1)
    change(node.view, pod("two", vram=9437), now=NOW + 1)
    node.live(100, 50, at=NOW + 2)

    assert node.free(NOW + 2) == []
    assert node.free(NOW + 2, without=["uid-one"]) == [24000]
    assert node.free(NOW + 2, without=["uid-one", "uid-two"]) == [24000, 24000]


def test_an_object_that_is_no_pod_is_named_and_changes_nothing():
    view = FleetView()
    body = {"metadata": {"name": "odd", "annotations": ["not", "a", "map"]}}

    with pytest.raises(UnreadableObject, match="Pod odd"):
        change(view, body)
    assert [str(err)[:8] for err in replace_objects(view, "pods", [body], NOW)] == ["Pod odd:"]
    assert view.version == 0


def test_nodes_bring_existence_cost_and_cordon():
    view = FleetView()
    body = {"metadata": {"name": "n", "annotations": {"flexinfer.ai/cost": "1.5"}}, "spec": {"unschedulable": True}}

    news = [fold(view, KubeDelta(plural="nodes", action="MODIFIED", object=body), NOW) for _ in range(2)]

    node = view.nodes["n"]
    assert news == [True, False]
    assert (node.exists, node.unschedulable, node.cost) == (True, True, 1.5)
    replace_objects(view, "nodes", [], NOW)
    assert not node.exists


@pytest.mark.parametrize("price", ["cheap", "-1", "nan", "inf", "1e400", "", None, "1e300"])
def test_an_absurd_price_is_no_price(price):
    view = FleetView()
    body = {"metadata": {"name": "n", "annotations": {"flexinfer.ai/cost": price}}}

    fold(view, KubeDelta(plural="nodes", action="ADDED", object=body), NOW)

    assert view.nodes["n"].cost is None
