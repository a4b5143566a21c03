"""The end of a model: stop traffic, drain, delete, confirm, let go. Every step is decided from what is still there.

Nothing here waits for the bus: while it is away the events are kept by the adapter, and proxies that cannot hear
would not stop anyway.
"""

from msgspec.structs import replace

from flexinfer.contracts.events import ModelEndpoint, ModelPhase
from flexinfer.contracts.kubernetes import DEPLOYMENTS, JOBS, SERVICES, Object, Resource
from flexinfer.contracts.labels import FINALIZER
from flexinfer.core.effects import Decision, Delete, Effect, Patch, Publish
from flexinfer.core.lifecycle import claims
from flexinfer.core.lifecycle.assess import Verdict
from flexinfer.core.lifecycle.conditions import condition
from flexinfer.core.lifecycle.description import ModelKey
from flexinfer.core.lifecycle.naming import RESOURCES, child_name
from flexinfer.core.lifecycle.objects import controller, deleting, meta, name_of, parse_time, uid
from flexinfer.core.lifecycle.status import Report, plan_status
from flexinfer.core.lifecycle.view import LifecycleView, ModelState

DRAIN_SECONDS = 1.0  # proxies hear of it within milliseconds; requests in flight have the pods' own grace
POD_PATIENCE = 120.0  # pods on a node that is gone never confirm; their Deployment is gone, that must do


def plan_removal(view: LifecycleView, key: ModelKey, state: ModelState, now: float) -> Decision:
    """The next step of the deletion of one object."""
    if FINALIZER not in (meta(state.object).get("finalizers") or []):
        return Decision()
    effects = _say(view, key, state, now)
    traffic = _stop_traffic(view, key, now)
    if traffic is not None:
        return Decision((*effects, *traffic.effects), traffic.wake_at)
    effects += _retract_endpoint(view, key)
    doomed = _children(view, key, state)
    if doomed:
        return Decision((*effects, *doomed))
    asked = parse_time(meta(state.object).get("deletionTimestamp")) or now
    if _remaining(view, key, state) and now < asked + POD_PATIENCE:
        return Decision(tuple(effects), asked + POD_PATIENCE)
    return Decision((*effects, *_retract_phase(view, key), _let_go(key, state.object)))


def _say(view: LifecycleView, key: ModelKey, state: ModelState, now: float) -> list[Effect]:
    verdict = Verdict("Terminating", "Deleting", "stopping traffic, then replicas")
    conditions = (
        condition("Available", holds=False, reason="Deleting"),
        condition("Progressing", holds=True, reason="Deleting"),
    )
    return plan_status(view, key, state, Report(verdict, conditions), now)


def _first(view: LifecycleView, key: ModelKey) -> bool:
    """Whether the routable name is this object's, and not an older one's of the other kind."""
    return view.by_name.get((key.namespace, key.name), (key,))[0] == key


def _stop_traffic(view: LifecycleView, key: ModelKey, now: float) -> Decision | None:
    """Take the endpoints out of rotation and give proxies a moment; None once that is done."""
    name = (key.namespace, key.name)
    event = view.endpoints.get(name)
    if event is None or not event.endpoints or not view.bus_up or not _first(view, key):
        return None
    since = view.draining.get(name)
    if since is None or event.wakeable:
        drained = tuple(replace(entry, state="draining") for entry in event.endpoints)
        return Decision((Publish(replace(event, endpoints=drained, wakeable=False)),), now + DRAIN_SECONDS)
    return Decision((), since + DRAIN_SECONDS) if now < since + DRAIN_SECONDS else None


def _retract_endpoint(view: LifecycleView, key: ModelKey) -> list[Effect]:
    event = view.endpoints.get((key.namespace, key.name))
    if event is None or not _first(view, key):
        return []
    return [Publish(ModelEndpoint(namespace=key.namespace, model=key.name, backend=event.backend, gone=True))]


def _retract_phase(view: LifecycleView, key: ModelKey) -> list[Effect]:
    event = view.phases.get((key.namespace, key.name))
    return [Publish(replace(event, gone=True))] if event is not None and event.kind == key.kind else []


def retract(view: LifecycleView, key: ModelKey) -> Decision:
    """The object is gone, finalizer or not: the bus must not say otherwise."""
    if (key.namespace, key.name) in view.by_name:
        return Decision()
    event: ModelPhase | None = view.phases.get((key.namespace, key.name))
    gone: list[Effect] = [Publish(replace(event, gone=True))] if event else []
    return Decision((*_retract_endpoint(view, key), *gone))


def _children(view: LifecycleView, key: ModelKey, state: ModelState) -> list[Effect]:
    owner = uid(state.object)
    name = (key.namespace, child_name(key.name))
    effects: list[Effect] = []
    held = [view.claims[k] for k in sorted(view.held.get(owner, ())) if k in view.claims]
    effects += [claims.give_back(claim, view.policy) for claim in held if not deleting(claim)]
    found: list[tuple[Resource, Object | None]] = [
        (JOBS, view.jobs.get(n)) for n in sorted(view.jobs_of.get(owner, ()))
    ]
    found += [(DEPLOYMENTS, view.deployments.get(name)), (SERVICES, view.services.get(name))]
    for resource, child in found:
        if child is not None and controller(child) == owner and not deleting(child):
            effects.append(Delete(resource, *name_of(child), uid(child)))
    return effects


def _remaining(view: LifecycleView, key: ModelKey, state: ModelState) -> bool:
    owner = uid(state.object)
    deployment = view.deployments.get((key.namespace, child_name(key.name)))
    return bool(
        any(view.pods_of(owner))
        or any(name in view.jobs for name in view.jobs_of.get(owner, ()))
        or (deployment is not None and controller(deployment) == owner)
    )


def _let_go(key: ModelKey, obj: Object) -> Patch:
    found = meta(obj)
    rest = [name for name in found.get("finalizers") or [] if name != FINALIZER]
    body = {"metadata": {"finalizers": rest, "resourceVersion": found.get("resourceVersion")}}
    return Patch(RESOURCES[key.kind], key.namespace, key.name, body)
