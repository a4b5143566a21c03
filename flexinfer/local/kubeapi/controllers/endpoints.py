"""Services: an EndpointSlice of the ready pods."""

from collections.abc import Iterable

from flexinfer.local.kubeapi.controllers.podstate import finished, key_of, need, ready
from flexinfer.local.kubeapi.deletion import DeleteOptions
from flexinfer.local.kubeapi.objects import Json, at, meta, owner_reference
from flexinfer.local.kubeapi.registry import Registry
from flexinfer.local.kubeapi.selectors import labels_of
from flexinfer.local.kubeapi.store import Change, Key, Stored

SERVICE_NAME = "kubernetes.io/service-name"
_MANAGED_BY = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}


class EndpointSliceController:
    """One slice per Service with a selector."""

    name = "endpointslice"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._slices = need(registry, "discovery.k8s.io/v1", "EndpointSlice")

    def concerns(self, change: Change) -> Iterable[Key]:
        """The Service; or those that select the pod, before or after."""
        if change.bucket == "services":
            return [key_of(change.after.obj)]
        if change.bucket != "pods":
            return []
        versions = [change.after] if change.before is None else [change.before, change.after]
        namespace = meta(change.after.obj).get("namespace", "")
        return [
            key_of(service.obj)
            for service in self._registry.store.list("services", namespace)
            if any(_selects(service.obj, version.obj) for version in versions)
        ]

    def reconcile(self, key: Key) -> float | None:
        """Write or remove the slice."""
        service = self._registry.store.get("services", key)
        existing = self._existing(key)
        if service is None or not at(service.obj, "spec", "selector"):
            for stored in existing:
                self._registry.delete(self._slices, *key_of(stored.obj), DeleteOptions())
            return None
        wanted = self._slice(service.obj)
        if not existing:
            self._registry.create(self._slices, key[0], wanted)
            return None

        def change(obj: Json) -> None:
            if obj.get("endpoints") != wanted["endpoints"] or obj.get("ports") != wanted["ports"]:
                obj["metadata"]["generation"] += 1
            obj["endpoints"], obj["ports"] = wanted["endpoints"], wanted["ports"]

        self._registry.edit(self._slices, existing[0], change)
        return None

    def _existing(self, key: Key) -> list[Stored]:
        found = self._registry.store.list(self._slices.bucket, key[0])
        return [
            stored
            for stored in found
            if labels_of(stored.obj).get(SERVICE_NAME) == key[1]
            and _MANAGED_BY.items() <= labels_of(stored.obj).items()
        ]

    def _slice(self, service: Json) -> Json:
        pods = [
            pod.obj
            for pod in self._registry.store.list("pods", meta(service)["namespace"])
            if _selects(service, pod.obj) and at(pod.obj, "status", "podIP") and not finished(pod.obj)
        ]
        lenient = bool(at(service, "spec", "publishNotReadyAddresses"))
        labels = {**labels_of(service), SERVICE_NAME: meta(service)["name"], **_MANAGED_BY}
        if at(service, "spec", "clusterIP") == "None":
            labels["service.kubernetes.io/headless"] = ""
        return {
            **self._slices.head(),
            "metadata": {
                "generateName": f"{meta(service)['name']}-",
                "labels": labels,
                "ownerReferences": [owner_reference(service)],
            },
            "addressType": "IPv4",
            "endpoints": [_endpoint(pod, lenient=lenient) for pod in pods],
            "ports": _ports(service, pods),
        }


def _selects(service: Json, pod: Json) -> bool:
    selector = at(service, "spec", "selector")
    return bool(selector) and selector.items() <= labels_of(pod).items()


def _endpoint(pod: Json, *, lenient: bool) -> Json:
    terminating = bool(meta(pod).get("deletionTimestamp"))
    serving = ready(pod)
    endpoint: Json = {
        "addresses": [at(pod, "status", "podIP")],
        "conditions": {
            "ready": lenient or (serving and not terminating), "serving": serving, "terminating": terminating,
        },
        "targetRef": {
            "kind": "Pod", "namespace": meta(pod)["namespace"], "name": meta(pod)["name"], "uid": meta(pod)["uid"],
        },
    }  # fmt: skip
    node = at(pod, "spec", "nodeName")
    if node:
        endpoint["nodeName"] = node
    return endpoint


def _ports(service: Json, pods: list[Json]) -> list[Json]:
    found: list[Json] = []
    for port in at(service, "spec", "ports") or ():
        number = _target(port, pods)
        if number is not None:
            found.append({"name": port.get("name", ""), "port": number, "protocol": port.get("protocol", "TCP")})
    return found


def _target(port: Json, pods: list[Json]) -> int | None:
    target = port.get("targetPort", port["port"])
    if isinstance(target, int):
        return target
    for pod in pods:
        for container in at(pod, "spec", "containers") or ():
            for declared in container.get("ports") or ():
                if declared.get("name") == target:
                    return int(declared["containerPort"])
    return None
