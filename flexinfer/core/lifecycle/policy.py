"""What the manager's settings mean to decisions, without the settings themselves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flexinfer.contracts.events import Device


def any_device(_device: Device, _backend: str, _form: str) -> bool:
    """Every device can compute every format."""
    return True


@dataclass(frozen=True, slots=True)
class Policy:
    """Durations in seconds. ``images``: engine → vendor (NVIDIA, AMD, INTEL, CPU) → image, over the engine's own.

    ``runtime_classes``: vendor → runtimeClassName of pods with such a device. ``fetch_image``: the image of the init
    step that fetches weights (empty: engines fetch them themselves); ``node_cache``: the directory of each node where
    it keeps them for all pods (empty: in the pod, or on the model's claim). ``nats_url``: the bus for benchmark Jobs,
    ``nats_ca`` the PEM text of its CA, ``token_audience`` that of the token they show it (empty: none).

    ``capable(device, backend, quantization)``: the placement filters' rule of what a device can compute; it is passed
    in because placement and lifecycle do not know each other.
    """

    namespace: str = "flexinfer-system"
    cluster: str = "default"
    scheduler_name: str = "flexinfer-scheduler"
    model_path: str = "/models"
    images: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    runtime_classes: Mapping[str, str] = field(default_factory=dict)
    fetch_image: str = ""
    node_cache: str = ""
    benchmark_image: str = "flexinfer/benchmarker:latest"
    proxy_url: str = ""
    nats_url: str = ""
    nats_ca: str = ""
    token_audience: str = ""
    gate_timeout: float = 300.0
    job_deadline: float = 600.0
    node_local: bool = False
    capable: Callable[[Device, str, str], bool] = any_device
