"""How weights get into a pod: volumes, mounts, and the path the engine is given."""

from dataclasses import dataclass
from posixpath import basename, dirname

from flexinfer.contracts.kubernetes import Object
from flexinfer.core.lifecycle.description import Description
from flexinfer.core.lifecycle.engines import ENGINES
from flexinfer.core.lifecycle.fetching.entries import FETCHED, entry_of
from flexinfer.core.lifecycle.policy import Policy

VOLUME = "models"
SCRATCH = "/tmp/flexinfer"  # noqa: S108 - in a container; engines may write there what they like


@dataclass(frozen=True, slots=True)
class Weights:
    """``model_path`` is empty where the engine downloads below ``cache_path`` itself."""

    model_path: str
    cache_path: str
    fetched: bool = False  # model_path is where an init step puts them; engines only read
    volumes: tuple[Object, ...] = ()
    mounts: tuple[Object, ...] = ()


def weights(wanted: Description, policy: Policy) -> Weights:
    """Where the weights of a model lie in its pods."""
    root = policy.model_path
    source = wanted.source
    if fetches(wanted, policy):
        return _fetched(wanted, policy)
    if policy.node_local:
        path = source.location if source.scheme == "file" else ""
        return Weights(path, root)
    match source.scheme:
        case "file":
            folder = dirname(source.location)
            volume = {"name": VOLUME, "hostPath": {"path": folder, "type": "Directory"}}
            return Weights(
                f"{root}/{basename(source.location)}", root, volumes=(volume,), mounts=(_mount(root, read_only=True),)
            )
        case "pvc":
            volume = {"name": VOLUME, "persistentVolumeClaim": {"claimName": source.location}}
            path = f"{root}/{source.path}" if source.path else root
            return Weights(path, root, volumes=(volume,), mounts=(_mount(root),))
        case "oci":
            volume = {"name": VOLUME, "image": {"reference": source.location}}
            path = f"{root}/{source.path}" if source.path else root
            return Weights(path, root, volumes=(volume,), mounts=(_mount(root, read_only=True),))
        case "hf" | "ollama":
            return Weights("", root, volumes=(_cache(wanted),), mounts=(_mount(root),))


def fetches(wanted: Description, policy: Policy) -> bool:
    """Whether an init step copies the weights, instead of the engine or the kubelet."""
    return bool(policy.fetch_image) and wanted.source.scheme in FETCHED


def _fetched(wanted: Description, policy: Policy) -> Weights:
    root = policy.model_path
    path = f"{root}/{entry_of(wanted.source, ENGINES[wanted.backend].form).path}"
    if policy.node_local:
        return Weights(path, SCRATCH, fetched=True)
    if wanted.storage.kind == "none" and policy.node_cache:
        volume: Object = {"name": VOLUME, "hostPath": {"path": policy.node_cache, "type": "DirectoryOrCreate"}}
    else:
        volume = _cache(wanted)
    return Weights(path, SCRATCH, fetched=True, volumes=(volume,), mounts=(_mount(root, read_only=True),))


def _mount(path: str, *, read_only: bool = False) -> Object:
    return {"name": VOLUME, "mountPath": path, **({"readOnly": True} if read_only else {})}


def _cache(wanted: Description) -> Object:
    storage = wanted.storage
    if storage.kind == "claim":
        return {"name": VOLUME, "persistentVolumeClaim": {"claimName": storage.claim}}
    if storage.kind == "memory":
        return {"name": VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": storage.size}}
    return {"name": VOLUME, "emptyDir": {}}
