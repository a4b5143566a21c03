"""What all pods of one runner share."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flexinfer.adapters.kube.recorder import EventRecorder
from flexinfer.local.processes import Reaper
from flexinfer.local.runner.cluster_data import ClusterData
from flexinfer.local.runner.housing import Housing
from flexinfer.local.runner.images import ImageTable
from flexinfer.ports import Clock, KubeApi


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
    housing: Housing
    data: ClusterData
    pacing: Pacing
    host_paths: Mapping[str, Path]
    allocatable: Mapping[str, str]

    def pod_folder(self, uid: str) -> Path:
        """Everything of one pod."""
        return self.work / "pods" / uid

    @property
    def claims(self) -> Path:
        """Directories that stand for PersistentVolumeClaims."""
        return self.work / "claims"
