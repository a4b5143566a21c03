"""How weights get into a pod: volumes, mounts, and the path the engine is given."""

from dataclasses import dataclass
from posixpath import basename, dirname

from flexinfer.contracts.kubernetes import Object
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.policy import Policy

VOLUME = "models"


@dataclass(frozen=True, slots=True)
class Weights:
    """``model_path`` is empty where the engine downloads below ``cache_path`` itself."""

    model_path: str
    cache_path: str
    volumes: tuple[Object, ...] = ()
    mounts: tuple[Object, ...] = ()


def weights(wanted: Description, policy: Policy) -> Weights:
    """Where the weights of a model lie in its pods."""
    root = policy.model_path
    source = wanted.source
    if policy.node_local:
        path = source.location if source.scheme == "file" else ""
        return Weights(path, root)
    match source.scheme:
        case "file":
            folder = dirname(source.location)
            volume = {"name": VOLUME, "hostPath": {"path": folder, "type": "Directory"}}
            return Weights(f"{root}/{basename(source.location)}", root, (volume,), (_mount(root, read_only=True),))
        case "pvc":
            volume = {"name": VOLUME, "persistentVolumeClaim": {"claimName": source.location}}
            path = f"{root}/{source.path}" if source.path else root
            return Weights(path, root, (volume,), (_mount(root),))
        case "oci":
            volume = {"name": VOLUME, "image": {"reference": source.location}}
            path = f"{root}/{source.path}" if source.path else root
            return Weights(path, root, (volume,), (_mount(root, read_only=True),))
        case "hf" | "ollama":
            return Weights("", root, (_cache(wanted),), (_mount(root),))


def _mount(path: str, *, read_only: bool = False) -> Object:
    return {"name": VOLUME, "mountPath": path, **({"readOnly": True} if read_only else {})}


def _cache(wanted: Description) -> Object:
    storage = wanted.storage
    if storage.kind == "claim":
        return {"name": VOLUME, "persistentVolumeClaim": {"claimName": storage.claim}}
    if storage.kind == "memory":
        return {"name": VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": storage.size}}
    return {"name": VOLUME, "emptyDir": {}}
