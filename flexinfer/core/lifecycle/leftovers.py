"""What an installation that is gone left on nodes and models, and the patches that take it away."""

from flexinfer.contracts.kubernetes import Object
from flexinfer.contracts.labels import FINALIZER, NODE_ANNOTATIONS
from flexinfer.core.hardware.projection import changes, own_labels
from flexinfer.core.lifecycle.objects import annotations, labels, meta


def node_patch(node: Object, prefix: str) -> Object | None:
    """The merge patch without the agents' keys, None if there are none.

    ``cost`` and ``enabled`` are people's, too, and stay.
    """
    found = {
        "labels": changes(labels(node), {}, own_labels(labels(node), prefix), prefix),
        "annotations": changes(annotations(node), {}, NODE_ANNOTATIONS, prefix),
    }
    written = {name: keys for name, keys in found.items() if keys}
    return {"metadata": written} if written else None


def model_patch(obj: Object) -> Object | None:
    """The merge patch without the manager's finalizer, None where it is not; it fails if the object changed meanwhile.

    Nobody is left to answer for that finalizer, so a deletion would wait for ever. Children go with their owner.
    """
    found = meta(obj)
    present = found.get("finalizers") or []
    if FINALIZER not in present:
        return None
    rest = [name for name in present if name != FINALIZER]
    return {"metadata": {"finalizers": rest, "resourceVersion": found.get("resourceVersion")}}
