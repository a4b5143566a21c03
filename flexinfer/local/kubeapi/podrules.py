"""Defaults and rules of pods and of the pod templates inside workloads."""

from typing import Any

from flexinfer.local.kubeapi.errors import Cause, not_allowed, required, unsupported
from flexinfer.local.kubeapi.objects import Json, at

_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}


def default_pod_spec(spec: Json) -> None:
    """Fill in, in place, what the real server would."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    host_network = bool(spec.get("hostNetwork"))
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        if isinstance(container, dict):
            _default_container(container, host_network=host_network)
    for volume in spec.get("volumes") or ():
        if isinstance(volume, dict):
            _default_volume(volume)


def default_bare_pod_spec(spec: Json) -> None:
    """What applies to pods but not to templates, in place."""
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("priority", 0)
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(t.get("key") == key and t.get("effect") in (None, "NoExecute") for t in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def _default_container(container: Json, *, host_network: bool) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("resources", {})
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2].partition(":")[2]
    latest = "@" not in image and tag in ("", "latest")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network and "containerPort" in port:
            port.setdefault("hostPort", port["containerPort"])
    limits = at(container, "resources", "limits") or {}
    if limits:
        requests = container["resources"].setdefault("requests", {})
        for name, amount in limits.items():
            requests.setdefault(name, amount)
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(container.get(probe), dict):
            _default_probe(container[probe])
    for variable in container.get("env") or ():
        reference = at(variable, "valueFrom", "fieldRef")
        if isinstance(reference, dict):
            reference.setdefault("apiVersion", "v1")


def _default_probe(probe: Json) -> None:
    for name, value in _PROBE.items():
        probe.setdefault(name, value)
    if isinstance(probe.get("httpGet"), dict):
        probe["httpGet"].setdefault("scheme", "HTTP")
        probe["httpGet"].setdefault("path", "/")


def _default_volume(volume: Json) -> None:
    if volume.keys() <= {"name"}:
        volume["emptyDir"] = {}
    for source, field in (("configMap", "defaultMode"), ("secret", "defaultMode"), ("projected", "defaultMode")):
        if isinstance(volume.get(source), dict):
            volume[source].setdefault(field, 420)
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")


def pod_spec_causes(spec: Any, path: str, policies: tuple[str, ...] = ("Always", "OnFailure", "Never")) -> list[Cause]:
    """What is wrong with a pod spec beyond its schema."""
    if not isinstance(spec, dict):
        return [required(path)]
    found: list[Cause] = []
    if not spec.get("containers"):
        found.append(required(f"{path}.containers"))
    names: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            place = f"{path}.{group}[{index}]"
            if not container.get("image"):
                found.append(required(f"{place}.image"))
            name = container.get("name")
            if name in names:
                found.append(Cause(f"{place}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"'))
            names.add(str(name))
            found += _mount_causes(container, spec, place)
    if spec.get("restartPolicy") not in policies:
        found.append(unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), policies))
    return found


def _mount_causes(container: Json, spec: Json, place: str) -> list[Cause]:
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    return [
        Cause(f"{place}.volumeMounts[{index}].name", "FieldValueNotFound", f'Not found: "{mount.get("name")}"')
        for index, mount in enumerate(container.get("volumeMounts") or ())
        if mount.get("name") not in volumes
    ]


def qos_class(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort, by cpu and memory of all containers."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    pairs = [
        (at(container, "resources", "requests") or {}, at(container, "resources", "limits") or {})
        for container in containers
    ]
    tracked = ("cpu", "memory")
    if not any(name in part for requests, limits in pairs for part in (requests, limits) for name in tracked):
        return "BestEffort"
    if all(limits.get(name) and requests.get(name) == limits[name] for requests, limits in pairs for name in tracked):
        return "Guaranteed"
    return "Burstable"


def pod_change_causes(before: Json, after: Json) -> list[Cause]:
    """Changes of a pod's spec that may not be made: all but images, a deadline, and added tolerations."""
    if _frozen(before) == _frozen(after):
        return []
    why = (
        "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
        "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    )
    return [not_allowed("spec", why)]


def _frozen(spec: Json) -> Json:
    """The part of a pod spec that must stay as it is. A binding sets nodeName through its own door."""
    free = {"activeDeadlineSeconds", "tolerations", "containers", "initContainers", "schedulingGates"}
    rest: Json = {key: value for key, value in spec.items() if key not in free}
    for group in ("containers", "initContainers"):
        rest[group] = [{key: value for key, value in item.items() if key != "image"} for item in spec.get(group) or ()]
    return rest
