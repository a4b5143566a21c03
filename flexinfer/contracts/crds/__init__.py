"""Custom resources of the group ``ai.flexinfer``: the pydantic models and the CRDs made from them."""

from typing import Any

from flexinfer.contracts.crds.fields import Wire
from flexinfer.contracts.crds.model import Model
from flexinfer.contracts.crds.modeldeployment import ModelDeployment
from flexinfer.contracts.crds.schema import Schema, structural, without_defaults
from flexinfer.contracts.kubernetes import GROUP, MODELDEPLOYMENTS, MODELS, Resource

__all__ = ["Model", "ModelDeployment", "crd_manifests"]

_COLUMNS = (
    ("Backend", "string", ".spec.backend"),
    ("Phase", "string", ".status.phase"),
    ("Replicas", "integer", ".status.readyReplicas"),
    ("Tokens/s", "string", ".status.tokensPerSecond"),
    ("Age", "date", ".metadata.creationTimestamp"),
)


def crd_manifests() -> list[dict[str, Any]]:
    """The CustomResourceDefinitions, ready to apply."""
    return [
        _crd(MODELDEPLOYMENTS, "mdep", ModelDeployment, ".spec.replicas"),
        # A Model has no spec.replicas: what a person sets by hand is how many run at least.
        _crd(MODELS, "mdl", Model, ".spec.serverless.minReplicas"),
    ]


def _crd(resource: Resource, short: str, cls: type[Wire], replicas: str) -> dict[str, Any]:
    schema: Schema = structural(cls)
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **schema["properties"],
    }
    schema["properties"]["status"] = without_defaults(schema["properties"]["status"])  # observed, never assumed
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": replicas,
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [{"name": n, "type": t, "jsonPath": p} for n, t, p in _COLUMNS],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": [short],
                "categories": ["flexinfer"],
            },
            "versions": [version],
        },
    }
