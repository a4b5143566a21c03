"""Names, labels and owner references of what belongs to a model."""

import hashlib
import re

from flexinfer.contracts.kubernetes import MODELDEPLOYMENTS, MODELS, Object
from flexinfer.core.hardware.device_class import slug
from flexinfer.core.lifecycle.description import Description, ModelKey
from flexinfer.core.lifecycle.view import OWNER_UID

MANAGED_BY = "flexinfer-manager"
ENGINE_COMPONENT = "engine"
BENCH_COMPONENT = "benchmark"
RESOURCES = {MODELS.kind: MODELS, MODELDEPLOYMENTS.kind: MODELDEPLOYMENTS}


def child_name(name: str) -> str:
    """The object's name where a Service may have it (RFC 1035, 63 characters), else a shortened one with a hash.

    >>> child_name("llama3"), child_name("qwen2.5-7b")
    ('llama3', 'qwen2-5-7b-7e3b4b')
    """
    if re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    stem = slug(name, 50)
    return f"{stem if stem[:1].isalpha() else f'm-{stem}'}-{digest}"


def selector(key: ModelKey) -> dict[str, str]:
    """Labels that pick the engine pods of a model; they must never change, as a Deployment's selector cannot."""
    return {"app.kubernetes.io/instance": child_name(key.name), "app.kubernetes.io/component": ENGINE_COMPONENT}


def selector_text(key: ModelKey) -> str:
    """The same as a label selector string, for the scale subresource."""
    return ",".join(f"{name}={value}" for name, value in sorted(selector(key).items()))


def child_labels(wanted: Description, component: str = ENGINE_COMPONENT) -> dict[str, str]:
    """Labels of every child."""
    return {
        "app.kubernetes.io/name": wanted.backend,
        "app.kubernetes.io/instance": child_name(wanted.key.name),
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/part-of": "flexinfer",
        "app.kubernetes.io/managed-by": MANAGED_BY,
        OWNER_UID: wanted.uid,
    }


def owner_reference(wanted: Description) -> Object:
    """The model as the controlling owner."""
    resource = RESOURCES[wanted.key.kind]
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": wanted.key.name,
        "uid": wanted.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def job_name(bench_key: str) -> str:
    """Name of the Job, and of the hidden alias, of a benchmark key; pods add six characters and stay under 63."""
    return f"bench-{bench_key}"
