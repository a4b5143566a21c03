"""Deployment, Service and volume claim of a model."""

import hashlib
import json
from typing import Any

from flexinfer.contracts.kubernetes import DEPLOYMENTS, SERVICES, Object, Resource
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.fold import FINGERPRINT
from flexinfer.core.lifecycle.naming import ENGINE_COMPONENT, child_labels, child_name, owner_reference, selector
from flexinfer.core.lifecycle.pods import EnginePod, Placement, engine_pod, pod_spec, port_of
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.lifecycle.sizing import counted

CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PLACEMENT = "flexinfer.ai/placement"
"""Annotation of the Deployment: the vendor and count its pods were made for, which stay until the spec changes."""
GENERATION = "flexinfer.ai/generation"
"""Annotation of the Deployment: metadata.generation of the model it was made from."""


def deployment(wanted: Description, place: Placement, image: str, replicas: int, policy: Policy) -> Object:
    """The Deployment that serves the model."""
    pod = engine_pod(wanted, place, image, policy)
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": selector(wanted.key)},
        "strategy": _strategy(place),
        "progressDeadlineSeconds": 3600,  # downloads of weights count as progress to nobody but us
        "revisionHistoryLimit": 3,
        "template": _template(wanted, pod, policy),
    }
    body = _child(DEPLOYMENTS, wanted, child_name(wanted.key.name), {"spec": spec})
    # Scaling is no new version of the workload.
    body["metadata"]["annotations"] |= {
        FINGERPRINT: fingerprint({name: part for name, part in spec.items() if name != "replicas"}),
        PLACEMENT: f"{place.vendor}:{place.count}",
        GENERATION: str(wanted.generation),
    } | counted(wanted)
    return body


def _strategy(place: Placement) -> Object:
    """A device is rarely free twice: the old pod makes room first. CPU pods overlap, so nobody waits."""
    surge, gap = (0, 1) if place.count else (1, 0)
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": gap}}


def _template(wanted: Description, pod: EnginePod, policy: Policy) -> Object:
    spec = pod_spec(pod, wanted, policy)
    if pod.prepare:
        spec["initContainers"] = [dict(entry) for entry in pod.prepare]
    spec["containers"] = [pod.container]
    return {"metadata": {"labels": child_labels(wanted), "annotations": pod.annotations}, "spec": spec}


def service(wanted: Description) -> Object:
    """The Service in front of the replicas."""
    spec = {
        "type": wanted.service.type,
        "selector": selector(wanted.key),
        "ports": [
            {"name": "http", "port": wanted.service.port or port_of(wanted), "targetPort": "http", "protocol": "TCP"}
        ],
    }
    body = _child(SERVICES, wanted, child_name(wanted.key.name), {"spec": spec})
    body["metadata"]["annotations"] |= dict(wanted.service.annotations)
    return body


def volume_claim(wanted: Description) -> Object:
    """The claim for downloaded weights, where the manager makes it. It goes with the model."""
    storage = wanted.storage
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": storage.size}},
    }
    if storage.storage_class:
        spec["storageClassName"] = storage.storage_class
    return _child(CLAIMS, wanted, storage.claim, {"spec": spec})


def _child(resource: Resource, wanted: Description, name: str, body: dict[str, Any]) -> Object:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": wanted.key.namespace,
            "labels": child_labels(wanted, ENGINE_COMPONENT),
            "annotations": {FINGERPRINT: fingerprint(body)},
            "ownerReferences": [owner_reference(wanted)],
        },
        **body,
    }


def fingerprint(body: object) -> str:
    """A short digest of what we asked for, so that a restart can tell without writing whether it still holds."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
