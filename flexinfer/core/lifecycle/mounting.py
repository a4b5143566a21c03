"""Pods whose volumes cannot be mounted: only an Event of their kubelet tells, the pod itself waits without a word."""

from flexinfer.contracts.kubernetes import Object
from flexinfer.core.lifecycle.description import Description, ModelKey
from flexinfer.core.lifecycle.objects import containers, name_of, status, uid
from flexinfer.core.lifecycle.view import LifecycleView
from flexinfer.core.lifecycle.volumes import VOLUME

FIELDS = "reason=FailedMount,regarding.kind=Pod"
"""Field selector of these Events."""
MOUNTS_KEPT = 1000


def put_mount(view: LifecycleView, event: Object) -> set[ModelKey]:
    """One Event of a kubelet, kept by the uid of its pod: the last one counts."""
    pod = event.get("regarding") or {}
    name = str(pod.get("uid") or "")
    if not name:
        return set()
    view.mounts.pop(name, None)
    view.mounts[name] = event
    if len(view.mounts) > MOUNTS_KEPT:
        del view.mounts[next(iter(view.mounts))]
    owner = view.by_uid.get(view.pod_owner.get((str(pod.get("namespace") or ""), str(pod.get("name") or "")), ""))
    return {owner} if owner else set()


def remove_mount(view: LifecycleView, event: Object) -> set[ModelKey]:
    """Events go by themselves after a while."""
    name = str((event.get("regarding") or {}).get("uid") or "")
    if name in view.mounts and name_of(view.mounts[name]) == name_of(event):
        del view.mounts[name]
    return set()


def unmounted(view: LifecycleView, wanted: Description, pod: Object) -> tuple[str, str] | None:
    """(reason, sentence with the remedy) for a pod that has a node and waits for its volumes."""
    event = view.mounts.get(uid(pod))
    node = str((pod.get("spec") or {}).get("nodeName") or "")
    if event is None or not node or status(pod).get("phase") not in {None, "Pending"} or _begun(pod):
        return None
    note = " ".join(str(event.get("note") or "").split())
    if wanted.source.scheme == "file" and f'"{VOLUME}"' in note:
        text = f"node {node} does not have the folder of {wanted.source.location}: {note}"
        return "SourceNotFound", f"{text}; put the weights there, or name nodes that have them under nodeSelector"
    text = f"node {node} cannot mount a volume of pod {name_of(pod)[1]}: {note}"
    return "MountFailed", f"{text}; see kubectl describe pod {name_of(pod)[1]}"


def _begun(pod: Object) -> bool:
    return any({"running", "terminated"} & set(entry.get("state") or {}) for _, entry in containers(pod))
