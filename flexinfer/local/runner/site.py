"""What all pods of one runner share."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flexinfer.adapters.kube.recorder import EventRecorder
from flexinfer.local.processes import Reaper
from flexinfer.local.runner.addresses import Addresses
from flexinfer.local.runner.cluster_data import ClusterData
from flexinfer.local.runner.images import ImageTable
from flexinfer.ports import Clock, KubeApi

# What a process needs to run at all; the rest of our own environment stays with us.
_INHERITED = ("HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True, slots=True)
class Pacing:
    """Waits of the runner, seconds.

    ``backoff`` and ``backoff_cap``: restarts, the kubelet's values. ``retry``: until a missing ConfigMap or Secret is
    looked for again. ``eager``: between extra looks before a startup or readiness probe first succeeds, so that
    nobody waits a whole period for a process that is ready; their failures do not count. None: no such looks.
    """

    backoff: float = 10.0
    backoff_cap: float = 300.0
    retry: float = 2.0
    eager: float | None = 0.25


@dataclass(slots=True)
class Site:
    """The node and its means."""

    api: KubeApi
    node: str
    images: ImageTable
    work: Path
    reaper: Reaper
    recorder: EventRecorder
    clock: Clock
    addresses: Addresses
    data: ClusterData
    pacing: Pacing
    host_paths: Mapping[str, Path]
    allocatable: Mapping[str, str]
    base_env: Mapping[str, str] = field(default_factory=lambda: base_environment(os.environ))

    def pod_folder(self, uid: str) -> Path:
        """Everything of one pod."""
        return self.work / "pods" / uid

    @property
    def claims(self) -> Path:
        """Directories that stand for PersistentVolumeClaims."""
        return self.work / "claims"


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables every container starts with. PATH begins with our own scripts, so that images' programs are found."""
    found = {name: environ[name] for name in _INHERITED if name in environ}
    search = [str(Path(sys.executable).parent), environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")]
    return found | {"PATH": os.pathsep.join(search)}
