"""Deployment: one ReplicaSet per template, rolled from old to new within its limits."""

import hashlib
from collections.abc import Iterable
from typing import Any

from flexinfer.local.kubeapi.controllers import podstate
from flexinfer.local.kubeapi.controllers.recording import Recorder
from flexinfer.local.kubeapi.controllers.rollout import Sizes, deployment_status, next_sizes, share
from flexinfer.local.kubeapi.deletion import DeleteOptions
from flexinfer.local.kubeapi.objects import Json, at, clone, encode, meta, owner_of, owner_reference, seconds
from flexinfer.local.kubeapi.registry import Registry
from flexinfer.local.kubeapi.store import Change, Key, Stored

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class DeploymentController:
    """Creates and scales ReplicaSets, writes the Deployment's status."""

    name = "deployment"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._kind = podstate.need(registry, "apps/v1", "Deployment")
        self._sets = podstate.need(registry, "apps/v1", "ReplicaSet")
        self._events = Recorder(registry, "deployment-controller")

    def concerns(self, change: Change) -> Iterable[Key]:
        """The Deployment itself, or the one a ReplicaSet belongs to, or a pod's while it goes away."""
        if change.bucket == self._kind.bucket:
            return [podstate.key_of(change.after.obj)]
        if change.bucket == self._sets.bucket:
            return podstate.owner_keys(change, "Deployment")
        if change.bucket == "pods" and change.type == "DELETED":
            # Recreate waits for the last old pod.
            return [key for owner in podstate.owner_keys(change, "ReplicaSet") for key in self._above(owner)]
        return []

    def _above(self, key: Key) -> list[Key]:
        stored = self._registry.store.get(self._sets.bucket, key)
        owner = owner_of(stored.obj) if stored else None
        return [(key[0], owner["name"])] if owner else []

    def reconcile(self, key: Key) -> float | None:
        """One pass; comes back when the progress deadline will have passed."""
        stored = self._registry.store.get(self._kind.bucket, key)
        if stored is None or meta(stored.obj).get("deletionTimestamp"):
            return None
        deployment = stored.obj
        sets = self._owned(deployment)
        paused = bool(at(deployment, "spec", "paused"))
        current = self._matching(deployment, sets)
        if current is None and not paused:
            current = self._create(deployment, sets)
            sets = self._owned(deployment)
        old = [item for item in sets if current is None or meta(item.obj)["uid"] != meta(current.obj)["uid"]]
        if current is not None:
            self._resize(deployment, current, old)
            self._forget_history(deployment, old)
        return self._write_status(stored, current)

    def _owned(self, deployment: Json) -> list[Stored]:
        uid = meta(deployment)["uid"]
        found = self._registry.store.list(self._sets.bucket, meta(deployment)["namespace"])
        return [item for item in found if (owner_of(item.obj) or {}).get("uid") == uid]

    @staticmethod
    def _matching(deployment: Json, sets: list[Stored]) -> Stored | None:
        wanted = at(deployment, "spec", "template")
        matching = [
            item for item in sets if _plain_template(at(item.obj, "spec", "template")) == _plain_template(wanted)
        ]
        return min(matching, key=lambda item: (meta(item.obj)["creationTimestamp"], item.version), default=None)

    def _create(self, deployment: Json, sets: list[Stored]) -> Stored:
        template = clone(at(deployment, "spec", "template"))
        digest = template_hash(template)
        template.setdefault("metadata", {}).setdefault("labels", {})[HASH] = digest
        selector = clone(at(deployment, "spec", "selector"))
        selector.setdefault("matchLabels", {})[HASH] = digest
        revision = max((_revision(item.obj) for item in sets), default=0) + 1
        spec: Json = {"replicas": 0, "selector": selector, "template": template}
        if at(deployment, "spec", "minReadySeconds"):
            spec["minReadySeconds"] = deployment["spec"]["minReadySeconds"]
        body = {
            **self._sets.head(),
            "metadata": {
                "name": f"{meta(deployment)['name']}-{digest}",
                "labels": template["metadata"]["labels"],
                "annotations": {**_copied_annotations(deployment), REVISION: str(revision)},
                "ownerReferences": [owner_reference(deployment)],
            },
            "spec": spec,
        }
        return self._registry.create(self._sets, meta(deployment)["namespace"], body)

    def _resize(self, deployment: Json, current: Stored, old: list[Stored]) -> None:
        self._raise_revision(deployment, current, old)
        recreate = at(deployment, "spec", "strategy", "type") == "Recreate"
        if recreate and self._pods_of(old):
            for item in old:
                self._set_size(deployment, item, 0)
            return
        wanted = at(deployment, "spec", "replicas") or 0
        rolling = at(deployment, "spec", "strategy", "rollingUpdate") or {}
        surge = share(rolling.get("maxSurge", "25%"), wanted, up=True)
        missing = share(rolling.get("maxUnavailable", "25%"), wanted, up=False)
        if surge == 0 and missing == 0:
            missing = 1  # else nothing could ever move
        if recreate:
            surge, missing = 0, wanted
        sizes = next_sizes(wanted, surge, missing, _sizes(current), [_sizes(item) for item in old])
        self._set_size(deployment, current, sizes[0])
        for item, size in zip(old, sizes[1:], strict=True):
            self._set_size(deployment, item, size)

    def _raise_revision(self, deployment: Json, current: Stored, old: list[Stored]) -> None:
        """A rollback reuses an old ReplicaSet: it becomes the newest revision."""
        highest = max((_revision(item.obj) for item in old), default=0)
        revision = str(max(_revision(current.obj), highest + 1))

        def stamp(obj: Json) -> None:
            obj["metadata"].setdefault("annotations", {})[REVISION] = revision

        self._registry.edit(self._sets, current, stamp)
        stored = self._registry.get(self._kind, meta(deployment)["namespace"], meta(deployment)["name"])
        self._registry.edit(self._kind, stored, stamp)

    def _pods_of(self, sets: list[Stored]) -> bool:
        uids = {meta(item.obj)["uid"] for item in sets}
        pods = self._registry.store.list("pods", meta(sets[0].obj)["namespace"]) if sets else []
        return any((owner_of(pod.obj) or {}).get("uid") in uids and not podstate.finished(pod.obj) for pod in pods)

    def _set_size(self, deployment: Json, stored: Stored, size: int) -> None:
        before = at(stored.obj, "spec", "replicas") or 0
        if before == size:
            return

        def change(obj: Json) -> None:
            obj["spec"]["replicas"] = size
            obj["metadata"]["generation"] += 1

        self._registry.edit(self._sets, stored, change)
        way = "up" if size > before else "down"
        message = f"Scaled {way} replica set {meta(stored.obj)['name']} from {before} to {size}"
        self._events.say(deployment, "ScalingReplicaSet", message)

    def _forget_history(self, deployment: Json, old: list[Stored]) -> None:
        limit = at(deployment, "spec", "revisionHistoryLimit")
        idle = [item for item in old if _sizes(item).spec == 0 and (at(item.obj, "status", "replicas") or 0) == 0]
        idle.sort(key=lambda item: _revision(item.obj))
        for item in idle[: max(len(idle) - (10 if limit is None else limit), 0)]:
            self._registry.delete(self._sets, meta(item.obj)["namespace"], meta(item.obj)["name"], DeleteOptions())

    def _write_status(self, stored: Stored, current: Stored | None) -> float | None:
        now = self._registry.clock.now()
        sets = [item.obj for item in self._owned(stored.obj)]
        uid = meta(current.obj)["uid"] if current else ""

        def change(obj: Json) -> None:
            obj["status"] = deployment_status(obj, sets, uid, now)

        written = self._registry.edit(self._kind, stored, change)
        progressing = podstate.condition(written.obj, "Progressing") or {}
        if progressing.get("reason") in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded", None):
            return None
        deadline = at(written.obj, "spec", "progressDeadlineSeconds") or 600
        return max(1.0, (seconds(progressing.get("lastUpdateTime")) or now) + deadline - now + 1)


def _plain_template(template: Any) -> Json:
    """A pod template without the hash label."""
    plain: Json = clone(template or {})
    (plain.get("metadata", {}).get("labels") or {}).pop(HASH, None)
    return plain


def template_hash(template: Json) -> str:
    """Ten characters that stand for a template."""
    digest = hashlib.sha256(encode(_plain_template(template))).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:10])


def _revision(obj: Json) -> int:
    text = (meta(obj).get("annotations") or {}).get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def _copied_annotations(deployment: Json) -> Json:
    skipped = ("kubectl.kubernetes.io/last-applied-configuration", REVISION)
    return {key: value for key, value in (meta(deployment).get("annotations") or {}).items() if key not in skipped}


def _sizes(stored: Stored) -> Sizes:
    return Sizes(at(stored.obj, "spec", "replicas") or 0, at(stored.obj, "status", "availableReplicas") or 0)
