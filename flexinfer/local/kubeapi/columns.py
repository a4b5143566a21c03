"""What the columns of built-in kinds show, as the printers of the real server do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flexinfer.local.kubeapi.kinds import Column
from flexinfer.local.kubeapi.objects import Json, at, encode, meta, seconds
from flexinfer.local.kubeapi.selectors import selector_text

Cells = Callable[[Json, float], list[Any]]


@dataclass(frozen=True, slots=True)
class Printer:
    """Columns and the cells for them."""

    columns: Sequence[Column]
    cells: Cells
    named: bool = True  # the name comes first; Events show theirs last, with -o wide


def age(elapsed: float) -> str:
    """A duration as kubectl shows ages: 5s, 3m20s, 2h5m, 4d3h, 30d, 2y10d."""
    whole = int(max(elapsed, 0))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    return f"{days // 365}y{days % 365}d" if days % 365 else f"{days // 365}y"


def text(value: Any) -> str:
    """Any value in one cell."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else encode(value).decode()


def since(stamp: str | None, now: float) -> str:
    """Age of a timestamp."""
    moment = seconds(stamp)
    return "<unknown>" if moment is None else age(now - moment)


def _age(obj: Json, now: float) -> str:
    return since(meta(obj).get("creationTimestamp"), now)


def _count(obj: Json, *path: str) -> int:
    return int(at(obj, *path) or 0)


def pod_status(pod: Json) -> tuple[str, int, int, int]:
    """(STATUS, ready containers, containers, restarts) of a pod."""
    statuses = at(pod, "status", "containerStatuses") or []
    reason = at(pod, "status", "reason") or at(pod, "status", "phase") or "Unknown"
    restarts = sum(int(status.get("restartCount") or 0) for status in statuses)
    waiting_init = _init_reason(pod)
    if waiting_init:
        reason = waiting_init
    else:
        for status in reversed(statuses):
            reason = _container_reason(status) or reason
        if reason == "Completed" and any(at(status, "state", "running") is not None for status in statuses):
            reason = "Running" if all(status.get("ready") for status in statuses) else "NotReady"
    if meta(pod).get("deletionTimestamp"):
        reason = "Unknown" if at(pod, "status", "reason") == "NodeLost" else "Terminating"
    ready = sum(bool(status.get("ready")) and at(status, "state", "running") is not None for status in statuses)
    total = len(at(pod, "spec", "containers") or ())
    sidecars = {c["name"] for c in at(pod, "spec", "initContainers") or () if c.get("restartPolicy") == "Always"}
    for status in at(pod, "status", "initContainerStatuses") or ():
        if status.get("name") in sidecars:
            ready += bool(status.get("ready")) and at(status, "state", "running") is not None
            restarts += int(status.get("restartCount") or 0)
    return reason, ready, total + len(sidecars), restarts


def _container_reason(status: Json) -> str:
    waiting, terminated = at(status, "state", "waiting"), at(status, "state", "terminated")
    if waiting and waiting.get("reason"):
        return str(waiting["reason"])
    if terminated:
        if terminated.get("reason"):
            return str(terminated["reason"])
        if terminated.get("signal"):
            return f"Signal:{terminated['signal']}"
        return f"ExitCode:{terminated.get('exitCode', 0)}"
    return ""


def _init_reason(pod: Json) -> str:
    statuses = at(pod, "status", "initContainerStatuses") or []
    sidecars = {c["name"] for c in at(pod, "spec", "initContainers") or () if c.get("restartPolicy") == "Always"}
    total = len(at(pod, "spec", "initContainers") or ())
    for index, status in enumerate(statuses):
        terminated = at(status, "state", "terminated")
        if terminated and terminated.get("exitCode") == 0:
            continue
        if status.get("name") in sidecars and status.get("started"):
            continue
        reason = _container_reason(status)
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{index}/{total}"
    return ""


def _pod(pod: Json, now: float) -> list[Any]:
    reason, ready, total, restarts = pod_status(pod)
    gates = at(pod, "spec", "readinessGates") or ()
    conditions = {c["type"]: c.get("status") for c in at(pod, "status", "conditions") or ()}
    passed = sum(conditions.get(gate.get("conditionType")) == "True" for gate in gates)
    return [
        f"{ready}/{total}", reason, str(restarts), _age(pod, now), at(pod, "status", "podIP") or "<none>",
        at(pod, "spec", "nodeName") or "<none>", at(pod, "status", "nominatedNodeName") or "<none>",
        f"{passed}/{len(gates)}" if gates else "<none>",
    ]  # fmt: skip


def _templates(obj: Json) -> tuple[str, str]:
    containers = at(obj, "spec", "template", "spec", "containers") or ()
    names = ",".join(container["name"] for container in containers)
    return names, ",".join(container.get("image", "") for container in containers)


def _selector(obj: Json) -> str:
    return selector_text(at(obj, "spec", "selector")) or "<none>"


def _deployment(obj: Json, now: float) -> list[Any]:
    names, images = _templates(obj)
    wanted = _count(obj, "spec", "replicas")
    return [
        f"{_count(obj, 'status', 'readyReplicas')}/{wanted}", _count(obj, "status", "updatedReplicas"),
        _count(obj, "status", "availableReplicas"), _age(obj, now), names, images, _selector(obj),
    ]  # fmt: skip


def _replica_set(obj: Json, now: float) -> list[Any]:
    names, images = _templates(obj)
    return [
        _count(obj, "spec", "replicas"), _count(obj, "status", "replicas"), _count(obj, "status", "readyReplicas"),
        _age(obj, now), names, images, _selector(obj),
    ]  # fmt: skip


def _stateful_set(obj: Json, now: float) -> list[Any]:
    names, images = _templates(obj)
    wanted = _count(obj, "spec", "replicas")
    return [f"{_count(obj, 'status', 'readyReplicas')}/{wanted}", _age(obj, now), names, images]


def _daemon_set(obj: Json, now: float) -> list[Any]:
    names, images = _templates(obj)
    counters = (
        "desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable",
    )  # fmt: skip
    nodes = selector_text({"matchLabels": at(obj, "spec", "template", "spec", "nodeSelector") or {}}) or "<none>"
    return [*(_count(obj, "status", name) for name in counters), nodes, _age(obj, now), names, images, _selector(obj)]


def _job(obj: Json, now: float) -> list[Any]:
    conditions = {c["type"]: c for c in at(obj, "status", "conditions") or () if c.get("status") == "True"}
    state = next((name for name in ("Complete", "Failed", "Suspended") if name in conditions), "Running")
    if "FailureTarget" in conditions and state == "Running":
        state = "FailureTarget"
    completions = at(obj, "spec", "completions")
    done = _count(obj, "status", "succeeded")
    of = completions if completions is not None else f"1 of {_count(obj, 'spec', 'parallelism')}"
    began = seconds(at(obj, "status", "startTime"))
    ended = seconds(at(obj, "status", "completionTime"))
    duration = "" if began is None else age((ended if ended is not None else now) - began)
    names, images = _templates(obj)
    return [state, f"{done}/{of}", duration, _age(obj, now), names, images, _selector(obj)]


def _node(obj: Json, now: float) -> list[Any]:
    conditions = {c["type"]: c.get("status") for c in at(obj, "status", "conditions") or ()}
    status = {"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready", ""), "Unknown")
    if at(obj, "spec", "unschedulable"):
        status += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in meta(obj).get("labels") or {} if key.startswith(prefix))
    info = at(obj, "status", "nodeInfo") or {}
    addresses = {a["type"]: a["address"] for a in at(obj, "status", "addresses") or ()}
    return [
        status, ",".join(roles) or "<none>", _age(obj, now), info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"), addresses.get("ExternalIP", "<none>"),
        info.get("osImage") or "<unknown>", info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]  # fmt: skip


def _service(obj: Json, now: float) -> list[Any]:
    kind = at(obj, "spec", "type") or "ClusterIP"
    external = ",".join(at(obj, "spec", "externalIPs") or ()) or ("<pending>" if kind == "LoadBalancer" else "<none>")
    if kind == "ExternalName":
        external = at(obj, "spec", "externalName") or "<none>"
    ports = [
        f"{port['port']}:{port['nodePort']}/{port['protocol']}"
        if port.get("nodePort")
        else f"{port['port']}/{port.get('protocol', 'TCP')}"
        for port in at(obj, "spec", "ports") or ()
    ]
    selector = selector_text({"matchLabels": at(obj, "spec", "selector") or {}})
    address = at(obj, "spec", "clusterIP") or "<none>"
    return [kind, address, external, ",".join(ports) or "<none>", _age(obj, now), selector or "<none>"]


def _event(obj: Json, now: float) -> list[Any]:
    involved = obj.get("involvedObject") or obj.get("regarding") or {}
    message = obj.get("message") or obj.get("note") or ""
    series = obj.get("series") or {}
    last = obj.get("lastTimestamp") or series.get("lastObservedTime") or obj.get("eventTime")
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    source = obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    count = obj.get("count") or series.get("count") or 1
    target = f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"
    first_age = since(first, now) if first else _age(obj, now)
    last_age = since(last, now) if last else _age(obj, now)
    where = f"{component}, {source['host']}" if source.get("host") else component
    return [
        last_age, obj.get("type", ""), obj.get("reason", ""), target, involved.get("fieldPath", ""), where,
        str(message).strip(), first_age, count, meta(obj)["name"],
    ]  # fmt: skip


def _config_map(obj: Json, now: float) -> list[Any]:
    return [len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), _age(obj, now)]


def _secret(obj: Json, now: float) -> list[Any]:
    return [obj.get("type", ""), len(obj.get("data") or {}), _age(obj, now)]


def _namespace(obj: Json, now: float) -> list[Any]:
    return [at(obj, "status", "phase") or "", _age(obj, now)]


def _lease(obj: Json, now: float) -> list[Any]:
    return [at(obj, "spec", "holderIdentity") or "", _age(obj, now)]


def _crd(obj: Json, _now: float) -> list[Any]:
    return [meta(obj).get("creationTimestamp", "")]


def _slice(obj: Json, now: float) -> list[Any]:
    ports = ",".join(str(port.get("port", "*")) for port in obj.get("ports") or ()) or "<unset>"
    addresses = [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    shown = ",".join(addresses[:3]) + (f" + {len(addresses) - 3} more..." if len(addresses) > 3 else "")
    return [obj.get("addressType", ""), ports, shown or "<unset>", _age(obj, now)]


def _account(obj: Json, now: float) -> list[Any]:
    return [len(obj.get("secrets") or ()), _age(obj, now)]


def _claim(obj: Json, now: float) -> list[Any]:
    modes = ",".join(_MODES.get(mode, mode) for mode in at(obj, "status", "accessModes") or ())
    capacity = at(obj, "status", "capacity", "storage") or ""
    spec = obj.get("spec") or {}
    name = spec.get("storageClassName", "")
    return [at(obj, "status", "phase") or "", spec.get("volumeName", ""), capacity, modes, name, _age(obj, now)]


def _budget(obj: Json, now: float) -> list[Any]:
    def limit(name: str) -> str:
        value = at(obj, "spec", name)
        return "N/A" if value is None else str(value)

    return [limit("minAvailable"), limit("maxUnavailable"), _count(obj, "status", "disruptionsAllowed"), _age(obj, now)]


def _priority(obj: Json, now: float) -> list[Any]:
    return [obj.get("value", 0), bool(obj.get("globalDefault")), _age(obj, now), obj.get("preemptionPolicy", "")]


_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _columns(*names: str, wide: Sequence[str] = ()) -> tuple[Column, ...]:
    """Column definitions from names; ``~`` marks those of ``-o wide``, then ``#`` integers."""
    made = []
    for name in (*names, *(f"~{name}" for name in wide)):
        plain = name.lstrip("~#")
        kind = "integer" if "#" in name else "string"
        made.append(Column(plain, kind, "", plain, 1 if name.startswith("~") else 0))
    return tuple(made)


_TEMPLATE = ("Containers", "Images", "Selector")

PRINTERS: dict[str, Printer] = {
    "pods": Printer(
        _columns(
            "Ready", "Status", "Restarts", "Age", wide=("IP", "Node", "Nominated Node", "Readiness Gates")
        ), _pod,
    ),
    "deployments.apps": Printer(_columns("Ready", "#Up-to-date", "#Available", "Age", wide=_TEMPLATE), _deployment),
    "replicasets.apps": Printer(_columns("#Desired", "#Current", "#Ready", "Age", wide=_TEMPLATE), _replica_set),
    "statefulsets.apps": Printer(_columns("Ready", "Age", wide=("Containers", "Images")), _stateful_set),
    "daemonsets.apps": Printer(
        _columns(
            "#Desired", "#Current", "#Ready", "#Up-to-date", "#Available", "Node Selector", "Age", wide=_TEMPLATE
        ), _daemon_set,
    ),
    "jobs.batch": Printer(_columns("Status", "Completions", "Duration", "Age", wide=_TEMPLATE), _job),
    "nodes": Printer(
        _columns(
            "Status", "Roles", "Age", "Version",
            wide=("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
        ), _node,
    ),
    "services": Printer(
        _columns("Type", "Cluster-IP", "External-IP", "Port(s)", "Age", wide=("Selector",)), _service
    ),
    "configmaps": Printer(_columns("#Data", "Age"), _config_map),
    "secrets": Printer(_columns("Type", "#Data", "Age"), _secret),
    "namespaces": Printer(_columns("Status", "Age"), _namespace),
    "leases.coordination.k8s.io": Printer(_columns("Holder", "Age"), _lease),
    "customresourcedefinitions.apiextensions.k8s.io": Printer(_columns("Created At"), _crd),
    "endpointslices.discovery.k8s.io": Printer(_columns("AddressType", "Ports", "Endpoints", "Age"), _slice),
    "serviceaccounts": Printer(_columns("#Secrets", "Age"), _account),
    "persistentvolumeclaims": Printer(
        _columns("Status", "Volume", "Capacity", "Access Modes", "StorageClass", "Age"), _claim
    ),
    "events": Printer(
        _columns(
            "Last Seen", "Type", "Reason", "Object", "~Subobject", "~Source", "Message", "~First Seen", "~#Count",
            "~Name",
        ), _event, named=False,
    ),
    "poddisruptionbudgets.policy": Printer(
        _columns("Min Available", "Max Unavailable", "#Allowed Disruptions", "Age"), _budget
    ),
    "priorityclasses.scheduling.k8s.io": Printer(
        _columns("#Value", "Global-Default", "Age", "PreemptionPolicy"), _priority
    ),
}  # fmt: skip
