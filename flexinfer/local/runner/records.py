"""What the runner knows about each container of a pod, in the words of the Kubernetes API."""

from dataclasses import dataclass
from typing import Literal

from flexinfer.contracts.kubernetes import Object

Role = Literal["init", "sidecar", "main"]
Policy = Literal["Always", "OnFailure", "Never"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not running yet, or not again yet."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """Running since, Unix seconds."""

    started_at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """One finished run. ``exit_code`` as a shell counts: 128 + signal for a process ended by one."""

    exit_code: int
    signal: int
    reason: str
    message: str
    started_at: float
    finished_at: float
    container_id: str = ""


State = Waiting | Running | Ended


@dataclass(slots=True)
class Record:
    """Current state of one container. ``started``: its startup probe has passed; ``ready``: its readiness probe."""

    spec: Object
    role: Role
    state: State
    last: Ended | None = None
    restarts: int = 0
    started: bool = False
    ready: bool = False
    container_id: str = ""

    @property
    def name(self) -> str:
        """Container name."""
        return str(self.spec["name"])

    @property
    def succeeded(self) -> bool:
        """Ended with 0."""
        return isinstance(self.state, Ended) and self.state.exit_code == 0


def records_of(pod: Object) -> list[Record]:
    """One record per container in the order they start: init containers and sidecars, then the main ones."""
    spec = pod["spec"]
    found = [
        Record(
            spec=container,
            role="sidecar" if container.get("restartPolicy") == "Always" else "init",
            state=Waiting("PodInitializing"),
        )
        for container in spec.get("initContainers") or ()
    ]
    reason = "PodInitializing" if found else "ContainerCreating"
    return found + [Record(spec=container, role="main", state=Waiting(reason)) for container in spec["containers"]]


def policy_of(pod: Object) -> Policy:
    """The pod's restart policy."""
    value = pod["spec"].get("restartPolicy")
    return value if value in {"OnFailure", "Never"} else "Always"


def wants_restart(role: Role, policy: Policy, exit_code: int) -> bool:
    """Whether a container that ended is to run again.

    Sidecars always; init containers until they succeed, unless Never; main ones as the policy says.
    """
    if role == "sidecar":
        return True
    if policy == "Never":
        return False
    return exit_code != 0 or (policy == "Always" and role == "main")


@dataclass(slots=True)
class Backoff:
    """Waits before restarts: none, ``base``, doubled up to ``cap``; forgotten after a run of twice the cap.

    The kubelet's rule, with its 10 s and 5 min as defaults.
    """

    base: float = 10.0
    cap: float = 300.0
    _next: float = 0.0

    def after(self, ran_for: float) -> float:
        """Seconds to wait after a run that lasted ``ran_for``."""
        if ran_for >= 2 * self.cap:
            self._next = 0.0
        wait = self._next
        self._next = min(self.cap, max(self.base, wait * 2))
        return wait
