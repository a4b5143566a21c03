"""Namespaces: a default service account at birth, everything inside removed at death."""

from collections.abc import Iterable

from flexinfer.local.kubeapi.controllers.podstate import need
from flexinfer.local.kubeapi.deletion import DeleteOptions
from flexinfer.local.kubeapi.objects import Json, meta
from flexinfer.local.kubeapi.registry import Registry
from flexinfer.local.kubeapi.store import Change, Key


class NamespaceController:
    """Keys are ("", namespace)."""

    name = "namespace"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._kind = need(registry, "v1", "Namespace")
        self._accounts = need(registry, "v1", "ServiceAccount")

    def concerns(self, change: Change) -> Iterable[Key]:
        """The namespace; and the one of an object that went while its namespace is going."""
        if change.bucket == "namespaces":
            return [("", meta(change.after.obj)["name"])]
        namespace = meta(change.after.obj).get("namespace", "")
        if change.type != "DELETED" or not namespace:
            return []
        found = self._registry.store.get("namespaces", ("", namespace))
        going = found is not None and meta(found.obj).get("deletionTimestamp")
        return [("", namespace)] if going else []

    def reconcile(self, key: Key) -> float | None:
        """One pass."""
        stored = self._registry.store.get("namespaces", key)
        if stored is None:
            return None
        if not meta(stored.obj).get("deletionTimestamp"):
            if self._registry.store.get("serviceaccounts", (key[1], "default")) is None:
                self._registry.create(self._accounts, key[1], {"metadata": {"name": "default"}})
            return None
        if self._empty(key[1]):
            self._registry.edit(self._kind, stored, _finalize)
        return None

    def _empty(self, namespace: str) -> bool:
        """Delete what is left; whether nothing is."""
        empty = True
        for bucket in self._registry.store.buckets():
            kind = self._registry.catalog.by_bucket(bucket)
            if kind is None or not kind.namespaced:
                continue
            for stored in self._registry.store.list(bucket, namespace):
                gone = False
                if not meta(stored.obj).get("deletionTimestamp"):
                    options = DeleteOptions(propagation="Background")
                    _, gone = self._registry.delete(kind, namespace, meta(stored.obj)["name"], options)
                empty = empty and gone
        return empty


def _finalize(obj: Json) -> None:
    obj["spec"] = {}
