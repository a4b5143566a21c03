"""Bus events into the view."""

from collections.abc import Sequence

from msgspec import UnsetType

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import (
    BenchCompleted,
    BenchDrifted,
    BenchFailed,
    EventData,
    ModelDemand,
    ModelEndpoint,
    ModelLoad,
    ModelPhase,
    NodeHardware,
    NodeStatus,
    NodeTelemetry,
    PlacementDecided,
)
from flexinfer.contracts.topics import order_key
from flexinfer.core.lifecycle.description import ModelKey
from flexinfer.core.lifecycle.fold_results import put_drift, put_failure, put_result
from flexinfer.core.lifecycle.view import RECORDS, LifecycleView, ModelState

Keys = set[ModelKey]

DECISIONS_KEPT = 10_000
WEIGHTS_KEPT = 10_000
PROXIES_KEPT = 16
PROXY_SECONDS = 60.0


def fold_event(view: LifecycleView, event: Event, at: float) -> Keys:
    """One event; repeats and reordered ones change nothing."""
    if isinstance(event.data, ModelPhase | ModelEndpoint):
        # Ours were folded when they were sent. Those of another manager say what the bus holds when we take over.
        if event.bootid != view.boot:
            published(view, event.data, event.at)
        return set()
    if isinstance(event.data, PlacementDecided):
        return _decided(view, event.data)  # pods come and go: an order per pod would grow for ever
    if not view.fleet.order.accept(order_key(event.data), event):
        return set()
    match event.data:
        case NodeHardware() | NodeStatus() as data:
            return _node(view, data)
        case NodeTelemetry() as data:
            return _telemetry(view, data, at)
        case BenchCompleted() | BenchFailed() | BenchDrifted():
            return _bench(view, event)
        case ModelDemand() as data:
            return _demand(view, data, at)
        case ModelLoad() as data:
            return _load(view, data, at)
        case _:
            return set()


def _bench(view: LifecycleView, event: Event) -> Keys:
    if isinstance(event.data, BenchCompleted):
        view.on_bus[event.data.key] = event.at
        return put_result(view, event.data, event.at)
    if isinstance(event.data, BenchDrifted):
        return put_drift(view, event.data.key, event.at) if event.data.drifted else set()
    return put_failure(view, event.data) if isinstance(event.data, BenchFailed) else set()


def fold_snapshot(view: LifecycleView, types: Sequence[type[EventData]], events: Sequence[Event], at: float) -> Keys:
    """All the bus holds of these types: what is missing was wiped, or is gone."""
    _forget(view, types, events, at)
    for event in events:
        if isinstance(event.data, ModelPhase | ModelEndpoint):
            published(view, event.data, event.at)
        elif isinstance(event.data, BenchCompleted):
            _bench(view, event)
        else:
            fold_event(view, event, at)
    return {RECORDS, *view.models}


def _forget(view: LifecycleView, types: Sequence[type[EventData]], events: Sequence[Event], at: float) -> None:
    """What only the bus says, before it says it again."""
    if BenchCompleted in types:
        view.on_bus.clear()
    if ModelPhase in types:
        view.phases.clear()
    if ModelEndpoint in types:
        view.endpoints.clear()
        view.draining.clear()
    if ModelLoad in types:
        view.use_since = at
    if NodeHardware in types:
        view.fleet_seen = True
        _forget_nodes(view, events)


def _forget_nodes(view: LifecycleView, events: Sequence[Event]) -> None:
    hardware = {event.data.node for event in events if isinstance(event.data, NodeHardware)}
    states = {event.data.node for event in events if isinstance(event.data, NodeStatus)}
    for name, node in view.fleet.nodes.items():
        if name not in hardware and node.hardware is not None:
            view.fleet.order.forget(order_key(node.hardware))
            node.hardware = None
        if name not in states and node.status is not None:
            view.fleet.order.forget(order_key(node.status))
            node.status = None
    view.fleet_changed()


def _node(view: LifecycleView, data: NodeHardware | NodeStatus) -> Keys:
    """The heartbeat repeats the same hardware: only a change concerns the models."""
    node = view.fleet.node(data.node)
    if isinstance(data, NodeHardware):
        same = node.hardware is not None and node.hardware == data
        node.hardware = data
        _learn(view, data)
    else:
        same = node.status is not None and node.status.state == data.state
        node.status = data
    return set() if same else view.fleet_changed()


def _learn(view: LifecycleView, data: NodeHardware) -> None:
    """What the files in the node's cache tell of their models; a whole entry never changes."""
    for model in () if isinstance(data.cached, UnsetType) else data.cached:
        if not isinstance(model.gguf, UnsetType) and len(view.weights) < WEIGHTS_KEPT:
            view.weights[model.entry] = model.gguf


def _telemetry(view: LifecycleView, data: NodeTelemetry, at: float) -> Keys:
    """Engine counters: a model that works keeps its replicas, whoever sent the requests."""
    keys: Keys = set()
    for engine in data.engines:
        if not (engine.requests_running or engine.requests_waiting):
            continue
        key = view.by_uid.get(view.pod_owner.get((engine.namespace, engine.pod), ""))
        if key and key in view.models:
            keys |= _used(view, key, at)
    return keys


def _used(view: LifecycleView, key: ModelKey, at: float) -> Keys:
    """A sign of use; it is news only for a model that is about to go to zero."""
    view.models[key].use.last = max(view.models[key].use.last, at)
    return {key} if (key.namespace, key.name) in view.draining else set()


def _state(view: LifecycleView, namespace: str, model: str) -> tuple[ModelKey, ModelState] | None:
    keys = view.by_name.get((namespace, model))
    return (keys[0], view.models[keys[0]]) if keys else None


def _demand(view: LifecycleView, data: ModelDemand, at: float) -> Keys:
    found = _state(view, data.namespace, data.model)
    if found is None:
        return set()
    key, state = found
    _prune(state.use.waiting, at)
    state.use.waiting[data.proxy] = (data.waiting, at)
    if data.waiting:
        state.use.last = max(state.use.last, at)
    return {key}


def _load(view: LifecycleView, data: ModelLoad, at: float) -> Keys:
    found = _state(view, data.namespace, data.model)
    if found is None:
        return set()
    key, state = found
    before, _ = state.use.outstanding.get(data.proxy, (0, 0.0))
    _prune(state.use.outstanding, at)
    state.use.outstanding[data.proxy] = (data.outstanding, at)
    if data.outstanding:
        return _used(view, key, at) | (set() if before else {key})
    # The proxy's clock may run ahead of ours: use in the future would keep the model for ever.
    last = min(data.last_used.timestamp(), at) if data.last_used else 0.0
    return _used(view, key, last) if last > state.use.last else set()


def _prune(told: dict[str, tuple[int, float]], at: float) -> None:
    """Proxies that are gone say nothing any more."""
    if len(told) > PROXIES_KEPT:
        for proxy in [proxy for proxy, (_, when) in told.items() if at - when > PROXY_SECONDS]:
            del told[proxy]


def _decided(view: LifecycleView, data: PlacementDecided) -> Keys:
    name = (data.namespace, data.pod)
    owner = view.by_uid.get(view.pod_owner.get(name, ""))
    view.decisions.pop(name, None)
    view.decisions[name] = data
    if len(view.decisions) > DECISIONS_KEPT:
        del view.decisions[next(iter(view.decisions))]
    return {owner} if owner else set()


def published(view: LifecycleView, data: EventData, at: float) -> None:
    """The bus holds this now, or gets it as soon as it can be reached."""
    if isinstance(data, BenchCompleted):
        view.on_bus[data.key] = at
    if not isinstance(data, ModelPhase | ModelEndpoint):
        return
    name = (data.namespace, data.model)
    if isinstance(data, ModelPhase):
        if data.gone:
            view.phases.pop(name, None)
        else:
            view.phases[name] = data
        view.suspect(name)
        return
    if data.gone:
        view.endpoints.pop(name, None)
    else:
        view.endpoints[name] = data
    view.suspect(name)
    if data.endpoints and all(entry.state == "draining" for entry in data.endpoints):
        view.draining.setdefault(name, at)
    else:
        view.draining.pop(name, None)
