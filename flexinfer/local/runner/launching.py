"""From a container's spec to what is executed here: image, environment, mounts, rewriting."""

from flexinfer.contracts.kubernetes import Object
from flexinfer.local.runner.downward import BadReference, PodFacts
from flexinfer.local.runner.environment import needed, variables
from flexinfer.local.runner.housing import Files, Home, Launch, Wanted
from flexinfer.local.runner.records import Waiting
from flexinfer.local.runner.site import Site
from flexinfer.local.runner.volumes import VolumeFailed, mount_paths
from flexinfer.ports import KubeUnavailable

DEFAULT_MESSAGE_PATH = "/dev/termination-log"


async def prepare(container: Object, facts: PodFacts, files: Files, home: Home, site: Site) -> Launch | Waiting:
    """The launch, or why it has to wait, as the kubelet words it."""
    reference = str(container.get("image") or "")
    image = site.images.find(reference)
    if image is None:
        return Waiting("ErrImageNeverPull", site.images.missing(reference))
    meta = facts.pod["metadata"]
    base = {**home.variables(files), "HOSTNAME": str(meta["name"]), **image.env}
    try:
        data = await site.data.data(str(meta.get("namespace") or "default"), *needed([container]))
        env = variables(container, facts, data, base)
        paths = mount_paths(container, files.volumes)
        paths[str(container.get("terminationMessagePath") or DEFAULT_MESSAGE_PATH)] = str(files.message)
        return home.launch(Wanted(container, image, env, paths, files))
    except (BadReference, VolumeFailed) as err:
        return Waiting("CreateContainerConfigError", str(err))
    except KubeUnavailable as err:
        return Waiting("CreateContainerConfigError", f"the API cannot be reached: {err}")
