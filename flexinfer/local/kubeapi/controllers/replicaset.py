"""ReplicaSet: as many pods as it says."""

from collections.abc import Iterable

from flexinfer.local.kubeapi.controllers import podstate
from flexinfer.local.kubeapi.controllers.recording import Recorder
from flexinfer.local.kubeapi.deletion import DeleteOptions
from flexinfer.local.kubeapi.errors import ApiError
from flexinfer.local.kubeapi.objects import Json, at, clone, meta, owner_of, owner_reference, set_condition
from flexinfer.local.kubeapi.registry import Registry
from flexinfer.local.kubeapi.selectors import labels_of, selector_tests
from flexinfer.local.kubeapi.store import Change, Key, Stored

_BURST = 500  # pods made in one pass
_LONGEST_PAUSE = 60.0  # seconds between tries while pods are refused


class ReplicaSetController:
    """Creates, adopts and deletes pods; counts them in the status."""

    name = "replicaset"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._kind = podstate.need(registry, "apps/v1", "ReplicaSet")
        self._pods = podstate.need(registry, "v1", "Pod")
        self._events = Recorder(registry, "replicaset-controller")
        self._refusals: dict[Key, int] = {}

    def concerns(self, change: Change) -> Iterable[Key]:
        """The set itself, or the one a pod belongs to."""
        if change.bucket == self._kind.bucket:
            # Our own status writes are no news; after a refused pod they would start a storm.
            return [] if podstate.only_status(change) else [podstate.key_of(change.after.obj)]
        if change.bucket == "pods":
            return podstate.owner_keys(change, "ReplicaSet")
        return []

    def reconcile(self, key: Key) -> float | None:
        """One pass; comes back when a pod will have been ready for minReadySeconds."""
        stored = self._registry.store.get(self._kind.bucket, key)
        if stored is None:
            return None
        replica_set = stored.obj
        pods = self._owned(replica_set)
        failure = None
        if not meta(replica_set).get("deletionTimestamp"):
            failure = self._scale(replica_set, pods)
            pods = self._owned(replica_set)
        return self._write_status(stored, pods, failure)

    def _owned(self, replica_set: Json) -> list[Stored]:
        """Living pods of the set; orphans that match its selector are adopted first."""
        uid, namespace = meta(replica_set)["uid"], meta(replica_set)["namespace"]
        matches = selector_tests(at(replica_set, "spec", "selector"))
        found: list[Stored] = []
        for pod in self._registry.store.list("pods", namespace):
            owner = owner_of(pod.obj)
            if owner is None and podstate.alive(pod.obj) and matches(labels_of(pod.obj)):
                if not meta(replica_set).get("deletionTimestamp"):
                    found.append(self._adopt(replica_set, pod))
            elif owner is not None and owner["uid"] == uid:
                found.append(pod)
        return [pod for pod in found if podstate.alive(pod.obj)]

    def _adopt(self, replica_set: Json, pod: Stored) -> Stored:
        def change(obj: Json) -> None:
            obj["metadata"].setdefault("ownerReferences", []).append(owner_reference(replica_set))

        return self._registry.edit(self._pods, pod, change)

    def _scale(self, replica_set: Json, pods: list[Stored]) -> ApiError | None:
        wanted = at(replica_set, "spec", "replicas") or 0
        namespace = meta(replica_set)["namespace"]
        if len(pods) < wanted:
            template = clone(at(replica_set, "spec", "template"))
            body = podstate.pod_from(template, replica_set)
            for _ in range(min(wanted - len(pods), _BURST)):
                try:
                    made = self._registry.create(self._pods, namespace, body)
                except ApiError as err:
                    self._events.say(replica_set, "FailedCreate", f"Error creating: {err}", "Warning")
                    return err
                self._events.say(replica_set, "SuccessfulCreate", f"Created pod: {meta(made.obj)['name']}")
        elif len(pods) > wanted:
            for pod in sorted(pods, key=podstate.deletion_rank)[: len(pods) - wanted]:
                name = meta(pod.obj)["name"]
                self._registry.delete(self._pods, namespace, name, DeleteOptions())
                self._events.say(replica_set, "SuccessfulDelete", f"Deleted pod: {name}")
        return None

    def _write_status(self, stored: Stored, pods: list[Stored], failure: ApiError | None) -> float | None:
        now = self._registry.clock.now()
        minimum = at(stored.obj, "spec", "minReadySeconds") or 0
        ready = [pod for pod in pods if podstate.ready(pod.obj)]
        available = [pod for pod in ready if podstate.available_in(pod.obj, minimum, now) == 0]
        labels = labels_of(at(stored.obj, "spec", "template") or {})
        labelled = [pod for pod in pods if labels.items() <= labels_of(pod.obj).items()]

        def change(obj: Json) -> None:
            status = obj.get("status") or {}
            conditions = [c for c in status.get("conditions") or () if c["type"] != "ReplicaFailure"]
            if failure is not None:
                condition = {
                    "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": str(failure),
                }  # fmt: skip
                conditions = set_condition(status.get("conditions") or (), condition, now)
            obj["status"] = podstate.without_zeroes(
                {
                    "replicas": len(pods),
                    "fullyLabeledReplicas": len(labelled),
                    "readyReplicas": len(ready),
                    "availableReplicas": len(available),
                    "observedGeneration": meta(obj)["generation"],
                    "conditions": conditions,
                },
                keep=("replicas",),
            )

        self._registry.edit(self._kind, stored, change)
        key = podstate.key_of(stored.obj)
        if failure is not None:
            self._refusals[key] = self._refusals.get(key, 0) + 1
            return float(min(2.0 ** (self._refusals[key] - 1), _LONGEST_PAUSE))
        self._refusals.pop(key, None)
        waits = [podstate.available_in(pod.obj, minimum, now) for pod in ready]
        return min((wait for wait in waits if wait > 0), default=None)
