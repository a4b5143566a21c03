"""Settings of ``flexinfer-manager``."""

from pathlib import Path

from flexinfer.config.common import Duration, KubeSettings, Port, RecordSettings, setting
from flexinfer.core.lifecycle.policy import Policy
from flexinfer.core.placement.quantization import meets, need_of


class ManagerSettings(RecordSettings, KubeSettings):
    """Turn Model and ModelDeployment objects into benchmarked, placed, running engines."""

    metrics_host: str = setting("", "address of the ops listener; empty: all")
    metrics_port: Port = setting(8080, "port of /metrics, /healthz, /readyz; 0: a free one", env="METRICS_PORT")
    scheduler_name: str = setting("flexinfer-scheduler", "schedulerName of the pods it creates")
    model_cache_path: str = setting("/models", "mount path of model files in engine pods", env="MODEL_CACHE_PATH")
    default_backend_image: str = setting(
        "", "deprecated; used for NVIDIA when its own is unset", env="DEFAULT_BACKEND_IMAGE"
    )
    default_backend_image_nvidia: str = setting("", "image of ollama on NVIDIA", env="DEFAULT_BACKEND_IMAGE_NVIDIA")
    default_backend_image_amd: str = setting(
        "ollama/ollama:rocm", "image of ollama on AMD", env="DEFAULT_BACKEND_IMAGE_AMD"
    )
    default_backend_image_intel: str = setting(
        "ollama/ollama:latest", "image of ollama on Intel", env="DEFAULT_BACKEND_IMAGE_INTEL"
    )
    nvidia_runtime_class: str = setting("", "runtimeClassName of pods with NVIDIA devices; empty: the node's default")
    amd_runtime_class: str = setting("", "runtimeClassName of pods with AMD devices")
    intel_runtime_class: str = setting("", "runtimeClassName of pods with Intel devices")
    fetch_image: str = setting(
        "", "image with flexinfer-fetch: an init step that fetches weights; empty: engines fetch their own"
    )
    node_cache: str = setting(
        "", "directory of each node where fetched weights are kept for all its pods; empty: none is shared",
        pattern=r"^(/[^/]+.*)?$",
    )  # fmt: skip
    benchmark_image: str = setting("flexinfer/benchmarker:latest", "image of benchmark Jobs", env="BENCHMARK_IMAGE")
    proxy_url: str = setting(
        "http://flexinfer-proxy.flexinfer-system:8080", "URL benchmark Jobs send their requests to"
    )
    bench_nats_url: str = setting(
        "", "bus address handed to benchmark Jobs; empty: --nats-url; off: none, they report by termination message"
    )
    bench_audience: str = setting(
        "", "audience of the ServiceAccount token that benchmark Jobs show the bus; empty: they get none"
    )
    callout_key: Path | None = setting(
        None, "file with the key of the bus's auth callout: an account's NKey seed, or 32 bytes in base64; unset: none"
    )
    callout_issuer: Path | None = setting(
        None, "write the issuer line of nats-server's auth_callout for --callout-key to this file, and end"
    )
    callout_audience: str = setting("flexinfer-bus", "audience of tokens that let agents and benchmarks onto the bus")
    callout_agents: str = setting("flexinfer-agent", "ServiceAccount of agents, in the namespace of this release")
    bus_replicas: int = setting(1, "copies of each stream; more than 1 needs a bus of as many servers", ge=1, le=5)
    bus_log_mib: int = setting(512, "MiB of events the log keeps; a day of 5,000 nodes is about 7,300", ge=8)
    gate_timeout: Duration = setting(300.0, "longest wait for benchmarks before a model is deployed anyway")
    job_deadline: Duration = setting(600.0, "activeDeadlineSeconds of a benchmark Job, waiting included")
    leader_elect: bool = setting(True, "false: act at once; only for a single replica")
    watch_namespace: str = setting("", "only this namespace; empty: all")
    node_local: bool = setting(False, "one-machine mode: model files are local paths, no volumes are mounted")


def policy_of(settings: ManagerSettings) -> Policy:
    """Settings as decisions see them: no file is read, so that a tape's settings give the same."""
    ollama = {
        "NVIDIA": settings.default_backend_image_nvidia or settings.default_backend_image,
        "AMD": settings.default_backend_image_amd,
        "INTEL": settings.default_backend_image_intel,
    }
    return Policy(
        namespace=settings.namespace,
        cluster=settings.cluster,
        scheduler_name=settings.scheduler_name,
        model_path=settings.model_cache_path,
        images={"ollama": ollama},
        runtime_classes={
            "NVIDIA": settings.nvidia_runtime_class,
            "AMD": settings.amd_runtime_class,
            "INTEL": settings.intel_runtime_class,
        },
        fetch_image=settings.fetch_image,
        node_cache=settings.node_cache,
        benchmark_image=settings.benchmark_image,
        proxy_url=settings.proxy_url,
        nats_url="" if settings.bench_nats_url == "off" else settings.bench_nats_url or settings.nats_url,
        nats_ca=settings.nats_ca_data,
        token_audience=settings.bench_audience,
        gate_timeout=settings.gate_timeout,
        job_deadline=settings.job_deadline,
        node_local=settings.node_local,
        capable=lambda device, backend, form: meets(device, need_of(backend, form)),
    )
