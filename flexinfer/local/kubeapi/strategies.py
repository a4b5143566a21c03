"""What single kinds need beyond the generic behaviour: defaults at creation, rules for changes."""

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass

from flexinfer.local.kubeapi import crds, podrules
from flexinfer.local.kubeapi.errors import Cause, required, wrong
from flexinfer.local.kubeapi.objects import Json, at
from flexinfer.local.kubeapi.selectors import selector_tests

Prepare = Callable[[Json], None]
Check = Callable[[Json], list[Cause]]
Compare = Callable[[Json, Json], list[Cause]]


@dataclass(frozen=True, slots=True)
class Strategy:
    """``default`` runs on every write, ``create`` once; ``check`` and ``compare`` find what is wrong."""

    default: Prepare | None = None
    create: Prepare | None = None
    check: Check | None = None
    compare: Compare | None = None
    keeps_status: bool = False  # status sent with a create is kept


def _template(obj: Json) -> Json | None:
    spec = at(obj, "spec", "template", "spec")
    return spec if isinstance(spec, dict) else None


def _default_template(obj: Json) -> None:
    spec = _template(obj)
    if spec is not None:
        podrules.default_pod_spec(spec)


def _default_pod(obj: Json) -> None:
    spec = obj.get("spec")
    if isinstance(spec, dict):
        podrules.default_pod_spec(spec)
        podrules.default_bare_pod_spec(spec)


def _create_pod(obj: Json) -> None:
    obj["status"] = {"phase": "Pending", "qosClass": podrules.qos_class(obj.get("spec") or {})}


def _check_pod(obj: Json) -> list[Cause]:
    return podrules.pod_spec_causes(obj.get("spec"), "spec")


def _compare_pod(before: Json, after: Json) -> list[Cause]:
    return podrules.pod_change_causes(before.get("spec") or {}, after.get("spec") or {})


def _default_deployment(obj: Json) -> None:
    _default_template(obj)
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", "25%")
        rolling.setdefault("maxUnavailable", "25%")


def _default_replicas(obj: Json) -> None:
    _default_template(obj)
    obj.setdefault("spec", {}).setdefault("replicas", 1)


def _default_stateful_set(obj: Json) -> None:
    _default_replicas(obj)
    spec = obj["spec"]
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})


def _default_daemon_set(obj: Json) -> None:
    _default_template(obj)
    spec = obj.setdefault("spec", {})
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    spec.setdefault("updateStrategy", strategy)


_PERCENT_RULE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for"
    " validation is '[0-9]+%')"
)


def _check_workload(obj: Json) -> list[Cause]:
    spec = obj.get("spec") or {}
    found = podrules.pod_spec_causes(at(spec, "template", "spec"), "spec.template.spec", ("Always",))
    selector = spec.get("selector")
    if not selector:
        return [required("spec.selector"), *found]
    labels = at(spec, "template", "metadata", "labels") or {}
    if not selector_tests(selector)(labels):
        found.append(wrong("spec.template.metadata.labels", labels, "`selector` does not match template `labels`"))
    found += [
        wrong(f"spec.strategy.rollingUpdate.{name}", value, _PERCENT_RULE)
        for name, value in (at(spec, "strategy", "rollingUpdate") or {}).items()
        if isinstance(value, str) and not re.fullmatch(r"\d+%", value)
    ]
    if isinstance(spec.get("replicas"), int) and spec["replicas"] < 0:
        found.append(wrong("spec.replicas", spec["replicas"], "must be greater than or equal to 0"))
    return found


def _immutable(*paths: str) -> Compare:
    def compare(before: Json, after: Json) -> list[Cause]:
        return [
            wrong(path, at(after, *path.split(".")), "field is immutable")
            for path in paths
            if at(before, *path.split(".")) != at(after, *path.split("."))
        ]

    return compare


def _default_job(obj: Json) -> None:
    _default_template(obj)
    spec = obj.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")


def _create_job(obj: Json) -> None:
    """Labels and selector by uid, unless the user chose a selector."""
    spec = obj["spec"]
    if spec.get("manualSelector") or "template" not in spec:
        return
    uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
    labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    labels |= {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def _check_job(obj: Json) -> list[Cause]:
    spec = at(obj, "spec", "template", "spec")
    return podrules.pod_spec_causes(spec, "spec.template.spec", ("OnFailure", "Never"))


def _default_service(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    kind = spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if "port" in port:
            port.setdefault("targetPort", port["port"])


def _check_service(obj: Json) -> list[Cause]:
    spec = obj["spec"]
    headless = spec.get("clusterIP") == "None"
    if not spec.get("ports") and not headless and spec["type"] != "ExternalName":
        return [required("spec.ports")]
    return []


def _default_namespace(obj: Json) -> None:
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"]["name"]


def _create_namespace(obj: Json) -> None:
    obj["spec"] = {"finalizers": ["kubernetes"]}
    obj["status"] = {"phase": "Active"}


def _create_claim(obj: Json) -> None:
    obj["status"] = {"phase": "Pending"}


def _default_secret(obj: Json) -> None:
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None)
    if isinstance(plain, dict):
        data = obj.setdefault("data", {})
        for key, value in plain.items():
            data[key] = base64.b64encode(str(value).encode()).decode()


def _immutable_data(before: Json, after: Json) -> list[Cause]:
    if not before.get("immutable"):
        return []
    return [
        Cause(field, "FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set")
        for field in ("data", "binaryData", "immutable")
        if before.get(field) != after.get(field)
    ]


def _default_event(obj: Json) -> None:
    obj.setdefault("source", {})
    if not obj.get("metadata", {}).get("namespace"):
        obj.setdefault("metadata", {})["namespace"] = at(obj, "involvedObject", "namespace") or "default"


_NOTHING = Strategy()
_TABLE: dict[str, Strategy] = {
    "pods": Strategy(_default_pod, _create_pod, _check_pod, _compare_pod),
    "nodes": Strategy(keeps_status=True),
    "deployments.apps": Strategy(_default_deployment, None, _check_workload, _immutable("spec.selector")),
    "replicasets.apps": Strategy(_default_replicas, None, _check_workload, _immutable("spec.selector")),
    "daemonsets.apps": Strategy(_default_daemon_set, None, _check_workload, _immutable("spec.selector")),
    "statefulsets.apps": Strategy(_default_stateful_set, None, _check_workload, _immutable("spec.selector")),
    "jobs.batch": Strategy(
        _default_job, _create_job, _check_job, _immutable("spec.selector", "spec.template", "spec.completions")
    ),
    "services": Strategy(_default_service, None, _check_service),
    "namespaces": Strategy(_default_namespace, _create_namespace),
    "persistentvolumeclaims": Strategy(None, _create_claim),
    "secrets": Strategy(_default_secret, None, None, _immutable_data),
    "configmaps": Strategy(None, None, None, _immutable_data),
    "events": Strategy(_default_event),
    crds.BUCKET: Strategy(crds.default_crd, crds.create_crd, crds.check_crd),
}


def strategy_of(bucket: str) -> Strategy:
    """The strategy of a kind."""
    return _TABLE.get(bucket, _NOTHING)
