"""Our own objects into the view, with the indexes that let one event find its models without a search."""

from flexinfer.contracts.kubernetes import MODELDEPLOYMENTS, MODELS, Object
from flexinfer.core.lifecycle.description import Description, ModelKey
from flexinfer.core.lifecycle.objects import annotations, condition, meta, status, uid, version_number
from flexinfer.core.lifecycle.reading import describe, key_of
from flexinfer.core.lifecycle.view import RECORDS, LifecycleView, ModelState

DUPLICATE_NAME = "DuplicateName"
PLURALS = {MODELS.kind: MODELS.plural, MODELDEPLOYMENTS.kind: MODELDEPLOYMENTS.plural}


def put(view: LifecycleView, obj: Object, at: float) -> set[ModelKey]:
    """A new or changed object."""
    key = key_of(obj)
    state = view.models.get(key)
    if state and uid(state.object) != uid(obj):
        remove(view, state.object)
        state = None
    if state is None:
        view.models[key] = ModelState(obj, describe(obj), at)
        view.by_uid[uid(obj)] = key
        return _index(view, key) | {key}
    before, after = version_number(state.object), version_number(obj)
    if before is not None and after is not None and after < before:
        return set()
    changed = _spec_changed(state.object, obj)
    state.object = obj
    if not changed:
        return {key}
    affected = _unindex(view, key)
    state.wanted = describe(obj)
    view.failures.pop(key, None)
    state.noted.clear()
    state.rendered.clear()
    return affected | _index(view, key) | {key}


def _spec_changed(old: Object, new: Object) -> bool:
    return old.get("spec") != new.get("spec") or annotations(old) != annotations(new)


def remove(view: LifecycleView, obj: Object) -> set[ModelKey]:
    """The object is gone; those that shared a name, an alias or a measurement with it may go on."""
    key = key_of(obj)
    state = view.models.get(key)
    if state is None or uid(state.object) != uid(obj):
        return {key}
    affected = _unindex(view, key)
    del view.models[key]
    view.failures.pop(key, None)
    view.by_uid.pop(uid(obj), None)
    view.suspect((key.namespace, key.name))
    return affected | {key, RECORDS}


def _index(view: LifecycleView, key: ModelKey) -> set[ModelKey]:
    """Enter the model everywhere; returns the others that are affected."""
    name = (key.namespace, key.name)
    view.by_name[name] = _by_age(view, {*view.by_name.get(name, ()), key})
    affected = set(view.by_name[name])
    wanted = view.models[key].wanted
    if isinstance(wanted, Description):
        view.by_workload.setdefault(wanted.workload, set()).add(key)
        for alias in wanted.aliases:
            view.by_alias[alias] = _by_age(view, {*view.by_alias.get(alias, ()), key})
            affected |= set(view.by_alias[alias])
    return affected - {key}


def _unindex(view: LifecycleView, key: ModelKey) -> set[ModelKey]:
    name = (key.namespace, key.name)
    affected = set(view.by_name.get(name, ()))
    view.by_name[name] = tuple(other for other in view.by_name.get(name, ()) if other != key)
    if not view.by_name[name]:
        del view.by_name[name]
    wanted = view.models[key].wanted
    if isinstance(wanted, Description):
        same = view.by_workload.get(wanted.workload, set())
        same.discard(key)
        affected |= same
        if not same:
            view.by_workload.pop(wanted.workload, None)
        for alias in wanted.aliases:
            rest = tuple(other for other in view.by_alias.get(alias, ()) if other != key)
            affected |= set(rest)
            if rest:
                view.by_alias[alias] = rest
            else:
                view.by_alias.pop(alias, None)
    return affected - {key}


def _by_age(view: LifecycleView, keys: set[ModelKey]) -> tuple[ModelKey, ...]:
    """Oldest first: who had a name first keeps it. Timestamps count seconds, so among equals the one that was
    accepted comes before one that was turned away or is still unknown."""

    def age(key: ModelKey) -> tuple[str, bool, ModelKey]:
        obj = view.models[key].object
        turned_away = (condition(obj, "Available") or {}).get("reason") == DUPLICATE_NAME
        accepted = bool(status(obj).get("phase")) and not turned_away
        return str(meta(obj).get("creationTimestamp") or ""), not accepted, key

    return tuple(sorted(keys, key=age))
