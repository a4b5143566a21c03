"""Facts into the fleet view: bus events, stored state, Node and Pod objects, and the passing of time.

Folding the same fact twice changes nothing; facts of one order key may come in any order. ``now`` is this process's
clock in Unix seconds. What cannot be read raises UnreadableObject and leaves the view as it was.
"""

import heapq
from collections.abc import Iterable, Sequence
from datetime import datetime
from math import inf
from typing import Any

import msgspec

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import BenchCompleted, EventData, NodeHardware, NodeStatus, NodeTelemetry
from flexinfer.contracts.extender import PodObject
from flexinfer.contracts.kubernetes import NODES, PODS, KubeDelta, Object
from flexinfer.contracts.labels import COST_ANNOTATION
from flexinfer.contracts.topics import order_key
from flexinfer.core.fleet import claims, freshness
from flexinfer.core.fleet.pods import ask_of, ended
from flexinfer.core.fleet.view import FleetView, NodeView

FORGET_SECONDS = 3600.0  # hardware is repeated every 10 minutes: a node silent this long and gone from the API is gone
MAX_PRICE = 1e9

STATE_TYPES: tuple[type[EventData], ...] = (NodeHardware, NodeTelemetry, NodeStatus, BenchCompleted)


class UnreadableObject(ValueError):
    """A Kubernetes object that cannot be understood; the text names it."""


def fold(view: FleetView, fact: Event | KubeDelta, now: float) -> bool:
    """One live fact; True if it changed the view."""
    if isinstance(fact, Event):
        return _event(view, fact, now, live=True)
    if fact.plural == NODES.plural:
        return _node(view, fact.object, now, gone=fact.action == "DELETED")
    if fact.plural == PODS.plural:
        return _pod(view, fact.object, now, gone=fact.action == "DELETED", live=True)
    return False


def replace_state(view: FleetView, types: Sequence[type[EventData]], events: Iterable[Event], now: float) -> None:
    """The complete stored state of these event types: fold it, and drop what is missing from it.

    A bus that lost its disk has forgotten everybody at once; that is no news of a node whose object is still there.
    What was known of it stands until its agent speaks, its telemetry aging meanwhile.
    """
    kept: set[str] = set()
    for event in events:
        key = order_key(event.data)
        kept.add(key)
        _event(view, event, now, key, live=False)
    view.degraded = False
    for name, node in view.nodes.items():
        if node.exists and not node.assumed:
            continue
        if _drop_missing(view, name, types, kept) or node.assumed:
            node.assumed = False
            view.touch(name)
    if BenchCompleted in types:
        for key in [key for key, result in view.results.items() if order_key(result) not in kept]:
            _forget_result(view, key)


def replace_objects(
    view: FleetView, plural: str, objects: Iterable[Object], now: float
) -> tuple[UnreadableObject, ...]:
    """A complete list of Nodes or Pods; the objects that could not be read are returned, the rest is folded."""
    if plural == PODS.plural:
        return _replace_pods(view, objects, now)
    return _replace_nodes(view, objects, now) if plural == NODES.plural else ()


def _replace_pods(view: FleetView, objects: Iterable[Object], now: float) -> tuple[UnreadableObject, ...]:
    bad: list[UnreadableObject] = []
    uids: set[str] = set()
    for item in objects:
        uids.add(str((item.get("metadata") or {}).get("uid") or ""))
        try:
            _pod(view, item, now, gone=False, live=False)
        except UnreadableObject as err:
            bad.append(err)
    for uid, node in list(view.claimed_on.items()):
        if uid not in uids and view.nodes[node].claims[uid].bound:
            claims.release(view, uid)
    return tuple(bad)


def _replace_nodes(view: FleetView, objects: Iterable[Object], now: float) -> tuple[UnreadableObject, ...]:
    bad: list[UnreadableObject] = []
    names: set[str] = set()
    for item in objects:
        names.add(str((item.get("metadata") or {}).get("name") or ""))
        try:
            _node(view, item, now, gone=False)
        except UnreadableObject as err:
            bad.append(err)
    for node in view.nodes.values():
        if node.exists and node.name not in names:
            node.exists = False
            view.arm(node, now + FORGET_SECONDS)
            view.touch(node.name)
    return tuple(bad)


def tick(view: FleetView, now: float) -> None:
    """Time passed: facts aged, reservations lapsed. Call before reading the view."""
    while view.alarms and view.alarms[0][0] <= now:
        at, name = heapq.heappop(view.alarms)
        node = view.nodes.get(name)
        if node is None or node.alarm != at:
            continue
        node.alarm = inf
        view.touch(name)
        again = min(claims.expire(view, node, now), freshness.next_change(node, now))
        if not node.exists and again == inf:
            if now - node.seen_at >= FORGET_SECONDS and not node.claims:
                _forget_node(view, node)
                continue
            again = max(now, node.seen_at) + FORGET_SECONDS
        if again < inf:
            view.arm(node, again)


def _event(view: FleetView, event: Event, now: float, key: str = "", *, live: bool) -> bool:
    data = event.data
    if not isinstance(data, NodeHardware | NodeTelemetry | NodeStatus | BenchCompleted):
        return False
    key = key or order_key(data)
    before = view.order.seen.get(key)
    old = (key, before.bootid, before.seq) if before else None
    if not view.order.accept(key, event):
        return False
    if old is not None:
        view.mix(*old)
    view.mix(key, event.bootid, event.seq)
    if isinstance(data, BenchCompleted):
        learn_result(view, data, event.at)
        return True
    node = view.node(data.node)
    node.seen_at = now
    match data:
        case NodeTelemetry():
            node.telemetry = data
            node.telemetry_at = freshness.observed(event.at, data.interval_seconds, now, live=live)
            node.figures = {device.uuid: device for device in data.devices}
            claims.settle(node)
            view.arm(node, freshness.next_change(node, now))
        case NodeHardware():
            node.hardware = data
            claims.settle(node)
            view.arm(node, now + FORGET_SECONDS)
        case NodeStatus():
            node.status = data
            node.status_at = now if live else min(event.at, now)
    view.touch(node.name)
    return True


def learn_result(view: FleetView, result: BenchCompleted, at: float) -> None:
    """Take a result observed at ``at`` in place of what its key had."""
    old = view.results.get(result.key)
    if old is not None:
        view.by_workload.get(old.workload, {}).pop(old.key, None)
    view.results[result.key] = result
    view.result_at[result.key] = at
    view.by_workload.setdefault(result.workload, {})[result.key] = result
    view.results_version += 1
    view.version += 1


def _forget_result(view: FleetView, key: str) -> None:
    result = view.results.pop(key)
    view.result_at.pop(key, None)
    of_workload = view.by_workload.get(result.workload, {})
    of_workload.pop(key, None)
    if not of_workload:
        view.by_workload.pop(result.workload, None)
    _forget_order(view, result)
    view.results_version += 1
    view.version += 1


def _forget_order(view: FleetView, data: EventData) -> None:
    key = order_key(data)
    last = view.order.seen.get(key)
    if last is not None:
        view.mix(key, last.bootid, last.seq)
        view.order.forget(key)


def _drop_missing(view: FleetView, name: str, types: Sequence[type[EventData]], kept: set[str]) -> bool:
    node = view.nodes[name]
    dropped = False
    if NodeHardware in types and node.hardware is not None and order_key(node.hardware) not in kept:
        _forget_order(view, node.hardware)
        node.hardware, dropped = None, True
    if NodeTelemetry in types and node.telemetry is not None and order_key(node.telemetry) not in kept:
        _forget_order(view, node.telemetry)
        node.telemetry, node.figures, dropped = None, {}, True
    if NodeStatus in types and node.status is not None and order_key(node.status) not in kept:
        _forget_order(view, node.status)
        node.status, dropped = None, True
    return dropped


def _forget_node(view: FleetView, node: NodeView) -> None:
    for fact in (node.hardware, node.telemetry, node.status):
        if fact is not None:
            _forget_order(view, fact)
    del view.nodes[node.name]


def price_of(text: Any) -> float | None:
    """A price per hour as people write it; None for what is no number from 0 to MAX_PRICE."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if 0 <= value <= MAX_PRICE else None


def _node(view: FleetView, item: Object, now: float, *, gone: bool) -> bool:
    name = str((item.get("metadata") or {}).get("name") or "")
    if not name:
        raise UnreadableObject("a Node without a name")
    node = view.node(name)
    annotations = (item.get("metadata") or {}).get("annotations") or {}
    cost = price_of(annotations.get(view.prefix + COST_ANNOTATION))
    unschedulable = bool((item.get("spec") or {}).get("unschedulable"))
    found = (not gone, unschedulable, cost)
    known = (node.exists, node.unschedulable, node.cost)
    if found == known:
        return False
    view.mix(name, *known)
    view.mix(name, *found)
    node.exists, node.unschedulable, node.cost = found
    node.seen_at = now
    if gone:
        view.arm(node, now + FORGET_SECONDS)
    view.touch(name)
    return True


def _pod(view: FleetView, item: Object, now: float, *, gone: bool, live: bool) -> bool:
    try:
        pod = msgspec.convert(item, PodObject)
    except msgspec.ValidationError as err:
        raise UnreadableObject(f"Pod {(item.get('metadata') or {}).get('name')}: {err}") from err
    ref = claims.PodRef(pod.metadata.uid, pod.metadata.namespace, pod.metadata.name)
    node = pod.spec.node_name if pod.spec else None
    if gone or ended(pod):
        return claims.release(view, ref.uid)
    if not node:
        return False
    ask = ask_of(pod)
    if not ask.whole and not ask.memory_mib:
        # Holds nothing that is counted; its reservation, if any, held the same nothing.
        return claims.release(view, ref.uid)
    before = view.version
    claims.bind(view, node, ref, ask, now if live else _bound_at(pod, now), live=live)
    claim = view.nodes[node].claims[ref.uid]
    if not live and not claim.shown and claim.baseline_mib is None and _condition(pod, "Ready"):
        # Rebuilt by a fresh replica: a pod that serves has its memory, and telemetry has seen it.
        claim.shown = True
        view.touch(node)
    return view.version != before


def _condition(pod: PodObject, kind: str) -> float | None:
    """When a condition became true, None if it is not."""
    for condition in (pod.status.conditions or ()) if pod.status else ():
        if condition.type == kind and condition.status == "True":
            try:
                return datetime.fromisoformat(condition.last_transition_time or "").timestamp()
            except ValueError:
                return 0.0
    return None


def _bound_at(pod: PodObject, now: float) -> float:
    scheduled = _condition(pod, "PodScheduled")
    return now if scheduled is None else min(scheduled, now)
