"""Kubernetes resources we touch, and the delta in which their changes reach the reducers."""

from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct

GROUP = "ai.flexinfer"

Object = dict[str, Any]
Action = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True, slots=True)
class Resource:
    """Address of a kind in the API: ``group`` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """URL path of the collection, object or subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
JOBS = Resource("batch", "v1", "jobs", "Job")
TOKENREVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
MODELDEPLOYMENTS = Resource(GROUP, "v1alpha1", "modeldeployments", "ModelDeployment")
MODELS = Resource(GROUP, "v1alpha2", "models", "Model")


class KubeDelta(Struct, frozen=True, kw_only=True, tag="kube"):
    """One change of one object, as the informer saw it. ``object`` is the whole object (the last one if deleted)."""

    plural: str
    action: Action
    object: Object

    @property
    def namespace(self) -> str:
        """Namespace, empty for cluster-scoped objects."""
        return str(self.object.get("metadata", {}).get("namespace", ""))

    @property
    def name(self) -> str:
        """Object name."""
        return str(self.object.get("metadata", {}).get("name", ""))
