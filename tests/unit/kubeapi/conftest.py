"""A registry without a server, on a clock that tests turn."""

from dataclasses import dataclass

import pytest

from flexinfer.local.kubeapi.catalog import Catalog
from flexinfer.local.kubeapi.controllers import Controllers
from flexinfer.local.kubeapi.crds import register
from flexinfer.local.kubeapi.registry import Registry
from flexinfer.local.kubeapi.store import Store
from flexinfer.local.kubeapi.tables import table_of


@dataclass
class TurnedClock:
    time: float = 1_700_000_000.0

    def now(self):
        return self.time

    def monotonic(self):
        return self.time


class Cluster:
    """Store, rules and controllers, driven by hand."""

    def __init__(self):
        self.clock = TurnedClock()
        self.store = Store()
        self.registry = Registry(self.store, Catalog(), self.clock)
        self.store.hook(lambda change: register(self.registry.catalog, change))
        self.controllers = Controllers(self.registry)
        self.create("v1", "Namespace", {"metadata": {"name": "default"}}, "")
        self.settle()

    def kind(self, api_version, kind):
        return self.registry.catalog.by_kind(api_version, kind)

    def create(self, api_version, kind, body, namespace="default"):
        return self.registry.create(self.kind(api_version, kind), namespace, body).obj

    def get(self, api_version, kind, name, namespace="default"):
        return self.registry.get(self.kind(api_version, kind), namespace, name).obj

    def list(self, bucket):
        return [stored.obj for stored in self.store.list(bucket)]

    def patch(self, api_version, kind, name, change, subresource=""):
        kind = self.kind(api_version, kind)

        def merge(obj):
            return deep_merge(obj, change)

        result = self.registry.patch(kind, ("default" if kind.namespaced else "", name), merge, None, subresource).obj
        self.settle()
        return result

    def delete(self, api_version, kind, name, options=None):
        outcome = self.registry.delete(self.kind(api_version, kind), "default", name, options)
        self.settle()
        return outcome

    def tables(self):
        """Print everything, as kubectl would make the server do."""
        for kind in self.registry.catalog.kinds():
            objects = [self.registry.present(kind, obj) for obj in self.list(kind.bucket)]
            table_of(kind, objects, self.clock.now(), "Object", {})

    def settle(self):
        self.controllers.settle()

    def pass_time(self, seconds):
        self.clock.time += seconds
        self.settle()

    def pods(self, **labels):
        return [
            pod
            for pod in self.list("pods")
            if labels.items() <= (pod["metadata"].get("labels") or {}).items()
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def run(self, pod, phase="Running", ready=True):
        status = {"phase": phase}
        if phase == "Running":
            stamp = "2023-11-14T22:13:20Z"
            status["conditions"] = [{"type": "Ready", "status": str(ready), "lastTransitionTime": stamp}]
        self.patch("v1", "Pod", pod["metadata"]["name"], {"status": status}, "status")


def deep_merge(obj, change):
    merged = dict(obj)
    for key, value in change.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = deep_merge(merged[key], value) if both else value
    return merged


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture(scope="session")
def make_cluster():
    """For property tests, which need a fresh one per example."""
    return Cluster
