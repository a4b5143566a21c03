"""The downward API: what a container may learn about its own pod."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from flexinfer.contracts.crds.fields import quantity_value
from flexinfer.contracts.kubernetes import Object

_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class BadReference(Exception):
    """A reference the pod cannot satisfy; the text is the message of its waiting state."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod and what the runner decided about it. ``allocatable``: the node's resources, as quantities."""

    pod: Object
    ip: str
    host_ip: str
    node: str
    allocatable: Mapping[str, str]


def field_value(path: str, facts: PodFacts) -> str:
    """Value of a ``fieldRef``. Raises BadReference for a path the downward API does not offer."""
    meta, spec = facts.pod.get("metadata") or {}, facts.pod.get("spec") or {}
    known = {
        "metadata.name": meta.get("name"),
        "metadata.namespace": meta.get("namespace"),
        "metadata.uid": meta.get("uid"),
        "spec.nodeName": facts.node,
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
        "status.podIP": facts.ip,
        "status.podIPs": facts.ip,
        "status.hostIP": facts.host_ip,
        "status.hostIPs": facts.host_ip,
    }
    if path in known:
        return str(known[path] or "")
    if path in {"metadata.labels", "metadata.annotations"}:
        pairs = meta.get(path.partition(".")[2]) or {}
        return "\n".join(f'{name}="{_escape(str(value))}"' for name, value in sorted(pairs.items()))
    keyed = _KEYED.fullmatch(path)
    if keyed:
        return str((meta.get(keyed.group(1)) or {}).get(keyed.group(2)) or "")
    raise BadReference(f"field path {path!r} is not offered to containers")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_value(reference: Object, container: Object, facts: PodFacts) -> str:
    """Value of a ``resourceFieldRef`` in units of its divisor, rounded up. Raises BadReference.

    A limit that is not set is the node's allocatable amount, a request that is not set is the limit, as the kubelet
    has it.
    """
    kind, _, name = str(reference.get("resource") or "").partition(".")
    if kind not in {"limits", "requests"} or not name:
        raise BadReference(f"resource {reference.get('resource')!r} is not limits.<name> or requests.<name>")
    owner = _named(reference.get("containerName"), container, facts.pod)
    given = owner.get("resources") or {}
    limit = (given.get("limits") or {}).get(name)
    request = (given.get("requests") or {}).get(name)
    text = (request or limit or "0") if kind == "requests" else (limit or facts.allocatable.get(name) or "0")
    divisor = str(reference.get("divisor") or "1")
    try:
        return str(math.ceil(quantity_value(str(text)) / (quantity_value(divisor) or 1.0)))
    except ValueError as err:
        raise BadReference(f"resource {kind}.{name}: {err}") from err


def _named(name: str | None, container: Object, pod: Object) -> Object:
    if not name:
        return container
    spec = pod.get("spec") or {}
    for candidate in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        if candidate.get("name") == name:
            return dict(candidate)
    raise BadReference(f"there is no container {name!r} to take resources from")
