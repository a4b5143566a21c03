"""Garbage collection by owner references: background, foreground, orphan."""

from collections.abc import Iterable
from functools import partial

from flexinfer.local.kubeapi.deletion import FOREGROUND, ORPHAN, DeleteOptions
from flexinfer.local.kubeapi.kinds import Kind
from flexinfer.local.kubeapi.objects import Json, meta
from flexinfer.local.kubeapi.registry import Registry
from flexinfer.local.kubeapi.store import Change, Key, Stored

Place = tuple[str, Key]  # bucket, key


class GarbageCollector:
    """Keeps an index uid → dependents by following every change; keys of its queue are (uid, "")."""

    name = "garbage"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._living: dict[str, Place] = {}
        self._dependents: dict[str, set[Place]] = {}

    def concerns(self, change: Change) -> Iterable[Key]:
        """The object, and on removal everyone who named it as owner."""
        obj = change.after.obj
        uid = meta(obj)["uid"]
        place = (change.bucket, (meta(obj).get("namespace", ""), meta(obj)["name"]))
        self._index(change, place)
        if change.type == "DELETED":
            self._living.pop(uid, None)
            affected = [(uid, "")]
            affected += [(owner["uid"], "") for owner in meta(obj).get("ownerReferences") or ()]
            return affected
        self._living[uid] = place
        interesting = meta(obj).get("ownerReferences") or meta(obj).get("deletionTimestamp")
        return [(uid, "")] if interesting else []

    def _index(self, change: Change, place: Place) -> None:
        for stored, add in ((change.before, False), (None if change.type == "DELETED" else change.after, True)):
            if stored is None:
                continue
            for owner in meta(stored.obj).get("ownerReferences") or ():
                dependents = self._dependents.setdefault(owner["uid"], set())
                if add:
                    dependents.add(place)
                else:
                    dependents.discard(place)
                if not dependents:
                    del self._dependents[owner["uid"]]

    def reconcile(self, key: Key) -> float | None:
        """Look at one uid, living or gone."""
        uid = key[0]
        place = self._living.get(uid)
        if place is None:
            for dependent in self._sorted_dependents(uid):
                self._check_owners(dependent)
            return None
        stored = self._registry.store.get(*place)
        kind = self._registry.catalog.by_bucket(place[0])
        if stored is None or kind is None:
            return None
        finalizers = meta(stored.obj).get("finalizers") or ()
        if meta(stored.obj).get("deletionTimestamp") and ORPHAN in finalizers:
            self._orphan(kind, stored, uid)
        elif meta(stored.obj).get("deletionTimestamp") and FOREGROUND in finalizers:
            self._foreground(kind, stored, uid)
        else:
            self._check_owners(place)
        return None

    def _sorted_dependents(self, uid: str) -> list[Place]:
        return sorted(self._dependents.get(uid, ()))

    def _check_owners(self, place: Place) -> None:
        """Delete a dependent whose owners are all gone; drop references to those that are."""
        stored = self._registry.store.get(*place)
        kind = self._registry.catalog.by_bucket(place[0])
        if stored is None or kind is None or meta(stored.obj).get("deletionTimestamp"):
            return
        owners = meta(stored.obj).get("ownerReferences") or []
        living = [owner for owner in owners if owner["uid"] in self._living]
        if not owners or len(living) == len(owners):
            return
        if living:
            self._registry.edit(kind, stored, partial(_set_owners, owners=living))
            return
        namespace, name = place[1]
        options = DeleteOptions(propagation="Background", uid=meta(stored.obj)["uid"])
        self._registry.delete(kind, namespace, name, options)

    def _orphan(self, kind: Kind, stored: Stored, uid: str) -> None:
        for bucket, key in self._sorted_dependents(uid):
            dependent = self._registry.store.get(bucket, key)
            other = self._registry.catalog.by_bucket(bucket)
            if dependent is not None and other is not None:
                rest = [o for o in meta(dependent.obj).get("ownerReferences") or () if o["uid"] != uid]
                self._registry.edit(other, dependent, partial(_set_owners, owners=rest))
        self._release(kind, stored, ORPHAN)

    def _foreground(self, kind: Kind, stored: Stored, uid: str) -> None:
        """Delete dependents first; those that block hold the owner back until they are gone."""
        blocked = False
        for bucket, (namespace, name) in self._sorted_dependents(uid):
            dependent = self._registry.store.get(bucket, (namespace, name))
            other = self._registry.catalog.by_bucket(bucket)
            if dependent is None or other is None:
                continue
            if not meta(dependent.obj).get("deletionTimestamp"):
                deep = bool(self._dependents.get(meta(dependent.obj)["uid"]))
                how = "Foreground" if deep else "Background"
                _, gone = self._registry.delete(other, namespace, name, DeleteOptions(propagation=how))
                if gone:
                    continue
            blocked = blocked or _blocks(dependent.obj, uid)
        if not blocked:
            self._release(kind, stored, FOREGROUND)

    def _release(self, kind: Kind, stored: Stored, finalizer: str) -> None:
        def change(obj: Json) -> None:
            rest = [name for name in obj["metadata"].get("finalizers") or () if name != finalizer]
            if rest:
                obj["metadata"]["finalizers"] = rest
            else:
                obj["metadata"].pop("finalizers", None)

        self._registry.edit(kind, stored, change)


def _set_owners(obj: Json, owners: list[Json]) -> None:
    if owners:
        obj["metadata"]["ownerReferences"] = owners
    else:
        obj["metadata"].pop("ownerReferences", None)


def _blocks(obj: Json, uid: str) -> bool:
    references = meta(obj).get("ownerReferences") or ()
    return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in references)
