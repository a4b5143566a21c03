"""Facts into the view. Each fold returns the keys whose decisions may change; all of them tolerate repeats."""

from collections.abc import Iterable, Sequence

from flexinfer.contracts.kubernetes import KubeDelta, Object
from flexinfer.contracts.labels import COST_ANNOTATION
from flexinfer.core.effects import Apply, Decision, Delete, Effect, Note, Publish, Refusal, Write, target
from flexinfer.core.fleet.fold import price_of
from flexinfer.core.lifecycle import fold_models, fold_results
from flexinfer.core.lifecycle.description import ModelKey
from flexinfer.core.lifecycle.fold_events import published
from flexinfer.core.lifecycle.mounting import put_mount, remove_mount
from flexinfer.core.lifecycle.objects import annotations, controller, labels, meta, name_of, uid, version_number
from flexinfer.core.lifecycle.view import OWNER_UID, RECORDS, WORKLOAD, Failure, LifecycleView, Name

Keys = set[ModelKey]

FINGERPRINT = "flexinfer.ai/fingerprint"
BACKOFF_SECONDS = 1.0
BACKOFF_CEILING = 300.0
CONFLICT_SECONDS = 0.05  # the newer object is on its way already


def fold_delta(view: LifecycleView, delta: KubeDelta, at: float) -> Keys:
    """One change of one object."""
    if delta.action == "DELETED":
        return _remove(view, delta.plural, delta.object, at)
    return _put(view, delta.plural, delta.object, at)


def fold_list(view: LifecycleView, plural: str, objects: Sequence[Object], at: float) -> Keys:
    """Everything that exists of one kind; what is missing is gone."""
    keys: Keys = set()
    first = plural not in view.listed
    view.listed.add(plural)
    known = {name_of(obj): uid(obj) for obj in objects}
    for obj in _stored(view, plural):
        if known.get(name_of(obj)) != uid(obj):
            keys |= _remove(view, plural, obj, at)
    for obj in objects:
        keys |= _put(view, plural, obj, at)
    return {*keys, RECORDS, *view.models} if first else keys


def _stored(view: LifecycleView, plural: str) -> list[Object]:
    match plural:
        case "models" | "modeldeployments":
            return [s.object for k, s in view.models.items() if fold_models.PLURALS[k.kind] == plural]
        case "pods":
            return [pod for group in view.pods.values() for pod in group.values()]
        case "configmaps":
            return [*view.claims.values(), *view.records.values()]
        case "nodes":
            return list(view.nodes.values())
        case "events":
            return list(view.mounts.values())
        case _:
            return list(_children(view, plural).values())


def _children(view: LifecycleView, plural: str) -> dict[Name, Object]:
    return {
        "deployments": view.deployments,
        "services": view.services,
        "jobs": view.jobs,
        "persistentvolumeclaims": view.claims_of_storage,
    }.get(plural, {})


def _put(view: LifecycleView, plural: str, obj: Object, at: float) -> Keys:
    if uid(obj) in view.buried:
        return set()
    match plural:
        case "models" | "modeldeployments":
            return fold_models.put(view, obj, at)
        case "pods":
            return _put_pod(view, obj, at)
        case "configmaps":
            return fold_results.put_configmap(view, obj)
        case "nodes":
            return _put_node(view, obj)
        case "events":
            return put_mount(view, obj)
        case _:
            return _put_child(view, plural, obj, at)


def _remove(view: LifecycleView, plural: str, obj: Object, at: float) -> Keys:
    keys = _put_pod(view, obj, at) if plural == "pods" else set()
    view.bury(uid(obj))
    match plural:
        case "models" | "modeldeployments":
            return fold_models.remove(view, obj)
        case "pods":
            view.decisions.pop(name_of(obj), None)
            view.mounts.pop(uid(obj), None)
            owner = view.pod_owner.pop(name_of(obj), "")
            view.pods.get(owner, {}).pop(name_of(obj), None)
            if not view.pods.get(owner):
                view.pods.pop(owner, None)
            return keys
        case "configmaps":
            return fold_results.remove_configmap(view, obj)
        case "nodes":
            view.nodes.pop(name_of(obj)[1], None)
            return view.fleet_changed()
        case "events":
            return remove_mount(view, obj)
        case _:
            kind = _children(view, plural)
            kept = kind.get(name_of(obj))
            if kept is not None and uid(kept) == uid(obj):
                del kind[name_of(obj)]
                view.jobs_of.get(controller(obj), set()).discard(name_of(obj))
                view.suspect(name_of(obj))
            return _owners(view, obj) | {RECORDS}


def stale(old: Object | None, new: Object) -> bool:
    """An answer to our own write may overtake the watch; what the watch brings then is older."""
    if old is None or uid(old) != uid(new):
        return False
    before, after = version_number(old), version_number(new)
    return before is not None and after is not None and after < before


def _put_child(view: LifecycleView, plural: str, obj: Object, at: float) -> Keys:
    kind = _children(view, plural)
    old = kind.get(name_of(obj))
    if stale(old, obj):
        return set()
    kind[name_of(obj)] = obj
    if plural == "jobs":
        view.jobs_of.setdefault(controller(obj), set()).add(name_of(obj))
    if plural == "deployments" and old is not None and not _replicas(old) and _replicas(obj):
        state = view.models.get(view.by_uid.get(controller(obj), ModelKey("", "", "")))
        if state:
            state.woken_at = at
    lost = set() if old is None or controller(old) == controller(obj) else _owners(view, old)
    return _owners(view, obj) | lost


def _replicas(deployment: Object) -> int:
    return int((deployment.get("spec") or {}).get("replicas", 1))


def _owners(view: LifecycleView, obj: Object) -> Keys:
    """The model that owns a child, and those that wait for the same measurement."""
    owner = view.by_uid.get(controller(obj))
    keys = {owner} if owner else set()
    return keys | view.by_workload.get(meta(obj).get("annotations", {}).get(WORKLOAD, ""), set())


def _put_pod(view: LifecycleView, pod: Object, at: float) -> Keys:
    owner = labels(pod).get(OWNER_UID, "")
    if not owner:
        return set()
    group = view.pods.setdefault(owner, {})
    if stale(group.get(name_of(pod)), pod):
        return set()
    group[name_of(pod)] = pod
    view.pod_owner[name_of(pod)] = owner
    keys = fold_results.read_termination(view, pod, at) | fold_results.check_digest(view, pod, at)
    key = view.by_uid.get(owner)
    return keys | ({key} if key else set())


def _put_node(view: LifecycleView, node: Object) -> Keys:
    """Only what placement depends on is kept: nodes report much else, often."""
    spec = node.get("spec") or {}
    found = {
        "metadata": {"name": name_of(node)[1], "uid": uid(node), "labels": labels(node)},
        "spec": {"taints": spec.get("taints") or [], "unschedulable": bool(spec.get("unschedulable"))},
        "price": price_of(annotations(node).get(view.fleet.prefix + COST_ANNOTATION)),
    }
    if view.nodes.get(name_of(node)[1]) == found:
        return set()
    view.nodes[name_of(node)[1]] = found
    return view.fleet_changed()


def fold_done(view: LifecycleView, key: ModelKey, effect: Effect, result: Object | None, at: float) -> Keys:
    """An effect happened; ``result`` is the object as the API server answered it. The view assumes it at once."""
    state = view.models.get(key)
    if isinstance(effect, Note):
        if state:
            state.noted.add((effect.reason, effect.message))
        return set()
    if isinstance(effect, Publish):
        published(view, effect.data, at if effect.at is None else effect.at)
        return set()
    view.failures.get(key, {}).pop(target(effect), None)
    if isinstance(effect, Delete):
        return _assume_deleted(view, effect, at) | {key}
    if result is None:
        return {key}
    if isinstance(effect, Apply) and state:
        mark = str((meta(result).get("annotations") or {}).get(FINGERPRINT, ""))
        state.applied[target(effect)] = (mark, int(meta(result).get("generation") or 0))
    return _put(view, effect.resource.plural, result, at) | {key}


def _assume_deleted(view: LifecycleView, effect: Delete, at: float) -> Keys:
    """The object may live on while finalizers run: it counts as being deleted until the watch says more."""
    plural = effect.resource.plural
    stored = next(
        (o for o in _stored(view, plural) if name_of(o) == (effect.namespace, effect.name) and uid(o) == effect.uid),
        None,
    )
    if stored is None:
        return set()
    marked = {
        **stored,
        "metadata": {**meta(stored), "deletionTimestamp": meta(stored).get("deletionTimestamp") or "now"},
    }
    return _put(view, plural, marked, at)


def fold_refusal(view: LifecycleView, key: ModelKey, refusal: Refusal, at: float) -> Keys:
    """A write was refused: remember it, so that the same is not tried again at once."""
    failures = view.failures.setdefault(key, {})
    name = target(refusal.effect)
    before = failures.get(name)
    count = before.count + 1 if before and before.effect == refusal.effect else 1
    wait = min(BACKOFF_SECONDS * 2 ** (count - 1), BACKOFF_CEILING)
    if refusal.code in {"Conflict", "AlreadyExists"} and count < 5:
        wait = CONFLICT_SECONDS * 2**count
    wait = max(wait, refusal.retry_after or 0.0)
    failures[name] = Failure(refusal.effect, refusal.code, refusal.message, count, at, at + wait)
    return {key}


def due(view: LifecycleView, key: ModelKey, effects: Iterable[Effect], now: float) -> Decision:
    """Without the writes that were refused a moment ago, and with the time at which they are due again."""
    failures = view.failures.get(key)
    if not failures:
        return Decision(tuple(effects))
    kept: list[Effect] = []
    wake: list[float] = []
    for effect in effects:
        failure = failures.get(target(effect)) if isinstance(effect, Write) else None
        if failure and failure.effect == effect and now < failure.until:
            wake.append(failure.until)
        else:
            kept.append(effect)
    return Decision(tuple(kept), min(wake, default=None))
