"""Volumes as directories: content of ConfigMaps, Secrets and the downward API, scratch space, claims, host paths."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flexinfer.contracts.kubernetes import CONFIGMAPS, SECRETS, Object, Resource
from flexinfer.local.runner.cluster_data import ClusterData
from flexinfer.local.runner.downward import BadReference, PodFacts, field_value, resource_value

FILE_MODE = 0o644  # what the API fills in for defaultMode
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


@dataclass(frozen=True, slots=True)
class Places:
    """Directories of one pod and of the node.

    ``claims``: one directory per PersistentVolumeClaim, which outlives the pods. ``host``: paths of the host as
    manifests name them → where they are here.
    """

    pod: Path
    claims: Path
    host: Mapping[str, Path]


class VolumeFailed(Exception):
    """A volume cannot be provided, perhaps not yet; the text is what the FailedMount event says."""


async def provide(facts: PodFacts, places: Places, data: ClusterData) -> dict[str, Path]:
    """Volume name → directory or file, created and filled. Raises VolumeFailed, KubeUnavailable."""
    namespace = str(facts.pod["metadata"].get("namespace") or "default")
    found: dict[str, Path] = {}
    for volume in facts.pod["spec"].get("volumes") or ():
        name = str(volume["name"])
        try:
            found[name] = await _one(volume, name, namespace, facts, places, data)
        except (OSError, BadReference) as err:
            raise VolumeFailed(f'volume "{name}": {err}') from err
    return found


async def _one(volume: Object, name: str, namespace: str, facts: PodFacts, places: Places, data: ClusterData) -> Path:
    folder = places.pod / "volumes" / name
    if "hostPath" in volume:
        return _host_path(volume["hostPath"], places)
    if "persistentVolumeClaim" in volume:
        folder = places.claims / namespace / str(volume["persistentVolumeClaim"].get("claimName"))
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    if volume.keys() - {"name"} <= {"emptyDir"}:
        return folder
    projected = volume.get("projected") or {}
    for source in projected.get("sources") or [volume]:
        mode = projected.get("defaultMode") or _default_mode(source)
        for path, content in (await _files(source, name, namespace, facts, data)).items():
            _write(folder, path, content, _mode_of(source, path) or mode)
    return folder


def _default_mode(source: Object) -> int:
    return next((int(part["defaultMode"]) for part in _parts(source) if part.get("defaultMode")), FILE_MODE)


def _mode_of(source: Object, path: str) -> int | None:
    """The mode of one item, where it has its own."""
    items = [item for part in _parts(source) for item in part.get("items") or ()]
    return next((int(item["mode"]) for item in items if item.get("mode") and item.get("path") == path), None)


def _parts(source: Object) -> list[Object]:
    return [part for part in source.values() if isinstance(part, dict)]


def _host_path(source: Object, places: Places) -> Path:
    asked, kind = str(source.get("path") or ""), str(source.get("type") or "")
    path = Path(asked)
    for prefix, real in places.host.items():
        if asked == prefix or asked.startswith(prefix.rstrip("/") + "/"):
            path = real / asked.removeprefix(prefix).lstrip("/")
            break
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch()
    elif (kind == "Directory" and not path.is_dir()) or (kind == "File" and not path.is_file()):
        raise BadReference(f"hostPath {asked} is not a {kind.lower()} on this machine")
    return path


async def _files(source: Object, name: str, namespace: str, facts: PodFacts, data: ClusterData) -> dict[str, bytes]:
    """Relative path → content of one source of a volume."""
    if "configMap" in source:
        return _selected(source["configMap"], await data.content(CONFIGMAPS, namespace, _ref(source["configMap"])))
    if "secret" in source:
        return _selected(source["secret"], await data.content(SECRETS, namespace, _ref(source["secret"])))
    if "downwardAPI" in source:
        return {str(item["path"]): _downward(item, facts).encode() for item in source["downwardAPI"].get("items") or ()}
    if "serviceAccountToken" in source:
        wanted = source["serviceAccountToken"]
        account = str(facts.pod["spec"].get("serviceAccountName") or "default")
        token = await data.token(SERVICE_ACCOUNTS, namespace, account, facts.pod, wanted)
        return {str(wanted.get("path") or "token"): token.encode()}
    kinds = ", ".join(sorted(source.keys() - {"name"}))
    raise BadReference(f"volumes of type {kinds or name} are not supported by the process runner")


def _ref(source: Object) -> str:
    return str(source.get("name") or source.get("secretName") or "")


def _selected(source: Object, content: Mapping[str, bytes] | None) -> dict[str, bytes]:
    name, optional = _ref(source), bool(source.get("optional"))
    if content is None:
        if optional:
            return {}
        raise BadReference(f'"{name}" not found')
    items = source.get("items")
    if not items:
        return dict(content)
    found = {}
    for item in items:
        key = str(item["key"])
        if key in content:
            found[str(item["path"])] = content[key]
        elif not optional:
            raise BadReference(f'"{name}" has no key "{key}"')
    return found


def _downward(item: Object, facts: PodFacts) -> str:
    if "fieldRef" in item:
        return field_value(str(item["fieldRef"].get("fieldPath")), facts)
    return resource_value(item.get("resourceFieldRef") or {}, {}, facts)


def _write(folder: Path, path: str, content: bytes, mode: int) -> None:
    target = (folder / path).resolve()
    if not target.is_relative_to(folder.resolve()):
        raise BadReference(f"path {path!r} leaves the volume")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)  # an earlier try may have left it read-only
    target.write_bytes(content)
    target.chmod(mode)


def mount_paths(container: Object, volumes: Mapping[str, Path]) -> dict[str, str]:
    """mountPath → real path of each mount of a container; subPath directories are created. Raises VolumeFailed."""
    found = {}
    for mount in container.get("volumeMounts") or ():
        root = volumes[str(mount["name"])]
        below = str(mount.get("subPath") or "")
        if mount.get("subPathExpr"):
            raise VolumeFailed(f"subPathExpr of {mount['mountPath']} is not supported by the process runner")
        path = (root / below).resolve() if below else root
        if not path.is_relative_to(root.resolve()) and below:
            raise VolumeFailed(f"subPath {below!r} leaves the volume")
        if below and not path.exists():
            path.mkdir(parents=True)
        found[str(mount["mountPath"])] = str(path)
    return found


def remove(folder: Path) -> None:
    """Delete a pod's directory, whatever is in it."""
    shutil.rmtree(folder, ignore_errors=True)
