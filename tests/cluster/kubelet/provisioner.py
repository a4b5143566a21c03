"""Directories of this machine as PersistentVolumes, made when a claim's first pod has found its node."""

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any

from flexinfer.adapters.kube.informer import Informer
from flexinfer.contracts.kubernetes import Resource
from flexinfer.ports import Conflict, KubeApi, KubeError, KubeFact, NotFound, Relisted
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
NAME = "rig.example/directory"
SELECTED = "volume.kubernetes.io/selected-node"

Json = dict[str, Any]


class Provisioner:
    """``claims``: the folder in which the process runner keeps one directory per claim."""

    def __init__(self, api: KubeApi, claims: Path) -> None:
        self._api = api
        self._claims = claims
        self._queue: asyncio.Queue[tuple[bool, Json]] = asyncio.Queue()
        self._informer = Informer(api, CLAIMS, self._sink)

    async def start(self, tasks: Supervisor) -> None:
        """Raises KubeError, KubeUnavailable."""
        tasks.forever("claims", self._informer.run)
        tasks.forever("provision", self._work)
        mark = {"storageclass.kubernetes.io/is-default-class": "true"}
        body = {"apiVersion": CLASSES.api_version, "kind": "StorageClass", "provisioner": NAME,
                "metadata": {"name": "standard", "annotations": mark}, "reclaimPolicy": "Delete",
                "volumeBindingMode": "WaitForFirstConsumer"}  # fmt: skip
        await self._api.create(CLASSES, body)

    def _sink(self, fact: KubeFact) -> None:
        changed = fact.objects if isinstance(fact, Relisted) else [fact.object]
        gone = not isinstance(fact, Relisted) and fact.action == "DELETED"
        for claim in changed:
            self._queue.put_nowait((gone, claim))

    async def _work(self) -> None:
        while True:
            gone, claim = await self._queue.get()
            spec, meta = claim["spec"], claim["metadata"]
            if spec.get("storageClassName") != "standard":
                continue
            try:
                if gone:
                    await asyncio.to_thread(shutil.rmtree, self._folder(meta), ignore_errors=True)
                    await self._api.delete(VOLUMES, f"pvc-{meta['uid']}")
                elif not spec.get("volumeName") and (node := (meta.get("annotations") or {}).get(SELECTED)):
                    await self._api.create(VOLUMES, self._volume(claim, node))
            except (Conflict, NotFound):
                continue
            except KubeError as err:
                log.warning("claim %s: %s", meta["name"], err)

    def _folder(self, meta: Json) -> Path:
        return self._claims / str(meta["namespace"]) / str(meta["name"])

    def _volume(self, claim: Json, node: str) -> Json:
        spec, meta = claim["spec"], claim["metadata"]
        term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        name = {"name": f"pvc-{meta['uid']}", "annotations": {"pv.kubernetes.io/provisioned-by": NAME}}
        owner = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta["namespace"],
                 "name": meta["name"], "uid": meta["uid"]}  # fmt: skip
        return {
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": name,
            "spec": {
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"], "storageClassName": "standard",
                "persistentVolumeReclaimPolicy": "Delete", "claimRef": owner,
                "local": {"path": str(self._folder(meta))},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            },
        }  # fmt: skip
