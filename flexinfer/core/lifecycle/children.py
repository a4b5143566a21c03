"""Deployment, Service and volume claim: what to write so that they are as wanted, and nothing when they are."""

from collections.abc import Callable

from flexinfer.contracts.kubernetes import DEPLOYMENTS, SERVICES, Object
from flexinfer.core.effects import Apply, Delete, Effect, Patch, target
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.fit import Option, Outlook
from flexinfer.core.lifecycle.fold import FINGERPRINT
from flexinfer.core.lifecycle.manifests import CLAIMS, PLACEMENT, deployment, service, volume_claim
from flexinfer.core.lifecycle.naming import child_name
from flexinfer.core.lifecycle.objects import annotations, controller, covers, deleting, meta, name_of, uid
from flexinfer.core.lifecycle.pods import Placement, image_of
from flexinfer.core.lifecycle.view import LifecycleView, ModelState


def own_deployment(view: LifecycleView, wanted: Description) -> Object | None:
    """The Deployment of this model; one without an owner is adopted, somebody else's is not looked at."""
    found = view.deployments.get((wanted.key.namespace, child_name(wanted.key.name)))
    if found is None or deleting(found) or controller(found) not in {"", wanted.uid}:
        return None
    return found


def settled_place(
    wanted: Description, existing: Object | None, look: Outlook, speeds: dict[str, float]
) -> Placement | None:
    """Vendor and count of the replicas: those of the Deployment while they still fit, else the fastest measured."""
    kept = _placed(existing, wanted)
    if kept and (not look.options or any((o.vendor, o.count) == (kept.vendor, kept.count) for o in look.options)):
        return kept
    if look.options:
        best = max(look.options, key=lambda o: (speeds.get(o.device_class, -1.0), len(o.nodes), o.device_class))
        return Placement(best.vendor, best.count)
    return None


def asked_place(wanted: Description) -> Placement | None:
    """The placement that follows from the spec alone, without knowing the fleet."""
    demand = wanted.demand
    if demand.count == 0:
        return Placement("CPU", 0)
    return None if demand.vendor == "auto" else Placement(demand.vendor.upper(), demand.count or 1)


def _placed(existing: Object | None, wanted: Description) -> Placement | None:
    vendor, mark, count = annotations(existing or {}).get(PLACEMENT, "").partition(":")
    if not mark or not count.isdigit():
        return None
    demand = wanted.demand
    fits = demand.vendor == "auto" or demand.vendor.upper() == vendor
    return Placement(vendor, int(count)) if fits and demand.count in {None, int(count)} else None


def usable(options: tuple[Option, ...], wanted: Description, view: LifecycleView) -> tuple[Option, ...]:
    """Options for which there is an image."""
    return tuple(option for option in options if image_of(wanted, option.vendor, view.policy))


def plan_children(
    view: LifecycleView, state: ModelState, wanted: Description, place: Placement, replicas: int, *, hold: bool
) -> list[Effect]:
    """Writes for the children. ``hold``: a new version waits for its benchmark, only replicas follow."""
    image = image_of(wanted, place.vendor, view.policy) or ""
    effects: list[Effect] = []
    if wanted.storage.make:
        claim = volume_claim(wanted)
        if name_of(claim) not in view.claims_of_storage:
            effects.append(Apply(CLAIMS, claim, wanted.uid))
    existing = own_deployment(view, wanted)
    body = _rendered(
        state, "deployment", (place, image, wanted.demand), lambda: deployment(wanted, place, image, 0, view.policy)
    )
    change = Apply(DEPLOYMENTS, {**body, "spec": {**body["spec"], "replicas": replicas}}, wanted.uid)
    if existing is None or (not hold and _differs(state, change, existing)):
        effects.append(change)
    elif int((existing.get("spec") or {}).get("replicas", 1)) != replicas:
        scaled = {"spec": {"replicas": replicas}}
        effects.append(Patch(DEPLOYMENTS, wanted.key.namespace, child_name(wanted.key.name), scaled))
    return effects + _service(view, state, wanted)


def _service(view: LifecycleView, state: ModelState, wanted: Description) -> list[Effect]:
    name = (wanted.key.namespace, child_name(wanted.key.name))
    existing = view.services.get(name)
    if wanted.service.enabled:
        change = Apply(SERVICES, _rendered(state, "service", None, lambda: service(wanted)), wanted.uid)
        return [change] if existing is None or _differs(state, change, existing) else []
    if existing is not None and controller(existing) == wanted.uid and not deleting(existing):
        return [Delete(SERVICES, name[0], name[1], uid(existing))]
    return []


def _rendered(state: ModelState, child: str, made_from: object, make: Callable[[], Object]) -> Object:
    """A manifest stays the same until the spec or the placement changes."""
    known = state.rendered.get(child)
    if known is not None and known[0] == made_from:
        return known[1]
    body = make()
    state.rendered[child] = (made_from, body)
    return body


def _differs(state: ModelState, change: Apply, existing: Object) -> bool:
    """Our last version is another one, or somebody changed what we set.

    What the server itself makes of an apply counts as applied: else a field it rewrites would be written for ever.
    """
    if deleting(existing):
        return False
    wanted_mark = annotations(change.body)[FINGERPRINT]
    if annotations(existing).get(FINGERPRINT) != wanted_mark or controller(existing) != change.owner:
        return True
    if state.applied.get(target(change)) == (wanted_mark, int(meta(existing).get("generation") or 0)):
        return False
    spec = {name: part for name, part in change.body["spec"].items() if name != "replicas"}
    return not covers(existing.get("spec"), spec)
