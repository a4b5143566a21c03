"""kube-scheduler's own node checks that one-machine mode needs: name, selector, affinity, cordon."""

from collections.abc import Mapping, Sequence
from typing import Any

from flexinfer.contracts.kubernetes import Object

WRONG_NAME = "node(s) didn't match the requested node name"
WRONG_LABELS = "node(s) didn't match Pod's node affinity/selector"
CORDONED = "node(s) were unschedulable"
_CORDON_TAINT = "node.kubernetes.io/unschedulable"


def misfit(pod: Object, node: Object) -> str | None:
    """Why the node is out before any extender is asked, in kube-scheduler's words; None if it is not."""
    spec = pod.get("spec") or {}
    meta = node.get("metadata") or {}
    name = str(meta.get("name", ""))
    if spec.get("nodeName") and spec["nodeName"] != name:
        return WRONG_NAME
    if (node.get("spec") or {}).get("unschedulable") and not _tolerates_cordon(spec.get("tolerations") or ()):
        return CORDONED
    labels = meta.get("labels") or {}
    selector = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return WRONG_LABELS
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return None
    terms = required.get("nodeSelectorTerms") or ()
    return None if any(_term_matches(term, labels, name) for term in terms) else WRONG_LABELS


def attraction(pod: Object, node: Object) -> int:
    """Sum of the weights of the pod's preferred node affinities that the node meets."""
    meta = node.get("metadata") or {}
    affinity = ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {}
    terms = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return sum(
        int(term.get("weight") or 0)
        for term in terms
        if _term_matches(term.get("preference") or {}, meta.get("labels") or {}, str(meta.get("name", "")))
    )


def _tolerates_cordon(tolerations: Sequence[Mapping[str, Any]]) -> bool:
    for one in tolerations:
        if one.get("effect") not in {None, "", "NoSchedule"}:
            continue
        operator = one.get("operator") or "Equal"
        if not one.get("key") and operator == "Exists":
            return True
        if one.get("key") == _CORDON_TAINT and (operator == "Exists" or not one.get("value")):
            return True
    return False


def _term_matches(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False  # the API: a term without requirements matches nothing
    by_field = {"metadata.name": name}
    return all(_matches(one, labels) for one in expressions) and all(_matches(one, by_field) for one in fields)


def _matches(requirement: Mapping[str, Any], found: Mapping[str, str]) -> bool:
    value = found.get(str(requirement.get("key", "")))
    wanted = [str(one) for one in requirement.get("values") or ()]
    match requirement.get("operator"):
        case "In":
            return value is not None and value in wanted
        case "NotIn":
            return value is None or value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _compare(value, wanted, larger=True)
        case "Lt":
            return _compare(value, wanted, larger=False)
        case _:
            return False


def _compare(value: str | None, wanted: Sequence[str], *, larger: bool) -> bool:
    try:
        left, right = int(value or ""), int(wanted[0])
    except (ValueError, IndexError):
        return False
    return left > right if larger else left < right
