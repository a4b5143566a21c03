"""``ModelDeployment`` v1alpha1, the legacy kind."""

from pydantic import Field

from flexinfer.contracts.crds.fields import Free, Wire, rule, rules
from flexinfer.contracts.crds.parts import (
    Backend,
    Benchmark,
    EnvVar,
    Gpu,
    LiteLlm,
    Resources,
    Service,
    Toleration,
    empty,
)
from flexinfer.contracts.crds.status import Status


class ModelDeploymentSpec(Wire):
    """What should run."""

    model_config = rules(
        rule(
            "self.minReplicas <= self.replicas || self.replicas == 0",
            "minReplicas must not be larger than replicas",
        ),
        rule(
            "self.backend != 'custom' || (has(self.image) && size(self.image) > 0)",
            "backend custom needs image",
        ),
    )

    backend: Backend
    """Engine: ollama, vllm, llamacpp, tgi, sglang, tensorrt-llm or custom."""
    model: str = Field(min_length=1, max_length=1024)
    """Model to serve: a source (ollama://, hf://, file://, pvc://, oci://) or the engine's own name for it."""
    source_secret: str | None = Field(None, max_length=253)
    """Secret of this namespace with credentials for the model: token; username and password; or .dockerconfigjson."""
    image: str | None = Field(None, max_length=1024)
    """Engine image; unset: the engine's default for the vendor."""
    replicas: int = Field(1, ge=0, le=1000)
    """Replicas while in use; 0 switches the model off."""
    min_replicas: int = Field(0, ge=0, le=1000)
    """Replicas kept while nobody asks."""
    idle_timeout_seconds: int = Field(300, ge=0)
    """Seconds without a request until only minReplicas are kept; 0: never."""
    cold_start_timeout_seconds: int = Field(300, ge=10, le=7200)
    """Longest wait of a request for the first replica."""
    resources: Resources = empty(Resources)
    """Requests and limits of the engine container."""
    gpu: Gpu = empty(Gpu)
    """Accelerators of one replica."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels a node must have."""
    tolerations: list[Toleration] = Field(default_factory=list)
    """Taints the pods accept."""
    args: list[str] = Field(default_factory=list)
    """Arguments added to the engine's command line."""
    env: list[EnvVar] = Field(default_factory=list)
    """Environment added to the engine container."""
    port: int | None = Field(None, ge=1, le=65535)
    """Port the engine listens on; unset: its usual one."""
    service: Service = empty(Service)
    """Service in front of the replicas."""
    benchmark: Benchmark = empty(Benchmark)
    """How speed is measured."""
    litellm: LiteLlm | None = None
    """Additional names of the model."""
    vram_estimate_mb: int | None = Field(None, ge=1, alias="vramEstimateMB")
    """Earlier place of gpu.vramEstimateMB; read when that is unset."""
    llamacpp: Free | None = None
    """Options of llama.cpp as earlier releases wrote them; read when backend is llamacpp."""
    vllm: Free | None = None
    """Options of vLLM as earlier releases wrote them; read when backend is vllm."""
    priority: int | None = None
    """Earlier releases: rank inside a GPUGroup. No effect."""
    gpu_group_ref: str | None = None
    """Earlier releases: sharing of one GPU. No effect."""
    model_cache_ref: str | None = None
    """Earlier releases: a ModelCache object. No effect; use a pvc:// source."""
    service_labels: list[str] | None = None
    """Earlier releases: capability labels for routing. No effect."""
    comfyui: Free | None = None
    """Earlier releases: options of ComfyUI. No effect."""
    mlcllm: Free | None = None
    """Earlier releases: options of MLC-LLM. No effect."""
    vllm_omni: Free | None = None
    """Earlier releases: options of vLLM-Omni. No effect."""


class ModelDeployment(Wire):
    """A model on one engine: measured, placed, served."""

    spec: ModelDeploymentSpec
    """What should run."""
    status: Status = empty(Status)
    """What was observed."""


MODELDEPLOYMENT_IGNORED = {
    "priority": "GPU groups do not exist here",
    "gpuGroupRef": "GPU groups do not exist here; each model gets its own accelerators",
    "modelCacheRef": "put the weights on a volume claim and use model: pvc://<claim>/<path>",
    "serviceLabels": "give the model additional names under litellm.aliases",
    "comfyui": "backend comfyui does not exist here",
    "mlcllm": "backend mlc-llm does not exist here",
    "vllmOmni": "backend vllm-omni does not exist here",
}
"""Fields accepted from earlier releases that have no effect, with what to do instead."""
