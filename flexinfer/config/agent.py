"""Settings of ``flexinfer-agent``."""

from pathlib import Path
from typing import Literal

from flexinfer.config.common import Duration, KubeSettings, Port, RecordSettings, setting


class AgentSettings(RecordSettings, KubeSettings):
    """Find the node's accelerators, publish hardware and telemetry, project labels and annotations."""

    interval: Duration = setting(30.0, "least time between annotation patches and hardware probes", gt=0)
    telemetry_interval: Duration = setting(2.0, "period of telemetry events; readers age them by it", gt=0)
    metrics_host: str = setting("", "address of the metrics listener; empty: all")
    metrics_port: Port = setting(9100, "port of /metrics, /healthz and /readyz; 0: a free one")
    label_prefix: str = setting(
        "flexinfer.ai/",
        "prefix of node labels and annotations",
        pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?$",
    )
    node_name: str = setting("", "node this agent speaks for; empty: the host name", env="NODE_NAME")
    dry_run: bool = setting(False, "true: write neither labels nor events")
    host_root: str = setting("/host", "where the host's file system is mounted, for the chroot fallback")
    root: Path = setting(Path("/"), "every file is looked up below this directory")
    once: bool = setting(False, "probe once, print, exit")
    output: Literal["text", "json", "yaml"] = setting("text", "format of --once")
    drain_file: str = setting(
        "/run/flexinfer/drain", "while this file exists the node is draining; its first line is the reason"
    )
    model_cache: Path | None = setting(None, "the node's shared model cache, as mounted here; unset: there is none")
    model_cache_limit_gb: float = setting(0.0, "GB it may hold; the least used model goes first; 0: no limit", ge=0)
    model_cache_floor_gb: float = setting(20.0, "GB of its file system that are kept free, if models can go", ge=0)
    cloud_notices: Literal["off", "aws", "azure", "gcp"] = setting(
        "off", "whose metadata service is asked for spot and shutdown notices"
    )
