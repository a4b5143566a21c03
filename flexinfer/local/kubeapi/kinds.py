"""The table of resource types: what a kind is called and which of the generic behaviours it has."""

from dataclasses import dataclass, field
from typing import Any

from flexinfer.local.kubeapi.objects import Json

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column; ``path`` is a JSONPath below the object, ``priority`` over 0 shows with ``-o wide``."""

    name: str
    type: str
    path: str
    description: str = ""
    priority: int = 0
    format: str = ""


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where ``/scale`` finds its numbers, as dotted paths."""

    spec: str = "spec.replicas"
    status: str = "status.replicas"
    selector: str = "spec.selector"


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource type at one version. Versions of the same group and plural share a bucket of the store."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False  # /status exists and is written apart from the rest
    scale: ScalePaths | None = None
    subresources: tuple[str, ...] = ()  # those with code of their own
    generation: bool = False
    unconditional_update: bool = True
    storage_version: str = ""
    custom: bool = False
    columns: tuple[Column, ...] = ()
    selectable: tuple[str, ...] = ()  # field selectors beyond metadata.name and metadata.namespace
    list_kind: str = ""
    schema: Any = field(default=None, compare=False, hash=False)  # schema.Schema of this version

    @property
    def api_version(self) -> str:
        """``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def bucket(self) -> str:
        """Key of its storage."""
        if self.group == "events.k8s.io":
            return "events"
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def resource(self) -> str:
        """``pods``, ``deployments.apps``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def list_name(self) -> str:
        """Kind of a collection."""
        return self.list_kind or f"{self.kind}List"

    def head(self) -> Json:
        """``apiVersion`` and ``kind``."""
        return {"apiVersion": self.api_version, "kind": self.kind}


def _kind(group: str, plural: str, kind: str, **options: Any) -> Kind:
    options.setdefault("singular", kind.lower())
    return Kind(group=group, version="v1", plural=plural, kind=kind, storage_version="v1", **options)


_SCALE = ScalePaths()
_EVENT_FIELDS = (
    "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
    "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
    "reason", "reportingComponent", "source", "type",
)  # fmt: skip
_POD_FIELDS = (
    "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
    "status.phase", "status.podIP", "status.nominatedNodeName",
)  # fmt: skip
_WORKLOAD: dict[str, Any] = {"categories": ("all",), "status": True, "generation": True}

BUILTINS: tuple[Kind, ...] = (
    _kind("", "configmaps", "ConfigMap", short=("cm",)),
    _kind("", "endpoints", "Endpoints", singular="endpoints", short=("ep",), list_kind="EndpointsList"),
    _kind("", "events", "Event", short=("ev",), selectable=_EVENT_FIELDS),
    _kind(
        "", "namespaces", "Namespace", namespaced=False, short=("ns",), status=True,
        subresources=("finalize",), selectable=("status.phase",),
    ),
    _kind("", "nodes", "Node", namespaced=False, short=("no",), status=True, selectable=("spec.unschedulable",)),
    _kind("", "persistentvolumeclaims", "PersistentVolumeClaim", short=("pvc",), status=True),
    _kind("", "persistentvolumes", "PersistentVolume", namespaced=False, short=("pv",), status=True),
    _kind(
        "", "pods", "Pod", short=("po",), categories=("all",), status=True, generation=True,
        subresources=("binding", "eviction", "log"), selectable=_POD_FIELDS,
    ),
    _kind("", "secrets", "Secret", selectable=("type",)),
    _kind("", "serviceaccounts", "ServiceAccount", short=("sa",), subresources=("token",)),
    _kind(
        "", "services", "Service", short=("svc",), categories=("all",), status=True,
        selectable=("spec.clusterIP", "spec.type"),
    ),
    _kind("apps", "daemonsets", "DaemonSet", short=("ds",), **_WORKLOAD),
    _kind("apps", "deployments", "Deployment", short=("deploy",), scale=_SCALE, **_WORKLOAD),
    _kind(
        "apps", "replicasets", "ReplicaSet", short=("rs",), scale=_SCALE, selectable=("status.replicas",), **_WORKLOAD,
    ),
    _kind("apps", "statefulsets", "StatefulSet", short=("sts",), scale=_SCALE, **_WORKLOAD),
    _kind("batch", "jobs", "Job", selectable=("status.successful",), **_WORKLOAD),
    _kind("coordination.k8s.io", "leases", "Lease", unconditional_update=False),
    _kind(
        "events.k8s.io", "events", "Event", short=("ev",),
        selectable=(*(name.replace("involvedObject", "regarding") for name in _EVENT_FIELDS), "reportingController"),
    ),
    _kind(
        "apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False,
        short=("crd", "crds"), categories=("api-extensions",), status=True, generation=True, unconditional_update=False,
    ),
    _kind("discovery.k8s.io", "endpointslices", "EndpointSlice", generation=True),
    _kind("networking.k8s.io", "networkpolicies", "NetworkPolicy", short=("netpol",), generation=True),
    _kind(
        "policy", "poddisruptionbudgets", "PodDisruptionBudget", short=("pdb",), status=True, generation=True,
    ),
    _kind("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    _kind("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", namespaced=False),
    _kind("rbac.authorization.k8s.io", "rolebindings", "RoleBinding"),
    _kind("rbac.authorization.k8s.io", "roles", "Role"),
    _kind("scheduling.k8s.io", "priorityclasses", "PriorityClass", namespaced=False, short=("pc",)),
    _kind("storage.k8s.io", "storageclasses", "StorageClass", namespaced=False, short=("sc",)),
)  # fmt: skip
