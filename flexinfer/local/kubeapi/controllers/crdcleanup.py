"""Deleting a CustomResourceDefinition deletes its objects first."""

from collections.abc import Iterable

from flexinfer.local.kubeapi import crds
from flexinfer.local.kubeapi.controllers.podstate import need
from flexinfer.local.kubeapi.deletion import DeleteOptions
from flexinfer.local.kubeapi.objects import Json, meta
from flexinfer.local.kubeapi.registry import Registry
from flexinfer.local.kubeapi.store import Change, Key


class CrdCleanup:
    """Keys are ("", name of the definition), which is also the bucket of its objects."""

    name = "crdcleanup"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._kind = need(registry, "apiextensions.k8s.io/v1", "CustomResourceDefinition")

    def concerns(self, change: Change) -> Iterable[Key]:
        """A definition, or an object that went."""
        if change.bucket == crds.BUCKET:
            return [("", meta(change.after.obj)["name"])]
        return [("", change.bucket)] if change.type == "DELETED" and "." in change.bucket else []

    def reconcile(self, key: Key) -> float | None:
        """One pass."""
        stored = self._registry.store.get(crds.BUCKET, key)
        if stored is None or not meta(stored.obj).get("deletionTimestamp"):
            return None
        kind = self._registry.catalog.by_bucket(key[1])
        left = 0
        for item in self._registry.store.list(key[1]) if kind else ():
            if not meta(item.obj).get("deletionTimestamp") and kind is not None:
                namespace, name = meta(item.obj).get("namespace", ""), meta(item.obj)["name"]
                _, gone = self._registry.delete(kind, namespace, name, DeleteOptions(propagation="Background"))
                left += not gone
            else:
                left += 1
        if left == 0:
            self._registry.edit(self._kind, stored, _release)
        return None


def _release(obj: Json) -> None:
    rest = [name for name in obj["metadata"].get("finalizers") or () if name != crds.CLEANUP]
    obj["metadata"]["finalizers"] = rest
