"""From a container's spec to what is executed here: image, environment, mounts, rewriting."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flexinfer.contracts.kubernetes import Object
from flexinfer.local.runner.downward import BadReference, PodFacts
from flexinfer.local.runner.environment import TERMINATION_LOG, Command, command, needed, variables
from flexinfer.local.runner.records import Waiting
from flexinfer.local.runner.rewriting import Rewriter
from flexinfer.local.runner.site import Site
from flexinfer.local.runner.volumes import VolumeFailed, mount_paths
from flexinfer.ports import KubeUnavailable

DEFAULT_MESSAGE_PATH = "/dev/termination-log"


@dataclass(frozen=True, slots=True)
class Launch:
    """A container ready to start."""

    command: Command
    cwd: Path


@dataclass(frozen=True, slots=True)
class Files:
    """Where a container's files are: volumes by name, its termination message, its scratch directory."""

    volumes: Mapping[str, Path]
    message: Path
    scratch: Path


async def prepare(container: Object, facts: PodFacts, files: Files, site: Site) -> Launch | Waiting:
    """The launch, or why it has to wait, as the kubelet words it."""
    reference = str(container.get("image") or "")
    image = site.images.find(reference)
    if image is None:
        return Waiting("ErrImageNeverPull", site.images.missing(reference))
    meta = facts.pod["metadata"]
    base = {
        **site.base_env,
        "HOSTNAME": str(meta["name"]),
        "TMPDIR": str(files.scratch),
        TERMINATION_LOG: str(files.message),
        **image.env,
    }
    try:
        data = await site.data.data(str(meta.get("namespace") or "default"), *needed([container]))
        env = variables(container, facts, data, base)
        paths = mount_paths(container, files.volumes)
    except (BadReference, VolumeFailed) as err:
        return Waiting("CreateContainerConfigError", str(err))
    except KubeUnavailable as err:
        return Waiting("CreateContainerConfigError", f"the API cannot be reached: {err}")
    paths[str(container.get("terminationMessagePath") or DEFAULT_MESSAGE_PATH)] = str(files.message)
    on_host = bool(facts.pod["spec"].get("hostNetwork"))
    rewrite = Rewriter(paths, None if on_host else facts.ip)
    cwd = container.get("workingDir")
    return Launch(command(container, image, env, rewrite), Path(rewrite(str(cwd))) if cwd else files.scratch)
