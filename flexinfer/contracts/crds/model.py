"""``Model`` v1alpha2."""

from typing import Literal

from pydantic import Field

from flexinfer.contracts.crds.fields import Duration, Free, Quantity, Wire, duration, rule, rules
from flexinfer.contracts.crds.parts import Backend, Benchmark, Gpu, LiteLlm, Resources, Toleration, empty
from flexinfer.contracts.crds.status import Status


class ModelGpu(Gpu):
    """The accelerators one replica needs."""

    priority: int | None = Field(None, ge=0, le=1000)
    """Rank among models that wait for the same device: higher is placed first. Unset: 100."""
    shared: str | None = Field(None, max_length=63)
    """Earlier releases: time-sharing of one GPU. No effect."""


class Serverless(Wire):
    """Scaling to zero and back."""

    model_config = rules(
        rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "minReplicas must not be larger than maxReplicas",
        )
    )

    enabled: bool = True
    """False: maxReplicas run at all times."""
    min_replicas: int = Field(0, ge=0, le=1000)
    """Replicas kept while nobody asks."""
    max_replicas: int = Field(1, ge=1, le=1000)
    """Replicas while in use."""
    idle_timeout: Duration = duration("5m")
    """Time without a request until only minReplicas are kept; 0s: never."""
    cold_start_timeout: Duration = duration("5m")
    """Longest wait of a request for the first replica."""


class Cache(Wire):
    """Where downloaded weights are kept."""

    strategy: Literal["Memory", "SharedPVC", "None"] | None = None
    """Memory: in RAM; SharedPVC: on a volume claim; None: in the pod, gone with it. Unset: SharedPVC with a
    pvcName, else None."""
    pvc_name: str | None = Field(None, max_length=253, alias="pvcName")
    """Volume claim for SharedPVC."""
    size: Quantity = Field("50Gi")
    """Size limit of Memory, size of a claim made for SharedPVC."""
    storage_class: str | None = Field(None, max_length=253)
    """Storage class of a claim made for SharedPVC; unset: the cluster's default."""


class ModelSpec(Wire):
    """What should run."""

    model_config = rules(
        rule(
            "self.backend != 'custom' || (has(self.image) && size(self.image) > 0)",
            "backend custom needs image",
        ),
        rule(
            "!has(self.cache) || !has(self.cache.strategy) || !self.source.startsWith('pvc://') || "
            "self.cache.strategy == 'SharedPVC'",
            "cache.strategy must be SharedPVC or unset when source is pvc://",
        ),
    )

    backend: Backend
    """Engine: ollama, vllm, llamacpp, tgi, sglang, tensorrt-llm or custom."""
    source: str = Field(min_length=1, max_length=1024)
    """Where the weights come from: ollama://name:tag, hf://org/repo, file:///path, pvc://claim/path, oci://image."""
    source_secret: str | None = Field(None, max_length=253)
    """Secret of this namespace with credentials for the source: token; username and password; or .dockerconfigjson."""
    image: str | None = Field(None, max_length=1024)
    """Engine image; unset: the engine's default for the vendor."""
    gpu: ModelGpu = empty(ModelGpu)
    """Accelerators of one replica."""
    serverless: Serverless = empty(Serverless)
    """Scaling to zero and back."""
    cache: Cache | None = None
    """Where downloaded weights are kept."""
    config: Free | None = None
    """Engine options by name, for example contextSize; args (a list) is added to the command line."""
    resources: Resources = empty(Resources)
    """Requests and limits of the engine container."""
    benchmark: Benchmark = empty(Benchmark)
    """How speed is measured."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels a node must have."""
    tolerations: list[Toleration] = Field(default_factory=list)
    """Taints the pods accept."""
    litellm: LiteLlm | None = None
    """Additional names of the model."""
    service_labels: list[str] | None = None
    """Earlier releases: capability labels for routing. No effect."""


class Model(Wire):
    """A model on one engine: measured, placed, served, scaled to zero when nobody asks."""

    spec: ModelSpec
    """What should run."""
    status: Status = empty(Status)
    """What was observed."""


MODEL_IGNORED = {
    "gpu.shared": "GPUs are not time-shared here; scale to zero frees them",
    "serviceLabels": "give the model additional names under litellm.aliases",
    "litellm.copilotAlias": "put the name under litellm.aliases",
}
"""Fields accepted from earlier releases that have no effect, with what to do instead."""
